//! `cargo xtask ci`: the checks and tests that a change must pass, the quick ones first.

use std::process::ExitCode;

use crate::command::{cargo, output, run};
use crate::counts::Counts;
use crate::steps::{Outcome, Steps};
use crate::{
    apart, boundaries, examples, features, go_programs, no_os, own_stack, packages, paths, publish,
    test,
};

/// Runs every check and the tests, in one target directory and with the same flags throughout, so
/// that nothing is compiled twice.
pub(crate) fn task() -> ExitCode {
    let mut steps = Steps::default();
    steps.run("format", format);
    boundaries(&mut steps);
    steps.run(
        "the command is built without experiments",
        features::experiments_stay_out,
    );
    steps.run("no path of a build machine", paths::absolute_paths);
    steps.run("licences and bans", deny);
    steps.run("crates can be packed", publish::packages);
    steps.run("clippy", clippy);
    steps.run("fuzz targets compile", apart::fuzz_targets_compile);
    steps.run("the example with str0m runs", apart::webrtc_example_runs);
    steps.run("rustdoc", rustdoc);
    steps.run("core, wire and net: no operating system", no_os::without_os);
    steps.run("type check for aarch64", no_os::other_processor);
    steps.run(
        "libraries with the Rust that they state",
        publish::lowest_rust,
    );
    steps.run("packages", packages::install_missing);
    steps.run("programs in Go", go_programs::install_missing);
    let mut counts = Counts::default();
    steps.run("tests", || test::step(&[], &mut counts));
    steps.run("serve on a stack", || own_stack::serve(&mut counts));
    steps.summary();
    counts.print();
    steps.exit_code()
}

/// The boundaries alone, which take seconds.
pub(crate) fn boundaries_task() -> ExitCode {
    let mut steps = Steps::default();
    boundaries(&mut steps);
    steps.summary();
    steps.exit_code()
}

fn boundaries(steps: &mut Steps) {
    steps.run(
        "unsafe and libc only where allowed",
        boundaries::unsafe_code,
    );
    steps.run(
        "dependencies point downwards",
        boundaries::crate_dependencies,
    );
    steps.run("imports point downwards", boundaries::module_layers);
    steps.run("no circle of many files", boundaries::import_circles);
    steps.run("public modules have examples", examples::in_docs);
}

fn format() -> Result<Outcome, String> {
    run(cargo(["fmt", "--all", "--check"])).map(|()| Outcome::Done)
}

fn clippy() -> Result<Outcome, String> {
    let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
    let mut command = cargo(everything);
    // Not RUSTFLAGS, which would rebuild every dependency.
    command.args(["--", "--deny", "warnings"]);
    run(command).map(|()| Outcome::Done)
}

/// Libraries only: the command and the library share the name `softclock`, and so would their pages.
fn rustdoc() -> Result<Outcome, String> {
    let mut command = cargo(["doc", "--workspace", "--lib", "--all-features", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    run(command).map(|()| Outcome::Done)
}

/// Needs cargo-deny, which takes longer to build than all else here: checked where it is at hand.
fn deny() -> Result<Outcome, String> {
    if output(cargo(["deny", "--version"])).is_err() {
        return Ok(Outcome::Notice(
            "left out: cargo-deny is not installed".to_owned(),
        ));
    }
    run(cargo(["deny", "check", "licenses", "bans", "sources"])).map(|()| Outcome::Done)
}
