//! `cargo xtask ci`: the checks and tests that a change must pass, the quick ones first.

use std::process::ExitCode;

use crate::checks::Background;
use crate::command::{cargo, output, run};
use crate::counts::Counts;
use crate::steps::{Outcome, Steps};
use crate::{
    boundaries, examples, features, go_programs, no_os, own_stack, packages, paths, publish, test,
};

/// Runs every check and the tests. Those that take long are compiled first, with all processors. Then they run, and the
/// checks that only compile beside them.
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
    steps.run("packages", packages::install_missing);
    // Here, and not by the check that needs it: some tests install packages, too.
    steps.run("compiler for aarch64", no_os::cross_compiler);
    steps.run("programs in Go", go_programs::install_missing);
    steps.run("tests compile", test::compile);
    let checks = Background::start();
    let mut counts = Counts::default();
    steps.run("tests", || test::step(&[], &mut counts));
    steps.run("serve on a stack", || own_stack::serve(&mut counts));
    steps.run("checks beside the tests", || checks?.end());
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

/// Needs cargo-deny, which takes longer to build than all else here: checked where it is at hand.
fn deny() -> Result<Outcome, String> {
    if output(cargo(["deny", "--version"])).is_err() {
        return Ok(Outcome::Notice(
            "left out: cargo-deny is not installed".to_owned(),
        ));
    }
    run(cargo(["deny", "check", "licenses", "bans", "sources"])).map(|()| Outcome::Done)
}
