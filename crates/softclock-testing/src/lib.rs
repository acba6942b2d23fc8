//! Helpers shared by softclock's tests. A dev-dependency, except in softclock-bench, whose experiments use [`lab`]
//! and [`KilledOnDrop`].
//!
//! A test that needs a program, privilege or kernel feature that the machine lacks must not pass silently. It reports
//! its name and the reason with [`skip!`] or [`require!`]. `cargo xtask test` lists and counts skipped tests, and fails
//! if there are any and the environment variable `CI` is set. A test that leaves out only a part of its work reports
//! that part with [`in_part!`], which is listed and does not fail.
//!
//! ```
//! fn test_that_needs_curl() {
//!     softclock_testing::require!("curl");
//!     // The rest of the test runs only where curl is installed.
//! }
//! # test_that_needs_curl();
//! ```
#![forbid(unsafe_code)]

mod child;
mod example;
mod files;
mod iperf;
pub mod lab;
mod load;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub use child::KilledOnDrop;
pub use example::example;
pub use files::{directory, noise};
pub use iperf::iperf3;
pub use load::beside;

/// The environment variable with the path of the log of skipped and partial tests. Each appends a line. The log exists
/// because libtest hides the output of tests that pass.
pub const SKIP_LOG: &str = "SOFTCLOCK_SKIP_LOG";

/// Reports the current test as skipped and returns from it: `skip!("needs root")`, with arguments as for `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::skip($crate::enclosing(::std::any::type_name_of_val(&here)), &::std::format!($($reason)+));
        return;
    }};
}

/// Skips the current test unless all of these programs are installed: `require!("curl", "wrk")`.
#[macro_export]
macro_rules! require {
    ($($program:expr),+ $(,)?) => {
        $(if !$crate::have($program) {
            $crate::skip!("{} is not installed", $program);
        })+
    };
}

/// Evaluates to a new [`Namespace`](lab::Namespace) in which the current test may create TAP devices, or skips the
/// test.
#[macro_export]
macro_rules! namespace_for_taps {
    () => {{
        $crate::require!("ip", "unshare", "nsenter");
        if !::std::path::Path::new("/dev/net/tun").exists() {
            $crate::skip!("there are no TAP devices here");
        }
        match $crate::lab::Namespace::new() {
            Ok(namespace) => namespace,
            Err(reason) => $crate::skip!("{reason}"),
        }
    }};
}

/// Reports why the current test leaves a part out: `in_part!("no IPv6")`, with arguments as for `format!`. The test
/// continues.
#[macro_export]
macro_rules! in_part {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::in_part($crate::enclosing(::std::any::type_name_of_val(&here)), &::std::format!($($reason)+));
    }};
}

/// Reports that `test` did not run because of `reason`. The caller returns from the test; use [`skip!`].
pub fn skip(test: &str, reason: &str) {
    report("skipped", test, reason);
}

/// Reports that `test` left a part out because of `reason`. Use [`in_part!`].
pub fn in_part(test: &str, reason: &str) {
    report("in part", test, reason);
}

fn report(what: &str, test: &str, reason: &str) {
    let line = format!("{what}: {test}: {}\n", reason.replace('\n', " "));
    eprint!("{line}");
    if let Some(log) = std::env::var_os(SKIP_LOG) {
        append(Path::new(&log), &line);
    }
}

/// Whether `program` is installed.
pub fn have(program: &str) -> bool {
    find(program).is_some()
}

/// The peak resident memory of a process so far, in KiB.
///
/// # Errors
/// No process has this id.
pub fn peak_resident_kb(pid: u32) -> io::Result<u64> {
    memory_kb(pid, "VmHWM:")
}

/// The resident memory of a process, in KiB.
///
/// # Errors
/// No process has this id.
pub fn resident_kb(pid: u32) -> io::Result<u64> {
    memory_kb(pid, "VmRSS:")
}

fn memory_kb(pid: u32, field: &str) -> io::Result<u64> {
    number_in_status(format!("/proc/{pid}").as_ref(), field)
}

/// The number of times that a thread has waited in the kernel so far (`voluntary_ctxt_switches` of proc(5)).
/// `directory` is that of the thread, such as `/proc/thread-self`; `/proc/PID` is the main thread of a process.
///
/// # Errors
/// There is no such thread.
pub fn waits_of_thread(directory: impl AsRef<Path>) -> io::Result<u64> {
    number_in_status(directory.as_ref(), "voluntary_ctxt_switches:")
}

/// The number of times that the threads of a process have waited so far, summed over those that run.
///
/// # Errors
/// No process has this id, or a thread has ended meanwhile.
pub fn waits_of_process(pid: u32) -> io::Result<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    threads.map(|thread| waits_of_thread(thread?.path())).sum()
}

fn number_in_status(directory: &Path, field: &str) -> io::Result<u64> {
    let status = fs::read_to_string(directory.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The path of `program`: searches `PATH`, then `/usr/sbin` and `/sbin`, which are not in an ordinary user's `PATH` on
/// Debian.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(program, &path)
}

fn find_in(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The path of the function that encloses the function `inner`, without the closures of async blocks.
#[doc(hidden)]
pub fn enclosing(inner: &str) -> &str {
    let mut name = inner.rsplit_once("::").map_or(inner, |(outer, _)| outer);
    while let Some(outer) = name.strip_suffix("::{{closure}}") {
        name = outer;
    }
    name
}

/// Appends a line by one `write` in append mode, so that the lines of concurrent tests do not mix.
fn append(log: &Path, line: &str) {
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot record a skipped test in {}: {error}", log.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_programs() {
        assert!(have("sh"));
        assert!(!have("no-such-program-anywhere"));
    }

    #[test]
    fn directories_are_not_programs() {
        assert_eq!(find_in("bin", OsStr::new("/usr")), None);
    }

    #[test]
    fn the_macro_knows_the_test() {
        fn here() {}
        let name = enclosing(std::any::type_name_of_val(&here));
        assert_eq!(name, "softclock_testing::tests::the_macro_knows_the_test");
        assert_eq!(enclosing("a::b::{{closure}}::{{closure}}::here"), "a::b");
    }

    #[test]
    fn require_lets_the_test_go_on() {
        let ran = std::cell::Cell::new(false);
        let test = || {
            require!("sh");
            ran.set(true);
        };
        test();
        assert!(ran.get());
    }

    #[test]
    fn memory_of_a_process() {
        let own = std::process::id();
        let now = resident_kb(own).unwrap();
        assert!(now > 0 && peak_resident_kb(own).unwrap() >= now);
        assert!(peak_resident_kb(0).is_err());
    }

    #[test]
    fn waits_are_counted() {
        let waits = || waits_of_thread("/proc/thread-self").unwrap();
        let before = waits();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = waits();
        assert!(after > before);
        assert!(waits_of_process(std::process::id()).unwrap() >= after);
        assert!(waits_of_process(0).is_err());
    }

    #[test]
    fn skips_are_appended() {
        let log = std::env::temp_dir().join(format!("softclock-testing-{}", std::process::id()));
        append(&log, "skipped: a: b\n");
        append(&log, "skipped: c: d\n");
        let text = std::fs::read_to_string(&log).expect("readable");
        std::fs::remove_file(&log).expect("removable");
        assert_eq!(text, "skipped: a: b\nskipped: c: d\n");
    }
}
