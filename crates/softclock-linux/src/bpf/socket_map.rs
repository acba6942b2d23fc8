//! Maps from indices to AF_XDP sockets (BPF_MAP_TYPE_XSKMAP).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::map::{self, Shape, When};

/// A map from indices, such as the numbers of receive queues, to AF_XDP sockets: an XDP program redirects frames to the
/// socket in an entry.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates an empty map with this number of entries.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF.
    pub fn new(entries: u32) -> io::Result<Self> {
        let shape = Shape {
            kind: BPF_MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries,
            flags: 0,
        };
        map::create(&shape).map(Self)
    }

    /// Puts a socket into the entry with this index. The socket's rings must exist already. The entry is emptied when
    /// the socket is closed.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn set(&self, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let descriptor = socket.as_raw_fd() as u32;
        // SAFETY: keys and values of this map have 4 bytes, as these integers do.
        unsafe { map::set(self.as_fd(), &index, &descriptor, When::Always) }
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
