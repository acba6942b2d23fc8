//! The checks of a release on a registry: packages build, the stated Rust suffices, the version allows the interface.

use std::process::ExitCode;

use crate::command::{cargo, output, program, run};
use crate::steps::{Outcome, Steps};

/// All checks of a release. They take minutes, as each package is built by itself.
pub(crate) fn task() -> ExitCode {
    let mut steps = Steps::default();
    steps.run("packages build by themselves", || publish(&[]));
    steps.run("libraries with the Rust that they state", lowest_rust);
    steps.run("the interface of the libraries", interface);
    steps.summary();
    steps.exit_code()
}

/// Packs every crate that is to be published, without building it from its package.
pub(crate) fn packages() -> Result<Outcome, String> {
    publish(&["--no-verify"])
}

fn publish(arguments: &[&str]) -> Result<Outcome, String> {
    // A dry run needs no account. Of a tree with changes it packs these, too.
    let mut command = cargo([
        "publish",
        "--workspace",
        "--dry-run",
        "--allow-dirty",
        "--quiet",
    ]);
    command.args(arguments);
    run(command).map(|()| Outcome::Done)
}

/// Type-checks the libraries by the compiler that they state, installed if that is possible.
pub(crate) fn lowest_rust() -> Result<Outcome, String> {
    let version = stated_rust()?;
    if !is_installed(&version) {
        let install = ["toolchain", "install", &version, "--profile", "minimal"];
        let mut install = program("rustup", install);
        install.env("RUSTUP_MAX_RETRIES", "1");
        if run(install).is_err() || !is_installed(&version) {
            return Ok(Outcome::Notice(format!(
                "left out: Rust {version} cannot be had; clippy has looked for newer parts of std"
            )));
        }
    }
    // rustup's variable chooses the compiler; cargo's own, which names the one that runs this task, would win.
    let mut check = program("cargo", ["check", "--all-features"]);
    check.env("RUSTUP_TOOLCHAIN", &version).env_remove("CARGO");
    check.env_remove("RUSTC");
    // Another compiler would build everything in the usual directory again.
    check.args(["--target-dir", "target/lowest-rust"]);
    for name in LIBRARIES {
        check.args(["--package", name]);
    }
    run(check)?;
    Ok(Outcome::Notice(format!("Rust {version}")))
}

/// The `rust-version` that all libraries state.
fn stated_rust() -> Result<String, String> {
    let metadata = output(cargo(["metadata", "--format-version", "1", "--no-deps"]))?;
    let stated = LIBRARIES.map(|name| rust_version(&metadata, name));
    match &stated {
        [Some(first), rest @ ..] if rest.iter().all(|other| other.as_ref() == Some(first)) => {
            Ok(first.clone())
        }
        _ => Err(format!(
            "these must state the same rust-version: {}; they state {stated:?}",
            LIBRARIES.join(", ")
        )),
    }
}

/// Finds the `rust_version` of a package in cargo's metadata: in one line of JSON, the first after its name.
fn rust_version(metadata: &str, name: &str) -> Option<String> {
    let (_, package) = metadata.split_once(&format!("{{\"name\":\"{name}\",\"version\""))?;
    let (_, version) = package.split_once("\"rust_version\":\"")?;
    Some(version.split('"').next()?.to_owned())
}

fn is_installed(version: &str) -> bool {
    output(program("rustup", ["run", version, "rustc", "--version"])).is_ok()
}

/// Compares the interface of the libraries with that of the first release, by cargo-semver-checks.
fn interface() -> Result<Outcome, String> {
    let tags = output(program(
        "git",
        ["tag", "--list", "v*", "--sort", "creatordate"],
    ))?;
    let Some(first) = tags.lines().next() else {
        return Ok(Outcome::Notice(
            "left out: there is no release to compare with yet (a tag v…)".to_owned(),
        ));
    };
    if output(cargo(["semver-checks", "--version"])).is_err() {
        return Err(
            "cargo-semver-checks is not installed: cargo install cargo-semver-checks".to_owned(),
        );
    }
    let mut command = cargo(["semver-checks", "--baseline-rev", first]);
    for name in LIBRARIES {
        command.args(["--package", name]);
    }
    run(command).map(|()| Outcome::Done)
}

/// The libraries that other programs use, and those below them.
const LIBRARIES: [&str; 8] = [
    "softclock-core",
    "softclock-wire",
    "softclock-linux",
    "softclock-net",
    "softclock",
    "softclock-tokio",
    "softclock-quinn",
    "softclock-c",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_of_each_package_is_found() {
        let metadata = r#"{"packages":[{"name":"a","version":"1","rust_version":"1.90"},{"name":"a-b","version":"2","rust_version":"1.91"}]}"#;
        assert_eq!(rust_version(metadata, "a").as_deref(), Some("1.90"));
        assert_eq!(rust_version(metadata, "a-b").as_deref(), Some("1.91"));
        assert_eq!(rust_version(metadata, "b"), None);
    }
}
