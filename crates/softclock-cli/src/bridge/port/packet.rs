//! Links by AF_PACKET: its sockets see frames before tcx does, where a program drops them.

use std::io;

use softclock_linux::bpf;
use softclock_linux::link::{Link, PacketSocket};

use super::mechanism::Mechanism;
use crate::bridge::BridgeError;

pub(super) fn open(link: &Link) -> Result<Mechanism, BridgeError> {
    let socket = PacketSocket::open(link, BUFFER_BYTES);
    let socket = socket.map_err(|error| not_taken(link, &error))?;
    let shut = bpf::shut_ingress(link.index()).map_err(|error| not_shut(link, &error))?;
    Ok(Mechanism::Packet(socket, shut))
}

fn not_taken(link: &Link, error: &io::Error) -> BridgeError {
    let name = link.name();
    BridgeError(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("no permission to take frames from {name}: it needs root or CAP_NET_RAW")
        }
        io::ErrorKind::Unsupported => format!("{name} has no Ethernet frames"),
        _ => format!("cannot take frames from {name}: {error}"),
    })
}

fn not_shut(link: &Link, error: &io::Error) -> BridgeError {
    let name = link.name();
    BridgeError(match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "no permission to keep the host from handling the frames of {name}: it needs root, or CAP_BPF and CAP_NET_ADMIN"
        ),
        io::ErrorKind::InvalidInput => {
            format!("cannot keep the host from handling the frames of {name}: tcx needs Linux 6.6")
        }
        _ => format!("cannot keep the host from handling the frames of {name}: {error}"),
    })
}

/// Frames that wait in the kernel: 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;
