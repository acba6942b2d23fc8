//! Reads files in which the kernel reports its state.

use std::fs;
use std::io;

/// The first line of a file; `None` if it is empty or cannot be read.
pub(super) fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// The number at the beginning of a file.
pub(super) fn number<N: std::str::FromStr>(path: &str) -> Option<N> {
    line(path)?.split_whitespace().next()?.parse().ok()
}

/// The kernel's text of an error, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

/// Describes the kernel, the processor model and the number of processors.
pub(super) fn system() -> String {
    let uname = rustix::system::uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    format!(
        "{} {} {}, {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy(),
        model(&cpuinfo).unwrap_or("unknown processor")
    )
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named() {
        assert_eq!(
            model("processor\t: 0\nmodel name\t: Some CPU\n"),
            Some("Some CPU")
        );
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn errors_are_words() {
        let error = io::Error::from_raw_os_error(1);
        assert_eq!(reason(&error), "operation not permitted");
        assert_eq!(reason(&io::Error::other("Why")), "Why");
    }
}
