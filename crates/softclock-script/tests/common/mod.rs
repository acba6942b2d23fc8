//! Finding and running scripts.

use std::path::{Path, PathBuf};

use softclock_script::Verdict;
use softclock_script::run::run;
use softclock_script::stack_host::StackHost;

/// All scripts below a folder, in the order of their names.
pub(crate) fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.extend(
                    Some(path).filter(|file| file.extension().is_some_and(|end| end == "pkt")),
                ),
            }
        }
    }
    found.sort();
    found
}

/// Runs a script of a file against softclock's stack.
pub(crate) fn run_file(file: &Path) -> Verdict {
    let text = std::fs::read_to_string(file).unwrap();
    run(&text, &["STANDARD"], StackHost::new)
}
