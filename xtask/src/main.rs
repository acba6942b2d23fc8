//! The project's entry points: `cargo xtask` names them.
#![forbid(unsafe_code)]

mod apart;
mod boundaries;
mod c_library;
mod checks;
mod ci;
mod command;
mod counts;
mod deb;
mod dist;
mod examples;
mod features;
mod go_programs;
mod imports;
mod instructions;
mod no_os;
mod own_stack;
mod packages;
mod paths;
mod publish;
mod source;
mod steps;
mod test;

use std::process::ExitCode;

use command::{cargo, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    };
    match task.as_str() {
        "test" => test::task(rest),
        "test-stack" if rest.is_empty() => own_stack::task(),
        "test-mechanisms" if rest.is_empty() => test::mechanisms_task(),
        "ci" if rest.is_empty() => ci::task(),
        "checks" if rest.is_empty() => checks::task(),
        "boundaries" if rest.is_empty() => ci::boundaries_task(),
        "bench" => bench(rest),
        "instructions" if !rest.is_empty() => instructions::task(rest),
        "publish-check" if rest.is_empty() => publish::task(),
        "dist" if rest.is_empty() => dist::task(),
        "deb" => deb::task(rest),
        "c-library" => c_library::task(rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("xtask: cannot do '{}'\n\n{HELP}", arguments.join(" "));
            ExitCode::from(2)
        }
    }
}

/// Passes its arguments on to the measuring program, in release; `run` may be left out.
fn bench(arguments: &[String]) -> ExitCode {
    // Some experiments use the command and the library for C, which they look for beside their own program.
    let command = ["build", "--release", "--package", "softclock-cli"];
    if let Err(reason) = run(cargo(command)).and_then(|()| c_library::build()) {
        eprintln!("xtask: {reason}");
        return ExitCode::FAILURE;
    }
    let mut command = cargo(["run", "--release", "--package", "softclock-bench", "--"]);
    if let Ok(here) = std::env::current_dir() {
        // Files named among the arguments are relative to the user's directory.
        command.current_dir(here);
    }
    match arguments.first().map(String::as_str) {
        None => command.arg("list"),
        Some("list" | "run" | "report" | "pages" | "load" | "help") => command.args(arguments),
        Some(option) if option.starts_with('-') => command.args(arguments),
        Some(_) => command.arg("run").args(arguments),
    };
    match command.status() {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code.clamp(0, 255) as u8)),
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
cargo xtask test [ARGUMENTS]  Installs packages for the tests (as root on Debian), runs all tests
                              and prints the counts. Arguments go to `cargo test`.
cargo xtask test-stack        Runs the suites of `serve` and `proxy`, the connections at random and
                              the sockets on network stacks of their own (as root).
cargo xtask test-mechanisms   Runs the tests of the runtime, of `serve` and of `proxy` by io_uring,
                              poll and select (`test` runs those of the runtime by each).
cargo xtask ci                Runs all checks and tests that a change must pass. Installs the same
                              packages, and a C compiler for aarch64.
cargo xtask checks            Runs only the checks that compile: clippy, rustdoc, other targets,
                              the fuzz targets, the oldest Rust.
cargo xtask boundaries        Runs only the checks of dependencies, which take seconds.
cargo xtask bench [NAME…]     Lists the experiments, or runs those named, in release;
                              `cargo xtask bench run --help` lists the options.
cargo xtask instructions PROGRAM…
                              Counts the instructions of a request to `serve` and `proxy` of each
                              softclock program, under valgrind, to compare versions.
cargo xtask publish-check     Builds every crate from its package, the libraries with the oldest
                              Rust that they allow, and compares their interface with the first
                              release (by cargo-semver-checks).
cargo xtask dist              Builds the release, and its manual and completions in target/dist.
cargo xtask deb [--binary PATH]
                              Builds a Debian package in target/debian, of the release or PATH.
cargo xtask c-library [--prefix DIRECTORY]
                              Installs the library for C, its header, manual page, examples and
                              file for pkg-config below DIRECTORY, by default target/c-library.

With CI set in the environment a test that cannot run here counts as a failure. Up to three tests
that fail beside others are run again alone, and are reported as unstable if they pass then. Twice
as many tests run at a time as there are processors, unless RUST_TEST_THREADS is set.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_beside_the_command_that_packages_are_installed_as_root() {
        for text in [include_str!("../../README.md"), HELP] {
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("cargo xtask test"));
            assert!(line.is_some_and(|line| line.contains("root")), "{line:?}");
        }
    }
}
