//! `cargo xtask c-library`: the libraries for C, with their header, manual page, examples and file for pkg-config.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::command::{cargo, root, run};
use crate::dist;

/// Builds the release and installs it below the directory of `--prefix`, or below target/c-library.
pub(crate) fn task(arguments: &[String]) -> ExitCode {
    let prefix = match arguments {
        [] => Ok(root().join("target/c-library")),
        [option, path] if option == "--prefix" => Ok(PathBuf::from(path)),
        _ => Err("cargo xtask c-library [--prefix DIRECTORY]".to_owned()),
    };
    match prefix.and_then(|prefix| install(&prefix).map(|()| prefix)) {
        Ok(prefix) => {
            println!("{}", prefix.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the release of both libraries without the Rust library: beside that, cargo would leave out the optimization
/// at link time, which makes the static library a seventh in size and calls a few percent cheaper.
pub(crate) fn build() -> Result<(), String> {
    let mut build = cargo(["rustc", "--release", "--package", "softclock-c"]);
    build.args(["--crate-type", "staticlib,cdylib"]);
    run(build)
}

fn install(prefix: &Path) -> Result<(), String> {
    build()?;
    let program = dist::built("release");
    let built = program.parent().unwrap_or(root());
    let source = root().join("crates/softclock-c");
    let files = [
        (built.join("libsoftclock_c.a"), "lib/libsoftclock.a"),
        (built.join("libsoftclock_c.so"), VERSIONED),
        (source.join("softclock.pc"), "lib/pkgconfig/softclock.pc"),
        (source.join("include/softclock.h"), "include/softclock.h"),
        (source.join("man/softclock.3"), "share/man/man3/softclock.3"),
    ];
    let examples = ["epoll.c", "libevent.c", "libuv.c", "send_queue.c"];
    let examples = examples.map(|name| {
        let from = source.join("examples").join(name);
        (from, format!("share/doc/softclock/examples/{name}"))
    });
    let files = files.map(|(from, to)| (from, to.to_owned()));
    for (from, to) in files.into_iter().chain(examples) {
        let to = prefix.join(to);
        copy(&from, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    for name in ["lib/pkgconfig/softclock.pc", "share/man/man3/softclock.3"] {
        let path = prefix.join(name);
        set_version(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for name in [SONAME, "lib/libsoftclock.so"] {
        let link = prefix.join(name);
        // An earlier one.
        let _ = fs::remove_file(&link);
        let file = VERSIONED.trim_start_matches("lib/");
        symlink(file, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

/// Replaces the placeholder `@VERSION@` in a file.
fn set_version(path: &Path) -> std::io::Result<()> {
    let text = fs::read_to_string(path)?;
    fs::write(path, text.replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

/// The shared library. All packages of the workspace have the same version.
const VERSIONED: &str = concat!("lib/libsoftclock.so.", env!("CARGO_PKG_VERSION"));

/// The name that the shared library has in programs. Each minor version before 1.0 may change the interface.
const SONAME: &str = match env!("CARGO_PKG_VERSION_MAJOR").as_bytes() {
    b"0" => concat!("lib/libsoftclock.so.0.", env!("CARGO_PKG_VERSION_MINOR")),
    _ => concat!("lib/libsoftclock.so.", env!("CARGO_PKG_VERSION_MAJOR")),
};
