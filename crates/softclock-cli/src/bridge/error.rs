//! The errors of a bridge, each as one line for the user.

use std::{fmt, fs, io};

use rustix::io::Errno;
use softclock_link::PortError;
use softclock_linux::link::{ClaimError, DeviceError, DeviceFailure, XdpError, XdpStep};

/// The reason why a bridge did not start or has ended, as one line.
#[derive(Debug)]
pub(crate) struct BridgeError(pub(crate) String);

impl fmt::Display for BridgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<PortError> for BridgeError {
    fn from(error: PortError) -> Self {
        Self(port_error(error))
    }
}

/// Explains why the port of a link cannot be used.
pub(crate) fn port_error(error: PortError) -> String {
    match error {
        PortError::Find { interface, error } => not_found(&interface, &error),
        PortError::Claim { interface, error } => not_claimed(&interface, &error),
        PortError::Open(error) => match is_of_xdp(&error) {
            // Without AF_XDP the bridge falls back to AF_PACKET, unless the user asked for AF_XDP only.
            true => format!("no AF_XDP: {}", not_opened(&error)),
            false => not_opened(&error),
        },
        PortError::Watch { interface, error } => format!("cannot watch {interface}: {error}"),
        PortError::Gone { interface } => format!("{interface} is gone"),
        other => other.to_string(),
    }
}

fn is_of_xdp(error: &DeviceError) -> bool {
    use DeviceFailure::{Xdp, XdpCopies, XdpMissesTags};
    matches!(error.failure, Xdp(_) | XdpCopies | XdpMissesTags)
}

fn not_found(name: &str, error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NODEV) => {
            format!("there is no interface {name}; ip link lists the existing ones")
        }
        _ => format!("cannot find interface {name}: {error}"),
    }
}

fn not_claimed(name: &str, error: &ClaimError) -> String {
    match error {
        ClaimError::Held(Some(process)) => format!(
            "{name} is already in use: process {process}{}; end that first",
            command_line(*process)
        ),
        ClaimError::Held(None) => {
            format!("{name} is already in use by a process that is not visible here")
        }
        ClaimError::Io(error) => format!("cannot claim {name}: {error}"),
        other => format!("cannot use {name}: {other}"),
    }
}

/// Returns the beginning of the command line of a process in brackets, or nothing if it may not be read.
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

/// Explains why a device was not opened.
pub(super) fn not_opened(error: &DeviceError) -> String {
    let name = &error.interface;
    match &error.failure {
        DeviceFailure::Packet(error) => not_taken(name, error),
        DeviceFailure::ShutIngress(error) => not_shut(name, error),
        DeviceFailure::Xdp(error) => no_xdp(name, error),
        DeviceFailure::XdpCopies => copies(name),
        DeviceFailure::XdpMissesTags => format!(
            "{name} strips VLAN tags, which AF_XDP would lose; ethtool -K {name} rxvlan off keeps them"
        ),
        DeviceFailure::Tap(error) => no_tap(name, error),
        _ => error.to_string(),
    }
}

fn not_taken(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("no permission to take frames from {name}: it needs root or CAP_NET_RAW")
        }
        io::ErrorKind::Unsupported => format!("{name} has no Ethernet frames"),
        _ => format!("cannot take frames from {name}: {error}"),
    }
}

fn not_shut(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "no permission to keep the host from handling the frames of {name}: it needs root, or CAP_BPF and CAP_NET_ADMIN"
        ),
        io::ErrorKind::InvalidInput => {
            format!("cannot keep the host from handling the frames of {name}: tcx needs Linux 6.6")
        }
        _ => format!("cannot keep the host from handling the frames of {name}: {error}"),
    }
}

fn no_tap(name: &str, error: &io::Error) -> String {
    let is_there = Errno::from_io_error(error) == Some(Errno::BUSY);
    match error.kind() {
        _ if is_there => format!("an interface {name} exists already"),
        io::ErrorKind::PermissionDenied => {
            format!("no permission to make the TAP device {name}: it needs root or CAP_NET_ADMIN")
        }
        io::ErrorKind::NotFound => {
            format!(
                "cannot make the TAP device {name}: there is no /dev/net/tun; modprobe tun makes it"
            )
        }
        io::ErrorKind::InvalidInput => {
            format!("'{name}' is not a valid interface name (at most 15 bytes)")
        }
        _ => format!("cannot make the TAP device {name}: {error}"),
    }
}

fn copies(name: &str) -> String {
    format!("the driver of {name} copies its frames")
}

fn no_xdp(name: &str, error: &XdpError) -> String {
    let (step, error) = match error {
        XdpError::Queues(count) => {
            return format!(
                "{name} has {count} queues; ethtool -L {name} combined 1 reduces them to one"
            );
        }
        XdpError::Failed(step, error) => (*step, error),
        other => return format!("{name}: {other}"),
    };
    let is = |errno: Errno| Errno::from_io_error(error) == Some(errno);
    match step {
        XdpStep::Promiscuity if error.kind() == io::ErrorKind::Unsupported => {
            format!("{name} has no Ethernet frames")
        }
        _ if error.kind() == io::ErrorKind::PermissionDenied => format!(
            "no permission to take frames from {name}: it needs root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
        ),
        XdpStep::Promiscuity => format!("cannot take frames from {name}: {error}"),
        XdpStep::Socket if is(Errno::NOBUFS) => {
            "it needs 24 MiB of locked memory (ulimit -l), or CAP_IPC_LOCK".into()
        }
        XdpStep::Socket => format!("no socket: {error}"),
        XdpStep::Queue if is(Errno::OPNOTSUPP) => copies(name),
        XdpStep::Queue | XdpStep::Driver if is(Errno::BUSY) => {
            format!("{name} is in use by another XDP program")
        }
        XdpStep::Queue => format!("no queue of {name}: {error}"),
        XdpStep::Program => format!("the kernel refuses the XDP program: {error}"),
        XdpStep::Driver if is(Errno::OPNOTSUPP) => format!("the driver of {name} has no XDP"),
        XdpStep::Driver if is(Errno::RANGE) || is(Errno::INVAL) => {
            format!("the MTU of {name} or of its other end is too large for XDP")
        }
        XdpStep::Driver => format!("the driver of {name} refuses XDP: {error}"),
        other => format!("{name}: {other}: {error}"),
    }
}

/// Limit of the characters of a command line in an error.
const MOST_LETTERS: usize = 100;
