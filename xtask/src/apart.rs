//! The packages that are workspaces of their own, and so easily forgotten: the fuzz targets, and the example with
//! str0m.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::command::{cargo, output, root, run, target_directory};
use crate::steps::Outcome;

/// Type-checks all fuzz targets, for which any compiler will do; only running them needs a nightly one.
pub(crate) fn fuzz_targets_compile() -> Result<Outcome, String> {
    with_dependencies("check", "fuzz/Cargo.toml", |check| {
        // A check links nothing. Without this its fuzzer, which is written in C++, is built first.
        check.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
    })
}

/// Runs the example with str0m, which takes seconds.
pub(crate) fn webrtc_example_runs() -> Result<Outcome, String> {
    with_dependencies("run", "examples/webrtc/Cargo.toml", |_| {})
}

/// Runs a command of cargo for the package of `manifest`, or says that its dependencies cannot be fetched. Shares the
/// build directory of the workspace, so that crates which its checks have built are not built again.
fn with_dependencies(
    command: &str,
    manifest: &str,
    configure: impl FnOnce(&mut Command),
) -> Result<Outcome, String> {
    let lock = root().join(manifest).with_extension("lock");
    use_the_versions_of_the_workspace(&lock)
        .map_err(|error| format!("{}: {error}", lock.display()))?;
    if let Err(reason) = output(cargo(["fetch", "--manifest-path", manifest])) {
        let notice = format!("left out: dependencies cannot be fetched: {reason}");
        return Ok(Outcome::Notice(notice));
    }
    let mut command = cargo([command, "--manifest-path", manifest, "--target-dir"]);
    command.arg(target_directory());
    configure(&mut command);
    run(command).map(|()| Outcome::Done)
}

fn use_the_versions_of_the_workspace(lock: &Path) -> io::Result<()> {
    if lock.exists() {
        return Ok(());
    }
    fs::copy(root().join("Cargo.lock"), lock).map(drop)
}
