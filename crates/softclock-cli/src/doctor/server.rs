//! Checks the system calls that `softclock serve` needs, and the installation of the package.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;

use softclock_linux::{file, probe};

use super::capabilities::{self, Capability};
use super::check::Check;
use super::limits;
use super::proc::{number, reason};

pub(super) fn checks() -> Vec<Check> {
    vec![
        opening(),
        reading(),
        tcp(),
        ipv6(),
        limits::descriptors(),
        low_ports(
            capabilities::effective(Capability::NetBindService),
            number("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or(1024),
        ),
        somaxconn(number("/proc/sys/net/core/somaxconn")),
        overcommit(number("/proc/sys/vm/overcommit_memory")),
    ]
}

fn opening() -> Check {
    const NAME: &str = "openat2";
    match file::open_root(Path::new("/")) {
        Ok(_) => Check::ok(NAME, "opens files beneath a root, from caches if possible"),
        Err(error) => Check::missing(NAME, error.to_string()),
    }
    .needed()
    .advice("a kernel of 5.12 or later; in a container, a seccomp profile that allows openat2")
}

/// Tests with the executable, which is on a disk; a file of procfs would not support it.
fn reading() -> Check {
    const NAME: &str = "preadv2 RWF_NOWAIT";
    let result = File::open("/proc/self/exe").and_then(probe::cached_reads);
    match result {
        Ok(()) => Check::ok(NAME, "reads files without waiting for the disk"),
        Err(error) => Check::note(
            NAME,
            format!("each read goes to a helper thread: {}", reason(&error)),
        ),
    }
    .advice("keep the served files on ext4, XFS, btrfs or tmpfs")
}

fn tcp() -> Check {
    let listened = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop);
    Check::probed("TCP", listened, "listens on 127.0.0.1", "cannot listen")
        .needed()
        .advice("ip link set lo up; in a sandbox, allow AF_INET")
}

fn ipv6() -> Check {
    let listened = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).map(drop);
    Check::probed("IPv6", listened, "listens on [::1]", "cannot listen")
        .optional()
        .advice("sysctl -w net.ipv6.conf.all.disable_ipv6=0, if you need it")
}

fn low_ports(capable: bool, first_free: u32) -> Check {
    const NAME: &str = "ports below 1024";
    if capable {
        Check::ok(NAME, "with CAP_NET_BIND_SERVICE")
    } else if first_free <= 80 {
        Check::ok(NAME, format!("allowed from {first_free} on"))
    } else {
        Check::note(NAME, format!("not allowed for this user: only {first_free} and above")).advice(
            "setcap cap_net_bind_service=+ep on the program, sysctl -w net.ipv4.ip_unprivileged_port_start=80, or the unit",
        )
    }
}

fn somaxconn(limit: Option<u32>) -> Check {
    const NAME: &str = "somaxconn";
    match limit {
        None => Check::note(NAME, "unknown"),
        Some(limit @ ..1024) => Check::note(
            NAME,
            format!("only {limit} connections may wait to be accepted: bursts are refused"),
        )
        .advice("sysctl -w net.core.somaxconn=4096"),
        Some(limit) => Check::ok(NAME, format!("{limit} connections may wait to be accepted")),
    }
}

fn overcommit(mode: Option<u32>) -> Check {
    const NAME: &str = "memory overcommit";
    match mode {
        Some(0) => Check::ok(NAME, "heuristic (0)"),
        Some(1) => Check::ok(NAME, "always (1)"),
        Some(2) => Check::note(NAME, "never (2): stacks of helper threads count in full")
            .advice("sysctl -w vm.overcommit_memory=0, unless this is intended"),
        _ => Check::note(NAME, "unknown"),
    }
}

/// Checks whether the files of the package are installed in the usual places.
pub(super) fn packaging() -> Vec<Check> {
    let systemd = match Path::new("/run/systemd/system").is_dir() {
        true => Check::ok("systemd", "is running"),
        false => Check::note(
            "systemd",
            "is not running here: start the server by other means",
        ),
    };
    vec![
        systemd,
        installed("unit", &UNITS),
        installed("manual", &MANUALS),
        program(std::env::current_exe()),
    ]
}

fn installed(name: &'static str, places: &[&str]) -> Check {
    match places.iter().find(|place| Path::new(place).is_file()) {
        Some(place) => Check::ok(name, *place),
        None => Check::note(name, "not installed"),
    }
    .advice("cargo xtask deb builds a package that has it")
}

fn program(path: io::Result<std::path::PathBuf>) -> Check {
    match path {
        Ok(path) => Check::ok("program", path.display().to_string()),
        Err(error) => Check::note("program", format!("unknown: {}", reason(&error))),
    }
}

const UNITS: [&str; 3] = [
    "/etc/systemd/system/softclock.service",
    "/usr/lib/systemd/system/softclock.service",
    "/lib/systemd/system/softclock.service",
];

const MANUALS: [&str; 3] = [
    "/usr/share/man/man1/softclock.1.gz",
    "/usr/local/share/man/man1/softclock.1.gz",
    "/usr/local/share/man/man1/softclock.1",
];

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn low_ports_come_by_capability_or_setting() {
        assert_eq!(low_ports(true, 1024).status, Status::Ok);
        assert_eq!(low_ports(false, 0).status, Status::Ok);
        let refused = low_ports(false, 1024);
        assert!(refused.advice.unwrap().contains("setcap"));
    }

    #[test]
    fn settings_that_hurt_are_noted() {
        assert_eq!(somaxconn(Some(128)).status, Status::Note);
        assert_eq!(somaxconn(Some(4096)).status, Status::Ok);
        assert_eq!(overcommit(Some(2)).status, Status::Note);
        assert_eq!(overcommit(None).found, "unknown");
    }

    #[test]
    fn what_serve_needs_is_marked() {
        let checks = checks();
        let needed = checks.iter().filter(|check| check.needed);
        let names: Vec<_> = needed.map(|check| check.name).collect();
        assert_eq!(names, ["openat2", "TCP", "open descriptors"]);
    }
}
