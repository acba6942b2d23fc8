//! Describes mistakes in arguments, and finds the name that a misspelt one resembles.

use std::cmp::Reverse;

use clap::error::{ContextKind, ContextValue};

/// Describes the mistake, without clap's advice. clap lists missing arguments on separate lines, which are joined here.
pub(crate) fn mistake(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let rest = lines.take_while(|line| first.ends_with(':') && line.starts_with(' '));
    let rest: Vec<_> = rest.map(str::trim).collect();
    if !rest.is_empty() {
        return format!("{first} {}", rest.join(", "));
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(names)) if !names.is_empty() => {
            format!("{first}: not one of {}", names.join(", "))
        }
        _ => first.to_owned(),
    }
}

/// Returns the similar name, if there is one.
pub(crate) fn suggestion(error: &clap::Error) -> Option<&str> {
    let kinds = [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ];
    kinds.into_iter().find_map(|(written, suggested)| {
        let ContextValue::String(written) = error.get(written)? else {
            return None;
        };
        match error.get(suggested)? {
            ContextValue::String(name) => nearest(written, [name.as_str()]),
            ContextValue::Strings(names) => nearest(written, names.iter().map(String::as_str)),
            _ => None,
        }
    })
}

/// Returns the nearest of `names` to `written`, unless all are too different; among equally near ones, the one with the
/// longest common beginning. Leading dashes do not count.
fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.split('=').next().unwrap_or(written);
    let written = written.trim_start_matches('-');
    let most = written.chars().count() / LETTERS_PER_MISTAKE;
    let by_distance = names.into_iter().map(|name| {
        let bare = name.trim_start_matches('-');
        let order = (distance(written, bare), Reverse(common(written, bare)));
        (order, name)
    });
    let near = by_distance.filter(|((distance, _), _)| *distance <= most);
    near.min_by_key(|(order, _)| *order).map(|(_, name)| name)
}

/// Number of letters of the common beginning.
fn common(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(a, b)| a == b).count()
}

/// Number of letters to insert, delete, change, or swap with their neighbour (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<_>, Vec<_>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, other) in to.iter().enumerate() {
            let changed = row[j] + usize::from(letter != other);
            let mut least = changed.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == to[j - 1] && from[i - 1] == *other {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

/// Letters of a name for each mistake that is tolerated: one in a name of 3, two in one of 6.
const LETTERS_PER_MISTAKE: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, mistakes) in [
            ("", "", 0),
            ("", "ab", 2),
            ("lisen", "listen", 1),
            ("lsiten", "listen", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), mistakes, "{from} {to}");
            assert_eq!(distance(to, from), mistakes, "{to} {from}");
        }
    }

    #[test]
    fn what_is_far_off_is_not_suggested() {
        let names = [
            "--listen",
            "--threads",
            "--head-timeout",
            "--tls-key",
            "--class-ba",
            "--class-ab",
        ];
        for (written, name) in [
            ("--lisen", Some("--listen")),
            ("thread", Some("--threads")),
            ("--timeout=3", None),
            ("--class-a", Some("--class-ab")),
            ("--tls", None),
            ("--quux", None),
            ("--port", None),
            ("--threshold", None),
        ] {
            assert_eq!(nearest(written, names), name, "{written}");
        }
    }
}
