//! The Debian packages whose programs the tests start, and whose libraries the peers of experiments are made with.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, program, run};
use crate::steps::Outcome;
use Holds::{Library, Program};

/// The programs and libraries that tests need, and the packages that have them.
struct Package {
    name: &'static str,
    holds: Holds,
    purpose: &'static str,
}

/// The sign that a package is installed.
enum Holds {
    Program(&'static str),
    /// A library, by its name for pkg-config.
    Library(&'static str),
}

const PACKAGES: &[Package] = &[
    Package {
        name: "curl",
        holds: Program("curl"),
        purpose: "asks the server what a browser would ask",
    },
    Package {
        name: "wrk",
        holds: Program("wrk"),
        purpose: "loads the server",
    },
    Package {
        name: "nginx-light",
        holds: Program("nginx"),
        purpose: "the server ours is compared with",
    },
    Package {
        name: "nftables",
        holds: Program("nft"),
        purpose: "guards the server ours is compared with from SYNs",
    },
    Package {
        name: "haproxy",
        holds: Program("haproxy"),
        purpose: "the proxy ours is compared with",
    },
    Package {
        name: "slowhttptest",
        holds: Program("slowhttptest"),
        purpose: "attacks the server slowly",
    },
    Package {
        name: "iproute2",
        holds: Program("ip"),
        purpose: "network namespaces and links for tests of the network",
    },
    Package {
        name: "tcpdump",
        holds: Program("tcpdump"),
        purpose: "makes captures that softclock burst must understand",
    },
    Package {
        name: "iputils-ping",
        holds: Program("ping"),
        purpose: "asks for echoes through bridges under test",
    },
    Package {
        name: "netcat-openbsd",
        holds: Program("nc"),
        purpose: "sends datagrams to the network stack under test",
    },
    Package {
        name: "traceroute",
        holds: Program("traceroute"),
        purpose: "asks for the way to the network stack under test",
    },
    Package {
        name: "iperf3",
        holds: Program("iperf3"),
        purpose: "loads the bridges under test",
    },
    Package {
        name: "bind9-dnsutils",
        holds: Program("dig"),
        purpose: "asks the name server among the examples",
    },
    Package {
        name: "hping3",
        holds: Program("hping3"),
        purpose: "floods the network stack under test",
    },
    Package {
        name: "nmap",
        holds: Program("nping"),
        purpose: "scans the network stack under test, and sends it malformed packets",
    },
    Package {
        name: "python3-scapy",
        holds: Program("scapy"),
        purpose: "builds odd packets for the network stack under test",
    },
    Package {
        name: "tshark",
        holds: Program("tshark"),
        purpose: "judges captures of the network stack under test",
    },
    Package {
        name: "chromium",
        holds: Program("chromium"),
        purpose: "loads a page from the network stack under test",
    },
    Package {
        name: "apache2-utils",
        holds: Program("ab"),
        purpose: "loads the server on the network stack",
    },
    Package {
        name: "nghttp2-client",
        holds: Program("h2load"),
        purpose: "loads the server over HTTP/2",
    },
    Package {
        name: "ethtool",
        holds: Program("ethtool"),
        purpose: "turns offloads of links off in experiments",
    },
    Package {
        name: "procps",
        holds: Program("ps"),
        purpose: "CPU time and state of the servers under test",
    },
    Package {
        name: "openssl",
        holds: Program("openssl"),
        purpose: "holds a TLS connection open while certificates change",
    },
    Package {
        name: "python3",
        holds: Program("python3"),
        purpose: "passes sockets as systemd does, and reads JSON lines",
    },
    Package {
        name: "mount",
        holds: Program("mount"),
        purpose: "a small disk to fill",
    },
    Package {
        name: "bsdutils",
        holds: Program("script"),
        purpose: "a terminal for softclock top",
    },
    Package {
        name: "strace",
        holds: Program("strace"),
        purpose: "has system calls fail as in a sandbox",
    },
    Package {
        name: "groff-base",
        holds: Program("groff"),
        purpose: "renders the manual",
    },
    Package {
        name: "systemd",
        holds: Program("systemd-analyze"),
        purpose: "checks the units",
    },
    Package {
        name: "logrotate",
        holds: Program("logrotate"),
        purpose: "reads the file that is for it",
    },
    Package {
        name: "pkg-config",
        holds: Program("pkg-config"),
        purpose: "finds the libraries of the experiments' peers",
    },
    Package {
        name: "libuv1-dev",
        holds: Library("libuv"),
        purpose: "its sleeps are compared with ours, and an example in C has its loop",
    },
    Package {
        name: "libevent-dev",
        holds: Library("libevent_core"),
        purpose: "its timers are compared with ours, and an example in C has its loop",
    },
    Package {
        name: "g++",
        holds: Program("c++"),
        purpose: "compiles the examples in C, and the header as C++",
    },
    Package {
        name: "valgrind",
        holds: Program("valgrind"),
        purpose: "checks the programs in C",
    },
];

/// Installs missing packages if this is root on a Debian system. Otherwise prints their names: the
/// tests that need it skip themselves.
pub(crate) fn install_missing() -> Result<Outcome, String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Outcome::Done);
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.purpose);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let command = format!("apt-get install {}", names.join(" "));
    if !is_installed("apt-get") {
        let notice = format!("not Debian: install the likes of {}", names.join(", "));
        return Ok(Outcome::Notice(notice));
    }
    if !is_root() {
        return Ok(Outcome::Notice(format!("not root, so run: {command}")));
    }
    let installed = install(&names);
    let left: Vec<&str> = self::missing().iter().map(|package| package.name).collect();
    match installed {
        _ if left.is_empty() => Ok(Outcome::Notice(format!("installed {}", names.join(", ")))),
        Err(reason) => Ok(Outcome::Notice(format!("{reason}; try: {command}"))),
        Ok(()) => Ok(Outcome::Notice(format!(
            "still missing: {}",
            left.join(", ")
        ))),
    }
}

