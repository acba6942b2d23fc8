//! The sides of a bridge as they are named: an interface that is there, or a TAP device to be made.

use std::{fs, io};

use rustix::io::Errno;
use softclock_linux::link::{Claim, ClaimError, Link, Tap};

use super::BridgeError;

/// Where frames come from and go to, before it is opened.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// A link that is there.
    Link(Link),
    /// A TAP device of this name, to be made.
    Tap(String),
}

impl Side {
    /// What a name stands for. No interface's name has a colon.
    pub(super) fn named(name: &str) -> Result<Self, BridgeError> {
        match name.strip_prefix("tap:") {
            Some(name) => Ok(Self::Tap(name.into())),
            None => link(name).map(Self::Link),
        }
    }

    /// The link, if it is there already.
    pub(super) fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Tap(_) => None,
        }
    }

    /// Keeps other bridges from it until the claim, or the process, ends. A device to be made is claimed by its name.
    pub(super) fn claim(&self) -> Result<Option<Claim>, BridgeError> {
        let Some(link) = self.link() else {
            return Ok(None);
        };
        let name = link.name();
        Claim::to(link).map(Some).map_err(|error| {
            BridgeError(match error {
                ClaimError::Held(Some(process)) => format!(
                    "{name} is one side of another bridge: process {process}{}; end that first",
                    command_line(process)
                ),
                ClaimError::Held(None) => {
                    format!(
                        "{name} is one side of another bridge, whose process does not show here"
                    )
                }
                ClaimError::Io(error) => format!("cannot claim {name}: {error}"),
            })
        })
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(one), Self::Link(other)) => one.index() == other.index(),
            (Self::Tap(one), Self::Tap(other)) => one == other,
            _ => false,
        }
    }
}

/// The beginning of a process' command line in brackets, if it may be read.
fn command_line(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let words: Vec<_> = line.split('\0').collect();
    let line = words.join(" ").replace(char::is_control, "?");
    match line.trim() {
        "" => String::new(),
        line if line.chars().count() > MOST_LETTERS => {
            let begin: String = line.chars().take(MOST_LETTERS).collect();
            format!(" ({begin}...)")
        }
        line => format!(" ({line})"),
    }
}

fn link(name: &str) -> Result<Link, BridgeError> {
    Link::named(name).map_err(|error| {
        BridgeError(match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => {
                format!("there is no interface {name}; ip link lists those there are")
            }
            _ => format!("cannot find interface {name}: {error}"),
        })
    })
}

/// Makes a TAP device, which is up and goes with the process.
pub(super) fn make_tap(name: &str) -> Result<Tap, BridgeError> {
    Tap::create(name).map_err(|error| {
        let is_there = Errno::from_io_error(&error) == Some(Errno::BUSY);
        BridgeError(match error.kind() {
            _ if is_there => format!("there is an interface {name} already"),
            io::ErrorKind::PermissionDenied => {
                format!("no permission to make the TAP device {name}: it needs root or CAP_NET_ADMIN")
            }
            io::ErrorKind::NotFound => {
                format!("cannot make the TAP device {name}: there is no /dev/net/tun; modprobe tun makes it")
            }
            io::ErrorKind::InvalidInput => {
                format!("'{name}' can be no interface's name, of which 15 bytes are the most")
            }
            _ => format!("cannot make the TAP device {name}: {error}"),
        })
    })
}

/// Of a command line that is told.
const MOST_LETTERS: usize = 100;
