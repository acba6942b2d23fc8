//! The scripts of this crate.

mod common;

use std::path::Path;

use softclock_script::Verdict;

use common::{run_file, scripts};

#[test]
fn all_scripts_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let files = scripts(&folder);
    assert!(!files.is_empty());
    let verdicts = files.iter().map(|file| (file, run_file(file)));
    let others: Vec<_> = verdicts
        .filter(|(_, verdict)| *verdict != Verdict::Passed)
        .map(|(file, verdict)| format!("{}: {verdict}", file.display()))
        .collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}
