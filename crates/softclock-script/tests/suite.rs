//! FreeBSD's test suite of TCP, where its folder is beside the project: `SOFTCLOCK_TCP_TESTSUITE` names another place.

use std::path::{Path, PathBuf};

use softclock_script::syntax::{Reason, Script};

/// The folder of the suite, if it is there.
fn suite() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("SOFTCLOCK_TCP_TESTSUITE") {
        return Some(folder.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here
        .ancestors()
        .map(|folder| folder.join("shared/tcp-testsuite"));
    folders.find(|folder| folder.is_dir())
}

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        match entry.is_dir() {
            true => scripts(&entry, found),
            false => found.extend(
                Some(entry).filter(|file| file.extension().is_some_and(|end| end == "pkt")),
            ),
        }
    }
}

#[test]
fn all_scripts_are_in_the_language() {
    let Some(folder) = suite() else {
        eprintln!("skipped: the folder tcp-testsuite is absent");
        return;
    };
    let mut files = Vec::new();
    scripts(&folder, &mut files);
    let mut unsupported = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for defined in [["STANDARD"], ["FreeBSD"]] {
            match Script::parse(&text, &defined) {
                Ok(script) => assert!(!script.events.is_empty(), "{}", file.display()),
                Err(error) if matches!(error.reason, Reason::Unsupported(_)) => unsupported += 1,
                Err(error) => panic!("{}:{error}", file.display()),
            }
        }
    }
    assert!(
        unsupported * 10 <= files.len(),
        "{unsupported} scripts are unsupported"
    );
}
