//! Which name a misspelt one may have been.

use clap::error::{ContextKind, ContextValue};

/// The name that was meant, if one is near.
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

/// The nearest of `names` to `written`, unless all are far off. Dashes in front do not count.
fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bare = |name: &str| name.trim_start_matches('-').to_owned();
    let written = bare(written.split('=').next().unwrap_or(written));
    let near = |name: &&str| {
        let name = bare(name);
        let is_part = written.len() >= LEAST_PART && name.contains(&written);
        let most = written.chars().count() / LETTERS_PER_MISTAKE;
        is_part || distance(&written, &name) <= most
    };
    let near = names.into_iter().filter(near);
    near.min_by_key(|name| distance(&written, &bare(name)))
}

/// Letters to put in, leave out, change, or swap with their neighbour (optimal string alignment).
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

/// A name of this many letters may have one mistake, of twice as many two.
const LETTERS_PER_MISTAKE: usize = 3;

/// What is written may be part of a name if it has so many bytes.
const LEAST_PART: usize = 4;

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
        let names = ["--listen", "--threads", "--head-timeout", "--tls-key"];
        for (written, name) in [
            ("--lisen", Some("--listen")),
            ("thread", Some("--threads")),
            ("--timeout=3", Some("--head-timeout")),
            ("--tls", None),
            ("--quux", None),
            ("--port", None),
            ("--threshold", None),
        ] {
            assert_eq!(nearest(written, names), name, "{written}");
        }
    }
}
