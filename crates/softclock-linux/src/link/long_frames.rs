//! Frames with pending segmentation, beside an AF_XDP socket.

use std::io;

use softclock_wire::packet::Offload;

use super::{BATCH, Link, PacketSocket};

/// Sends frames with pending segmentation for an AF_XDP socket of a link.
///
/// Where the kernel copies each frame that AF_XDP sends, such a frame leaves by AF_PACKET: the kernel copies it once,
/// and the link cuts it, or the link's peer takes it whole. AF_XDP would send each segment on its own.
#[derive(Debug)]
pub struct LongFrames(Option<PacketSocket>);

impl LongFrames {
    /// Leaves all frames to the AF_XDP socket, as fits one that sends without copies.
    pub(super) const NONE: Self = Self(None);

    /// Opens a socket to send by, with a buffer of about `buffer_bytes`.
    ///
    /// # Errors
    /// Those of [`PacketSocket::open`].
    pub(super) fn open(link: &Link, buffer_bytes: usize) -> io::Result<Self> {
        let socket = PacketSocket::open_to_send(link, buffer_bytes)?;
        Ok(Self(Some(socket)))
    }

    /// Whether frames with pending segmentation leave whole.
    pub const fn are_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Sends frames in order, at most a batch; returns their number. Each run of frames of one kind leaves by one call:
    /// those without pending segmentation by `send`, which returns how many it took. A frame with pending segmentation
    /// waits while `is_behind`, that is, while frames before it have not left.
    ///
    /// # Errors
    /// That of the first frame, if it cannot be sent; `WouldBlock` if there is no room for it.
    pub fn send_among<'a, F>(
        &self,
        frames: F,
        is_behind: impl Fn() -> bool,
        mut send: impl FnMut(&mut dyn Iterator<Item = (&'a [u8], &'a Offload)>) -> io::Result<usize>,
    ) -> io::Result<usize>
    where
        F: Iterator<Item = (&'a [u8], &'a Offload)> + Clone,
    {
        let mut frames = frames.take(BATCH);
        let Some(long) = &self.0 else {
            return send(&mut frames);
        };
        let is_long = |offload: &Offload| offload.segmentation.is_some();
        let mut sent = 0;
        loop {
            let rest = frames.clone().skip(sent);
            let Some((_, first)) = rest.clone().next() else {
                return Ok(sent);
            };
            let is_run_long = is_long(first);
            let mut run = rest.take_while(|(_, offload)| is_long(offload) == is_run_long);
            let wanted = run.clone().count();
            let result = match is_run_long {
                false => send(&mut run),
                // It would overtake the frames that wait in the ring.
                true if is_behind() => Err(io::ErrorKind::WouldBlock.into()),
                true => long.send(run),
            };
            match result {
                Ok(some) if some < wanted => return Ok(sent + some),
                Ok(some) => sent += some,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
    }
}
