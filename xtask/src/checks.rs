//! `cargo xtask checks`: the checks for which the compiler suffices. `ci` runs them beside the tests.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitCode};

use crate::command::{cargo, program, root, run};
use crate::steps::{Outcome, Steps};
use crate::{apart, no_os, publish};

/// Runs them one after the other.
pub(crate) fn task() -> ExitCode {
    let mut steps = Steps::default();
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
    steps.summary();
    steps.exit_code()
}

/// The checks in a process of the lowest priority, since tests wait for most of their time.
pub(crate) struct Background {
    process: Child,
    output: PathBuf,
}

impl Background {
    /// Starts them. They build in a directory of their own, as cargo locks it while it compiles.
    pub(crate) fn start() -> Result<Self, String> {
        let start = || -> io::Result<Self> {
            let directory = root().join("target/checks");
            fs::create_dir_all(&directory)?;
            let output = directory.join("output.txt");
            let file = File::create(&output)?;
            let mut nice = program("nice", ["-n", "19"]);
            nice.arg(std::env::current_exe()?).arg("checks");
            nice.env("CARGO_TARGET_DIR", directory);
            let process = nice.stdout(file.try_clone()?).stderr(file).spawn()?;
            Ok(Self { process, output })
        };
        start().map_err(|error| format!("cannot start the checks: {error}"))
    }

    /// Waits for their end, and prints what they printed.
    pub(crate) fn end(mut self) -> Result<Outcome, String> {
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let output = fs::read(&self.output).map_err(|error| error.to_string())?;
        println!("{}", String::from_utf8_lossy(&output));
        match status.success() {
            true => Ok(Outcome::Done),
            false => Err("one of the checks has failed: see above".to_owned()),
        }
    }
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
