//! The fuzz targets, which are a workspace of their own and so easily forgotten.

use std::fs;
use std::io;

use crate::command::{cargo, output, root, run};
use crate::steps::Outcome;

/// Type-checks all fuzz targets, for which any compiler will do; only running them needs a nightly one.
pub(crate) fn targets_compile() -> Result<Outcome, String> {
    use_the_versions_of_the_workspace().map_err(|error| format!("fuzz/Cargo.lock: {error}"))?;
    if let Err(reason) = output(cargo(["fetch", "--manifest-path", MANIFEST])) {
        let notice = format!("left out: dependencies cannot be had: {reason}");
        return Ok(Outcome::Notice(notice));
    }
    let mut check = cargo(["check", "--manifest-path", MANIFEST, "--target-dir"]);
    check.arg(root().join("target"));
    // A check links nothing. Without this its fuzzer, which is written in C++, is built first.
    check.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
    run(check).map(|()| Outcome::Done)
}

/// Shares the build directory of the workspace, so that crates which its checks have built are not built again.
fn use_the_versions_of_the_workspace() -> io::Result<()> {
    let lock = root().join("fuzz/Cargo.lock");
    if lock.exists() {
        return Ok(());
    }
    fs::copy(root().join("Cargo.lock"), lock).map(drop)
}

const MANIFEST: &str = "fuzz/Cargo.toml";
