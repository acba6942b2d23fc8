//! Maps of the kernel: creation, and changes of their entries (bpf(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{bpf, bpf_call};

/// The properties of a map (the beginning of `union bpf_attr` for BPF_MAP_CREATE).
#[repr(C)]
pub(super) struct Shape {
    pub(super) kind: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
}

/// Creates an empty map.
pub(super) fn create(shape: &Shape) -> io::Result<OwnedFd> {
    // SAFETY: `Shape` has the layout of this command, and contains no pointers.
    unsafe { bpf(BPF_MAP_CREATE, shape) }
}

/// Sets an entry.
///
/// # Safety
/// The sizes of `K` and `V` are the map's sizes of keys and values, and neither type has padding.
pub(super) unsafe fn set<K, V>(
    map: BorrowedFd<'_>,
    key: &K,
    value: &V,
    when: When,
) -> io::Result<()> {
    let (key, value): (*const K, *const V) = (key, value);
    let request = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: key.expose_provenance() as u64,
        value: value.expose_provenance() as u64,
        flags: when as u64,
    };
    // SAFETY: `request` has the layout of this command; key and value outlive the call, and have the map's sizes by the
    // caller's promise.
    unsafe { bpf_call(BPF_MAP_UPDATE_ELEM, &request) }.map(drop)
}

/// Removes an entry.
///
/// # Safety
/// The size of `K` is the map's size of keys, and the type has no padding.
pub(super) unsafe fn remove<K>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    let key: *const K = key;
    let request = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: key.expose_provenance() as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: as in `set`; this command does not use the value.
    unsafe { bpf_call(BPF_MAP_DELETE_ELEM, &request) }.map(drop)
}

/// When an entry is set.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// Always (BPF_ANY).
    Always = 0,
    /// If there is none with this key (BPF_NOEXIST).
    Absent = 1,
}

/// The beginning of `union bpf_attr` for commands about an entry.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
