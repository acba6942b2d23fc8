//! `cargo xtask dist`: the manual and the completions, which the program writes about itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::command::{cargo, program, root, run, target_directory};

/// Builds the release and writes both to `target/dist`, where `cargo deb` looks for them too.
pub(crate) fn task() -> ExitCode {
    let done = release().and_then(|binary| {
        let directory = root().join("target/dist");
        generate(&binary, &directory)?;
        println!("{}", directory.display());
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the release of the command and tells where it is.
pub(crate) fn release() -> Result<PathBuf, String> {
    run(cargo(["build", "--release", "--package", "softclock-cli"]))?;
    Ok(built("release"))
}

/// Where a profile's command is once it is built.
pub(crate) fn built(profile: &str) -> PathBuf {
    target_directory().join(profile).join("softclock")
}

/// Runs `binary` to write `man` and `completions` below `directory`, and replaces earlier ones.
pub(crate) fn generate(binary: &Path, directory: &Path) -> Result<(), String> {
    for what in ["man", "completions"] {
        let place = directory.join(what);
        // An older version may have written files with other names.
        let _ = fs::remove_dir_all(&place);
        let mut write = program(binary, ["generate", what]);
        write.arg(&place);
        run(write)?;
    }
    Ok(())
}
