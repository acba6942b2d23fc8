//! Directives: comments that begin with `//@`, which only this runner understands.

use std::time::Duration;

use super::cursor::{Cursor, ParseError};
use super::event::seconds;

/// A directive. Other runners of the language take it for a comment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Directive {
    /// `//@ owner …`: when the owners of connections process what has arrived, from here on.
    Owner(Owner),
    /// `//@ visit`: the owners process now what has arrived.
    Visit,
    /// `//@ set NAME=VALUE`: changes a setting of the host by its own name.
    Set(String, String),
    /// `//@ flow N`: the following packets belong to the connection from the remote end's Nth port.
    Flow(u32),
    /// `//@ silent`: all packets that the host has sent so far have been expected.
    Silent,
}

/// When the owners of connections process the segments that wait in the connections' channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// `prompt`: after every segment.
    #[default]
    Prompt,
    /// `calls`: only in system calls. Apart from them, the host acts by its timers alone.
    Calls,
    /// `every SECONDS`: at multiples of this time after the start of the script, and in system calls.
    Every(Duration),
}

/// Reads a directive behind `//@`.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Directive, ParseError> {
    match cursor.word() {
        Some("owner") => owner(cursor).map(Directive::Owner),
        Some("visit") => Ok(Directive::Visit),
        Some("silent") => Ok(Directive::Silent),
        Some("flow") => cursor.decimal("the number of a flow").map(Directive::Flow),
        Some("set") => {
            let line = cursor.line();
            match line.split_once('=') {
                Some((name, value)) => Ok(Directive::Set(
                    name.trim().to_owned(),
                    value.trim().to_owned(),
                )),
                None => Err(cursor.expected("`NAME=VALUE` before this place")),
            }
        }
        _ => Err(cursor.expected("`owner`, `visit`, `set`, `flow` or `silent` before this place")),
    }
}

fn owner(cursor: &mut Cursor<'_>) -> Result<Owner, ParseError> {
    match cursor.word() {
        Some("prompt") => Ok(Owner::Prompt),
        Some("calls") => Ok(Owner::Calls),
        Some("every") => match seconds(cursor)? {
            Duration::ZERO => Err(cursor.expected("a time above 0 before this place")),
            time => Ok(Owner::Every(time)),
        },
        _ => Err(cursor.expected("`prompt`, `calls` or `every SECONDS` before this place")),
    }
}