/// Whether `program` is there, after an attempt to install it from `packages` if this is root on a Debian system.
pub(crate) fn have_or_install(program: &str, packages: &[&str]) -> bool {
    if !is_installed(program) && is_installed("apt-get") && is_root() {
        // Whether it worked shows below.
        let _ = install(packages);
    }
    is_installed(program)
}

fn install(names: &[&str]) -> Result<(), String> {
    let _guard = ServiceGuard::new()?;
    if let Err(reason) = run(apt_get(&["update"])) {
        // Older lists may still do.
        println!("{reason}");
    }
    let mut command = apt_get(&["install", "--yes", "--no-install-recommends"]);
    command.args(names);
    run(command)
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = program("apt-get", ["-o", "DPkg::Lock::Timeout=300"]);
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn missing() -> Vec<&'static Package> {
    let missing = |package: &&Package| match package.holds {
        Program(name) => !is_installed(name),
        Library(name) => output(program("pkg-config", ["--exists", name])).is_err(),
    };
    PACKAGES.iter().filter(missing).collect()
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|directory| is_executable(&directory.join(program)))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Keeps Debian's installer from starting services while this lives: a test machine should not
/// suddenly listen on port 80. If the machine has a policy of its own, that one stands.
struct ServiceGuard {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";
const MARK: &str = "# Written by cargo xtask test.";

impl ServiceGuard {
    fn new() -> Result<Self, String> {
        // Left behind by a run that was killed.
        if fs::read_to_string(POLICY).is_ok_and(|text| text.contains(MARK)) {
            remove_policy();
        }
        let created = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(POLICY)
            .and_then(|mut file| file.write_all(policy().as_bytes()));
        match created {
            Ok(()) => Ok(Self { ours: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: false }),
            Err(error) => Err(format!("cannot write {POLICY}: {error}")),
        }
    }
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        if self.ours {
            remove_policy();
        }
    }
}

/// Forbids (101) for as long as this process lives, so that a killed run leaves nothing in force.
fn policy() -> String {
    let id = std::process::id();
    format!("#!/bin/sh\n{MARK}\n[ -d /proc/{id} ] && exit 101\nexit 0\n")
}

fn remove_policy() {
    if let Err(error) = fs::remove_file(POLICY) {
        eprintln!("cannot remove {POLICY}: {error}");
    }
}
