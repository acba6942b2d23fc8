//! No file under version control names a directory of the machine it was written on.

use crate::boundaries::verdict;
use crate::command::root;
use crate::source::{files, text};
use crate::steps::Outcome;

/// Finds this machine's own directories and the usual places of others' homes.
pub(crate) fn absolute_paths() -> Result<Outcome, String> {
    let places = places();
    let mut offences = Vec::new();
    for file in files() {
        let Some(text) = text(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| mentions(line, place)) {
                offences.push(format!("{}:{}: {place}", file.display(), number + 1));
            }
        }
    }
    verdict("no path of a build machine", &offences)
}

fn places() -> Vec<String> {
    let mut places: Vec<String> = ["home", "Users"].map(|top| format!("/{top}/")).into();
    let own = [
        Some(root().to_owned()),
        std::env::home_dir(),
        std::env::var_os("CARGO_HOME").map(Into::into),
    ];
    for directory in own.into_iter().flatten() {
        // A short path, such as `/src`, is a word of ordinary text.
        if directory.components().count() > 2 {
            places.push(format!("{}/", directory.display()));
        }
    }
    places
}

/// Whether `line` contains `place` where a path begins, with something after it.
fn mentions(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + place.len()..].chars().next();
        let inside = |c: char| c.is_alphanumeric() || "./-_}*".contains(c);
        !before.is_some_and(inside) && after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_count() {
        let place = "/place/";
        assert!(mentions("see /place/user/file", place));
        assert!(!mentions("https://example.org/place/user", place));
        assert!(!mentions("all of /place/ and below", place));
    }
}
