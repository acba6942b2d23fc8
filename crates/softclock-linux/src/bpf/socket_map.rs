//! Maps from a link's receive queues to AF_XDP sockets (BPF_MAP_TYPE_XSKMAP).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{bpf, bpf_call};

/// A map from receive queues to AF_XDP sockets: an XDP program redirects a queue's frames to the socket in its entry.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates an empty map with `queues` entries.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF.
    pub fn new(queues: u32) -> io::Result<Self> {
        let request = CreateMap {
            kind: BPF_MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queues,
        };
        // SAFETY: `request` has the layout of this command, and contains no pointers.
        unsafe { bpf(BPF_MAP_CREATE, &request) }.map(Self)
    }

    /// Puts a socket into the entry of a queue. The socket's rings must exist already.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let descriptor = socket.as_raw_fd() as u32;
        let request = UpdateElement {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const queue).expose_provenance() as u64,
            value: (&raw const descriptor).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: `request` has the layout of this command; key and value have the map's lengths and outlive the call.
        unsafe { bpf_call(BPF_MAP_UPDATE_ELEM, &request) }.map(drop)
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The beginning of `union bpf_attr` for BPF_MAP_CREATE.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

/// The beginning of `union bpf_attr` for BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct UpdateElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
