//! C programs that use the library: the examples, and one that misuses it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use softclock_testing::require;
use tempfile::TempDir;

#[test]
fn misuse_is_refused() {
    require!("cc");
    let installed = Installed::new();
    let program = installed.compiled("tests/misuse.c", Linking::Static, &[]);
    assert_eq!(installed.run(&program), "all misuse was refused\n");
}

#[test]
fn timers_fire_in_a_loop_by_epoll() {
    require!("cc");
    let installed = Installed::new();
    for linking in [Linking::Static, Linking::Shared] {
        let program = installed.compiled("examples/epoll.c", linking, &[]);
        assert_all_arrived(&installed.run(&program));
    }
}

#[test]
fn timers_fire_in_a_loop_of_libuv() {
    require!("cc", "pkg-config");
    with_library("libuv", "examples/libuv.c", Linking::Shared, arrives);
}

#[test]
fn timers_fire_in_a_loop_of_libevent() {
    require!("cc", "pkg-config");
    with_library(
        "libevent_core",
        "examples/libevent.c",
        Linking::Shared,
        arrives,
    );
}

#[test]
fn a_send_queue_spreads_its_messages() {
    require!("cc");
    let installed = Installed::new();
    let program = installed.compiled("examples/send_queue.c", Linking::Shared, &[]);
    let output = installed.run(&program);
    let time = output.strip_prefix("50 datagrams in ").expect(&output);
    let us: u32 = time.trim_end().trim_end_matches(" us").parse().unwrap();
    // Of the 49 gaps of 480 us each.
    assert!(us >= 49 * 480, "{output}");
}

#[test]
fn programs_are_clean_under_valgrind() {
    require!("cc", "valgrind");
    let installed = Installed::new();
    for source in [
        "tests/misuse.c",
        "examples/epoll.c",
        "examples/send_queue.c",
    ] {
        let program = installed.compiled(source, Linking::Static, &["-g"]);
        is_clean(&installed, &program);
    }
}

#[test]
fn a_loop_of_libuv_is_clean_under_valgrind() {
    require!("cc", "pkg-config", "valgrind");
    with_library("libuv", "examples/libuv.c", Linking::Static, is_clean);
}

#[test]
fn a_loop_of_libevent_is_clean_under_valgrind() {
    require!("cc", "pkg-config", "valgrind");
    with_library(
        "libevent_core",
        "examples/libevent.c",
        Linking::Static,
        is_clean,
    );
}

#[test]
fn programs_are_clean_under_sanitizers() {
    require!("cc");
    let installed = Installed::new();
    let flags = [
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover",
    ];
    for source in [
        "tests/misuse.c",
        "examples/epoll.c",
        "examples/send_queue.c",
    ] {
        let program = installed.compiled(source, Linking::Static, &flags);
        installed.run(&program);
    }
}

#[test]
fn cpp_understands_the_header() {
    require!("c++");
    let installed = Installed::new();
    let mut compiler = Command::new("c++");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]);
    compiler.args(["-x", "c++"]);
    installed.output(compiler.arg(installed.path("include/softclock.h")));
}

#[test]
fn pkg_config_names_the_library() {
    require!("pkg-config");
    let installed = Installed::new();
    let flags = installed.pkg_config(&["--cflags", "--libs", "softclock"]);
    let include = format!(
        "-I{}",
        installed.path("lib/pkgconfig/../../include").display()
    );
    assert!(flags.contains(&include) && flags.contains(&"-lsoftclock".to_owned()));
    let version = installed.pkg_config(&["--modversion", "softclock"]);
    assert_eq!(version, [env!("CARGO_PKG_VERSION")]);
}

#[test]
fn the_examples_are_short() {
    for file in fs::read_dir(here("examples")).unwrap() {
        let path = file.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 40, "{}: {lines} lines", path.display());
    }
}

