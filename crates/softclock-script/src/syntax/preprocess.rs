//! Conditional lines: `#ifdef NAME`, `#ifndef NAME`, `#else`, `#endif`, `#define NAME`, `#undef NAME`.

use std::collections::BTreeSet;

use super::cursor::{ParseError, Position, Reason};

/// Replaces the conditional lines, and those that they exclude, by empty lines, so that positions stay the same.
///
/// # Errors
/// An `#else` or `#endif` without a beginning, or a beginning without an end.
pub(super) fn preprocess(text: &str, defined: &[&str]) -> Result<String, ParseError> {
    let mut names: BTreeSet<&str> = defined.iter().copied().collect();
    // For each open condition: its line, whether its lines count, and whether the lines around it do.
    let mut open: Vec<(usize, bool, bool)> = Vec::new();
    let mut output = String::with_capacity(text.len());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let is_active = open.last().is_none_or(|(_, counts, _)| *counts);
        let mut words = line.split_whitespace();
        let name = |argument: Option<&'_ str>| argument.map(str::to_owned);
        let mut is_directive = true;
        match (words.next(), words.next()) {
            (Some("#ifdef"), argument) => {
                let holds = name(argument).is_some_and(|name| names.contains(name.as_str()));
                open.push((index + 1, is_active && holds, is_active));
            }
            (Some("#ifndef"), argument) => {
                let holds = name(argument).is_some_and(|name| names.contains(name.as_str()));
                open.push((index + 1, is_active && !holds, is_active));
            }
            (Some("#else"), _) => match open.last_mut() {
                Some((_, counts, around)) => *counts = *around && !*counts,
                None => return Err(misplaced(index, "`#ifdef` before `#else`")),
            },
            (Some("#endif"), _) => {
                if open.pop().is_none() {
                    return Err(misplaced(index, "`#ifdef` before `#endif`"));
                }
            }
            (Some("#define"), Some(name)) if is_active => {
                names.insert(name);
            }
            (Some("#undef"), Some(name)) if is_active => {
                names.remove(name);
            }
            _ => is_directive = false,
        }
        match is_directive || !is_active {
            true => output.extend(line.ends_with('\n').then_some('\n')),
            false => output.push_str(line),
        }
    }
    match open.last() {
        Some((line, ..)) => Err(misplaced(line - 1, "`#endif` for this condition")),
        None => Ok(output),
    }
}

fn misplaced(index: usize, what: &str) -> ParseError {
    ParseError {
        at: Position {
            line: index + 1,
            column: 1,
        },
        reason: Reason::Expected(what.to_owned()),
    }
}
