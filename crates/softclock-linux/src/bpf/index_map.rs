//! Maps from keys to indices (BPF_MAP_TYPE_HASH).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::map::{self, Shape, When};

/// A hash map from keys of `BYTES` bytes to indices of 32 bits, for programs to look up. The kernel hashes with a
/// secret of its own for each map, so senders cannot choose keys that collide.
#[derive(Debug)]
pub struct IndexMap<const BYTES: usize>(OwnedFd);

impl<const BYTES: usize> IndexMap<BYTES> {
    /// Creates an empty map for at most this number of entries, whose memory is allocated now.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF; `InvalidInput` for no entries, or keys without bytes.
    pub fn new(entries: u32) -> io::Result<Self> {
        let shape = Shape {
            kind: BPF_MAP_TYPE_HASH,
            key_bytes: BYTES as u32,
            value_bytes: 4,
            entries,
            flags: 0,
        };
        map::create(&shape).map(Self)
    }

    /// Adds an entry. Programs find it as soon as this returns.
    ///
    /// # Errors
    /// `AlreadyExists` if there is an entry with this key, which stays; `ArgumentListTooLong` (E2BIG) if the map is
    /// full.
    pub fn insert(&self, key: &[u8; BYTES], index: u32) -> io::Result<()> {
        // SAFETY: the map was made for keys of this size and values of 4 bytes.
        unsafe { map::set(self.as_fd(), key, &index, When::Absent) }
    }

    /// Removes an entry. A program that runs at the same time may still use it.
    ///
    /// # Errors
    /// `NotFound` if there is none with this key.
    pub fn remove(&self, key: &[u8; BYTES]) -> io::Result<()> {
        // SAFETY: the map was made for keys of this size.
        unsafe { map::remove(self.as_fd(), key) }
    }
}

impl<const BYTES: usize> AsFd for IndexMap<BYTES> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const BPF_MAP_TYPE_HASH: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_entry() {
        let map = match IndexMap::new(2) {
            Ok(map) => map,
            Err(error) => softclock_testing::skip!("no BPF: {error}"),
        };
        map.insert(b"one", 1).unwrap();
        let again = map.insert(b"one", 2).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        map.insert(b"two", 2).unwrap();
        let full = map.insert(b"six", 3).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
        map.remove(b"one").unwrap();
        let gone = map.remove(b"one").unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        map.insert(b"six", 3).unwrap();
    }
}