/// Compiles an example that needs another library, and checks it.
fn with_library(library: &str, source: &str, linking: Linking, check: fn(&Installed, &Path)) {
    let installed = Installed::new();
    let mut exists = Command::new("pkg-config");
    exists.args(["--exists", library]);
    if !exists.status().unwrap().success() {
        softclock_testing::skip!("{library} is not installed");
    }
    let flags = installed.pkg_config(&["--cflags", "--libs", library]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = installed.compiled(source, linking, &[&["-g"], &flags[..]].concat());
    check(&installed, &program);
}

fn arrives(installed: &Installed, program: &Path) {
    assert_all_arrived(&installed.run(program));
}

/// Checks that a program neither leaks nor misuses memory.
fn is_clean(installed: &Installed, program: &Path) {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
    installed.output(valgrind.arg(program));
}

/// Checks the output of an example, which ends when it has received a thousand datagrams, or some more together.
fn assert_all_arrived(output: &str) {
    let count = output
        .split_once(" datagrams")
        .map(|(count, _)| count.parse());
    assert!(matches!(count, Some(Ok(1_000..1_100))), "{output}");
}

/// The library and its header in a folder of their own.
struct Installed(TempDir);

#[derive(Clone, Copy, PartialEq)]
enum Linking {
    Static,
    Shared,
}

impl Installed {
    fn new() -> Self {
        let installed = Self(TempDir::new().unwrap());
        fs::create_dir_all(installed.path("lib/pkgconfig")).unwrap();
        fs::create_dir_all(installed.path("include")).unwrap();
        symlink(
            here("include/softclock.h"),
            installed.path("include/softclock.h"),
        )
        .unwrap();
        // As `cargo xtask c-library` does.
        let package = fs::read_to_string(here("softclock.pc")).unwrap();
        let package = package.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(installed.path("lib/pkgconfig/softclock.pc"), package).unwrap();
        symlink(
            built("libsoftclock_c.a"),
            installed.path("lib/libsoftclock.a"),
        )
        .unwrap();
        let shared = built("libsoftclock_c.so");
        symlink(&shared, installed.path(SONAME)).unwrap();
        symlink(&shared, installed.path("lib/libsoftclock.so")).unwrap();
        installed
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn compiled(&self, source: &str, linking: Linking, flags: &[&str]) -> PathBuf {
        let program = self.path("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]);
        compiler.arg(self.path("include")).arg(here(source));
        compiler.arg(concat!("-DVERSION=\"", env!("CARGO_PKG_VERSION"), "\""));
        match linking {
            Linking::Static => compiler.arg(self.path("lib/libsoftclock.a")),
            Linking::Shared => compiler.arg("-L").arg(self.path("lib")).arg("-lsoftclock"),
        };
        compiler.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
        self.output(compiler.args(flags).arg("-o").arg(&program));
        program
    }

    /// Runs a program that needs the shared library, and returns its output.
    fn run(&self, program: &Path) -> String {
        self.output(&mut Command::new(program))
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut program = Command::new("pkg-config");
        program.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"));
        let output = self.output(program.args(arguments));
        output.split_whitespace().map(str::to_owned).collect()
    }

    fn output(&self, command: &mut Command) -> String {
        command.stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", self.path("lib"));
        let output = command.output().expect("it starts");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}:\n{messages}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// Where programs look for the shared library. Each minor version before 1.0 may change the interface.
const SONAME: &str = match env!("CARGO_PKG_VERSION_MAJOR").as_bytes() {
    b"0" => concat!("lib/libsoftclock.so.0.", env!("CARGO_PKG_VERSION_MINOR")),
    _ => concat!("lib/libsoftclock.so.", env!("CARGO_PKG_VERSION_MAJOR")),
};

/// The path of a file of this crate.
fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The path of a library, which cargo has built beside these tests.
fn built(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.with_file_name(name);
    assert!(path.exists(), "cargo has built no {}", path.display());
    path
}
