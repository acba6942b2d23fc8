//! Links by AF_XDP: a program in the driver leaves nothing to the host.

use std::io;

use rustix::io::Errno;
use softclock_linux::link::{Copies, Link, XdpError, XdpSocket, XdpStep};

use super::mechanism::Mechanism;

/// Takes a link over, or says why not.
pub(super) fn open(link: &Link, copies: Copies) -> Result<Mechanism, String> {
    let socket = XdpSocket::open(link, copies);
    socket
        .map(|socket| Mechanism::Xdp(Box::new(socket)))
        .map_err(|error| reason(link, &error))
}

/// The same where that costs less than AF_PACKET, and no frame comes without something of it.
pub(super) fn open_where_it_serves(link: &Link) -> Result<Mechanism, String> {
    let opened = open(link, Copies::Never)?;
    // A program may have the driver change what it does for frames.
    may_serve(link).map(|()| opened)
}

/// What tells without touching the link that it would not serve.
pub(super) fn may_serve(link: &Link) -> Result<(), String> {
    if link.is_virtual() {
        return Err(copies(link));
    }
    if let queues @ 2.. = link.receive_queues() {
        return Err(reason(link, &XdpError::Queues(queues)));
    }
    match link.takes_tags_off() {
        false => Ok(()),
        true => Err(format!(
            "{0} takes tags of VLANs off, which AF_XDP misses; ethtool -K {0} rxvlan off keeps them",
            link.name()
        )),
    }
}

fn copies(link: &Link) -> String {
    format!("the driver of {} copies its frames", link.name())
}

fn reason(link: &Link, error: &XdpError) -> String {
    let name = link.name();
    let (step, error) = match error {
        XdpError::Queues(count) => {
            return format!(
                "{name} has {count} queues; ethtool -L {name} combined 1 leaves it one"
            );
        }
        XdpError::Failed(step, error) => (*step, error),
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
        XdpStep::Queue if is(Errno::OPNOTSUPP) => copies(link),
        XdpStep::Queue | XdpStep::Driver if is(Errno::BUSY) => {
            format!("{name} is in use by another program of XDP")
        }
        XdpStep::Queue => format!("no queue of {name}: {error}"),
        XdpStep::Program => format!("the kernel takes no program: {error}"),
        XdpStep::Driver if is(Errno::OPNOTSUPP) => format!("the driver of {name} has no XDP"),
        XdpStep::Driver if is(Errno::RANGE) || is(Errno::INVAL) => {
            format!("the MTU of {name} or of its other end is too large for XDP")
        }
        XdpStep::Driver => format!("the driver of {name} refuses XDP: {error}"),
    }
}
