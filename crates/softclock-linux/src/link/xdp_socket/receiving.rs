//! The frames that the kernel has delivered to a socket.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::xdp::XdpDesc;
use softclock_wire::packet::{Headers, Offload, partial_checksum};

use super::chunks::{Account, Chunk, Chunks};
use super::ring::Consumer;
use crate::clock::monotonic_ns;
use crate::link::{BATCH, Received, Refused};

/// Passes the frames that have arrived in this ring to `on_frame`, in order, and charges them to the account; returns
/// their number, at most [`BATCH`]. `WouldBlock` if no frame has arrived.
pub(super) fn take_batch(
    arrived: &mut Consumer<XdpDesc>,
    chunks: &Arc<Chunks>,
    account: Account,
    is_copied: bool,
    mut on_frame: impl FnMut(Result<Received<Chunk>, Refused>),
) -> io::Result<usize> {
    let mut now = None;
    let mut taken = 0;
    while taken < BATCH
        && let Some(description) = arrived.pop()
    {
        // A description that names no chunk of the kernel's is skipped, since its memory would have two owners.
        if let Some((chunk, stamp)) = chunks.hold(&description, account) {
            let now = *now.get_or_insert_with(monotonic_ns);
            on_frame(Ok(received(chunk, stamp, now, is_copied)));
        }
        taken += 1;
    }
    if taken == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // One store for the batch; then one wake-up, if the kernel waits for chunks.
    arrived.release();
    chunks.wake();
    Ok(taken)
}

/// Describes a received frame. `stamp` is the program's time for it, 0 if the driver had no room for one.
pub(super) fn received<B: Deref<Target = [u8]>>(
    frame: B,
    stamp: u64,
    now: u64,
    is_copied: bool,
) -> Received<B> {
    // In zero-copy mode frames come from the wire, so their checksums are complete.
    let checksum = is_copied.then(|| partial_checksum(&frame, &Headers::of_frame(&frame)));
    // Both times are of CLOCK_MONOTONIC.
    let age = if stamp == 0 {
        0
    } else {
        now.saturating_sub(stamp)
    };
    Received {
        bytes: frame,
        offload: Offload {
            checksum: checksum.flatten(),
            segmentation: None,
        },
        age: Duration::from_nanos(age),
    }
}
