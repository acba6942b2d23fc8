//! What subjects do, and where they listen.

use std::net::Ipv4Addr;
use std::time::Duration;

/// The direction of a transfer, as seen from the subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The subject sends.
    Sends,
    /// The subject receives.
    Receives,
}

/// The size of the buffers of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    /// 32 KB, as in *LRP*.
    Small,
    /// The defaults.
    Default,
}

impl Buffers {
    /// Returns the size in bytes, unless it is the default.
    pub const fn bytes(self) -> Option<usize> {
        match self {
            Self::Small => Some(32 << 10),
            Self::Default => None,
        }
    }
}

/// What a subject sends, and the sizes of its buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) bytes: u64,
    pub(super) buffers: Buffers,
    /// Whether this project's stack leaves segmentation to the device.
    pub(super) joins: bool,
}

/// Says that the subject listens.
pub(super) type Ready<'a> = &'a dyn Fn();

/// The device: the kernel's end has its name.
pub(super) const TAP: &str = "tap0";
pub(super) const SUBJECT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);
pub(super) const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
/// The port at which the subject sends.
pub(super) const SEND_PORT: u16 = 5001;
/// The port at which the subject receives.
pub(super) const RECEIVE_PORT: u16 = 5002;
/// The subject's address on the link.
pub(super) const LINK_ADDRESS: [u8; 6] = [2, 0, 0, 82, 0, 2];
/// The longest that a subject waits before it looks whether to end.
pub(super) const LOOK_UP: Duration = Duration::from_millis(20);
