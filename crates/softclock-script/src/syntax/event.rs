//! Scripts: options, and events with their times.

use std::time::Duration;

use super::call::{self, Call};
use super::cursor::{Cursor, ParseError, Position};
use super::directive::{self, Directive};
use super::preprocess::preprocess;
use super::segment::{self, PacketSpec};

/// A script: options, then events in order.
///
/// ```
/// use softclock_script::syntax::{Action, Script};
///
/// let script = Script::parse("--ip_version=ipv4\n 0.0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n", &[])?;
/// assert_eq!(script.options[0].value.as_deref(), Some("ipv4"));
/// assert!(matches!(&script.events[0].action, Action::Call(call) if call.name == "socket"));
/// # Ok::<(), softclock_script::syntax::ParseError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// The options, such as `--mtu=9000`.
    pub options: Vec<ScriptOption>,
    /// The events.
    pub events: Vec<Event>,
}

/// An option of the runner, as on a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptOption {
    /// The place in the script.
    pub at: Position,
    /// The name without hyphens.
    pub name: String,
    /// The text behind the equals sign.
    pub value: Option<String>,
}

/// An event: an action and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// The place in the script.
    pub at: Position,
    /// The time.
    pub time: Time,
    /// When a call that blocks returns, from the same origin as `time`.
    pub end: Option<Duration>,
    /// The action.
    pub action: Action,
}

/// The time of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Directly after the event before; the script states no time.
    Next,
    /// `0.5`: from the start of the script.
    Absolute(Duration),
    /// `+0.5`: from the event before.
    Relative(Duration),
    /// `0.5~0.7`: between two times from the start.
    AbsoluteRange(Duration, Duration),
    /// `+0.5~+0.7`: between two times from the event before.
    RelativeRange(Duration, Duration),
    /// `*`: any time.
    Any,
}

/// The action of an event.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// A system call with its expected result.
    Call(Call),
    /// A packet that arrives, or one that the host must send.
    Packet(PacketSpec),
    /// A command in backquotes.
    Command(String),
    /// A block of Python, `%{ … }%`.
    Code(String),
    /// A directive, `//@ …`.
    Directive(Directive),
}

impl Script {
    /// Parses a script. `defined` are the names that hold for `#ifdef`.
    ///
    /// # Errors
    /// A [`ParseError`] with the place and what is expected there.
    pub fn parse(text: &str, defined: &[&str]) -> Result<Self, ParseError> {
        let text = preprocess(text, defined)?;
        let mut cursor = Cursor::new(&text);
        let mut script = Self::default();
        while !cursor.is_at_end() {
            match cursor.is_next("--") && script.events.is_empty() {
                true => script.options.push(option(&mut cursor)?),
                false => script.events.push(event(&mut cursor)?),
            }
        }
        Ok(script)
    }
}

fn option(cursor: &mut Cursor<'_>) -> Result<ScriptOption, ParseError> {
    let at = cursor.position();
    cursor.expect("--")?;
    let name = cursor.take_while(|c| !c.is_whitespace() && c != '=');
    let has_value = cursor.rest().starts_with('=') && cursor.eat("=");
    let value = has_value.then(|| match cursor.rest().starts_with('"') {
        true => {
            cursor.eat("\"");
            cursor.until("\"", "a closing quotation mark")
        }
        false => Ok(cursor.take_while(|c| !c.is_whitespace())),
    });
    Ok(ScriptOption {
        at,
        name: name.to_owned(),
        value: value.transpose()?.map(str::to_owned),
    })
}

fn event(cursor: &mut Cursor<'_>) -> Result<Event, ParseError> {
    let at = cursor.position();
    let (time, end) = time(cursor)?;
    let action = if cursor.eat("//@") {
        Action::Directive(directive::parse(cursor)?)
    } else if cursor.eat("`") {
        Action::Command(cursor.until("`", "a closing backquote")?.trim().to_owned())
    } else if cursor.eat("%{") {
        Action::Code(cursor.until("}%", "`}%`")?.trim().to_owned())
    } else if time == Time::Next {
        return Err(cursor.expected("an event: a time, a command in backquotes, or a directive"));
    } else if cursor.is_next("<") || cursor.is_next(">") {
        Action::Packet(segment::parse(cursor)?)
    } else {
        Action::Call(call::parse(cursor)?)
    };
    Ok(Event {
        at,
        time,
        end,
        action,
    })
}

fn time(cursor: &mut Cursor<'_>) -> Result<(Time, Option<Duration>), ParseError> {
    if cursor.eat("*") {
        return Ok((Time::Any, None));
    }
    let is_relative = cursor.eat("+");
    let is_number = cursor.is_next(".") || cursor.rest().starts_with(|c: char| c.is_ascii_digit());
    if !is_number {
        return match is_relative {
            true => Err(cursor.expected("a number of seconds")),
            false => Ok((Time::Next, None)),
        };
    }
    let begin = seconds(cursor)?;
    if cursor.eat("~") {
        cursor.eat("+");
        let end = seconds(cursor)?;
        if end < begin {
            return Err(cursor.expected("a range that ends after its beginning"));
        }
        return Ok(match is_relative {
            true => (Time::RelativeRange(begin, end), None),
            false => (Time::AbsoluteRange(begin, end), None),
        });
    }
    let end = match cursor.eat("...") {
        true => {
            cursor.eat("+");
            Some(seconds(cursor)?)
        }
        false => None,
    };
    let time = match is_relative {
        true => Time::Relative(begin),
        false => Time::Absolute(begin),
    };
    Ok((time, end))
}

/// Reads seconds with an optional fraction, exact to the nanosecond.
pub(super) fn seconds(cursor: &mut Cursor<'_>) -> Result<Duration, ParseError> {
    let mut ahead = cursor.clone();
    let whole = ahead.take_while(|c| c.is_ascii_digit());
    let rest = ahead.rest();
    let has_fraction = rest.starts_with('.') && !rest.starts_with("..");
    let fraction = match has_fraction {
        true => {
            ahead.eat(".");
            let rest = ahead.rest();
            match rest.starts_with(|c: char| c.is_ascii_digit()) {
                true => ahead.take_while(|c| c.is_ascii_digit()),
                false => "",
            }
        }
        false => "",
    };
    // Nine digits of the fraction are nanoseconds; more are cut off.
    let nanoseconds = format!("{fraction:0<9}").get(..9).map(str::parse);
    let seconds = match whole {
        "" if !fraction.is_empty() => Ok(0),
        digits => digits.parse::<u32>(),
    };
    match (seconds, nanoseconds) {
        (Ok(seconds), Some(Ok(nanoseconds))) => {
            *cursor = ahead;
            Ok(Duration::new(seconds.into(), nanoseconds))
        }
        _ => Err(cursor.expected("a number of seconds")),
    }
}
