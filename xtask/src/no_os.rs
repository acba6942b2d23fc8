//! The proof that some crates need no operating system, and the check for another processor.

use std::path::Path;
use std::process::Command;

use crate::boundaries::declares_no_std;
use crate::command::{cargo, output, program, root, run};
use crate::packages;
use crate::steps::Outcome;

/// The crates that need no operating system.
const WITHOUT_OS: [&str; 3] = ["softclock-core", "softclock-wire", "softclock-net"];

const BARE_METAL: &str = "x86_64-unknown-none";
const CROSS_COMPILER: &str = "aarch64-linux-gnu-gcc";
const CROSS_PACKAGES: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// The crates that depend on a crate with C code.
const WITH_C: [&str; 3] = ["softclock-http", "softclock-quinn", "softclock-cli"];

/// Experiments run where they are built, and their peers take a while to check.
const ON_THE_HOST: &str = "softclock-bench";

const OTHER_PROCESSOR: &str = "aarch64-unknown-linux-gnu";

/// Builds these crates for a target that has no standard library; where that cannot be had, proves on
/// the host that they do not use one.
pub(crate) fn without_os() -> Result<Outcome, String> {
    for name in WITHOUT_OS {
        declares_no_std(name)?;
    }
    if have_target(BARE_METAL) {
        let mut build = build_command();
        build.args(["--target", BARE_METAL]);
        run(build)?;
        return Ok(Outcome::Notice(format!("built for {BARE_METAL}")));
    }
    link_with_own_panic_handler()?;
    let proof = "linked on the host beside a panic handler, which excludes std";
    Ok(Outcome::Notice(format!(
        "{BARE_METAL} cannot be had; {proof}"
    )))
}

/// Installs the C compiler for the other processor, if that is possible.
pub(crate) fn cross_compiler() -> Result<Outcome, String> {
    Ok(
        match packages::have_or_install(CROSS_COMPILER, CROSS_PACKAGES) {
            true => Outcome::Done,
            false => Outcome::Notice(format!("{CROSS_COMPILER} cannot be had")),
        },
    )
}

/// Type-checks the libraries and programs that users build for the other processor, as far as its C compiler is there
/// and if its standard library can be had.
pub(crate) fn other_processor() -> Result<Outcome, String> {
    if !have_target(OTHER_PROCESSOR) {
        let notice = format!("left out: {OTHER_PROCESSOR} cannot be had");
        return Ok(Outcome::Notice(notice));
    }
    let check = ["check", "--workspace", "--all-features"];
    let mut command = cargo(check);
    command.args(["--target", OTHER_PROCESSOR, "--exclude", ON_THE_HOST]);
    if packages::have_or_install(CROSS_COMPILER, CROSS_PACKAGES) {
        return run(command).map(|()| Outcome::Done);
    }
    for name in WITH_C {
        command.args(["--exclude", name]);
    }
    run(command)?;
    let left_out = WITH_C.join(", ");
    let notice = format!("without {CROSS_COMPILER}, so not {left_out}: TLS compiles C");
    Ok(Outcome::Notice(notice))
}

/// Whether the target's library is there, after an attempt to install it.
fn have_target(target: &str) -> bool {
    is_installed(target) || {
        let mut add = program("rustup", ["target", "add", target]);
        // Offline is no fault to trace.
        add.env("RUST_BACKTRACE", "0");
        let added = run(add);
        added.is_ok() && is_installed(target)
    }
}

fn is_installed(target: &str) -> bool {
    let directory = output(program(
        "rustc",
        ["--print", "target-libdir", "--target", target],
    ));
    directory.is_ok_and(|directory| Path::new(directory.trim()).is_dir())
}

/// Builds all of these crates, for the host or for the target that is added.
fn build_command() -> Command {
    let mut command = cargo(["build"]);
    for name in WITHOUT_OS {
        command.args(["--package", name]);
    }
    command
}

/// Two panic handlers cannot meet in one program, and std has one: if a crate with its own compiles
/// against a library, nothing in or below that library uses std.
fn link_with_own_panic_handler() -> Result<(), String> {
    let directory = root().join("target/no-os");
    let mut build = build_command();
    build.arg("--target-dir").arg(&directory);
    run(build)?;
    let source = directory.join("proof.rs");
    std::fs::write(&source, PROOF)
        .map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let built = directory.join("debug");
    for name in WITHOUT_OS {
        let library = built.join(format!("lib{}.rlib", name.replace('-', "_")));
        let mut compile = program("rustc", ["--edition=2024", "--crate-type=rlib"]);
        compile
            .arg("--extern")
            .arg(format!("library={}", library.display()))
            .arg("-L")
            .arg(built.join("deps"))
            .arg("--out-dir")
            .arg(&directory)
            .arg(&source);
        run(compile)?;
    }
    Ok(())
}

const PROOF: &str = "\
#![no_std]
pub use library::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";
