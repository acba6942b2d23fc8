//! The settings of receivers.

use core::time::Duration;

/// The limits and times of a [`Receiver`](super::Receiver).
///
/// ```
/// use softclock_net::tcp::receive::ReceiveSettings;
///
/// let mut settings = ReceiveSettings::default();
/// settings.most_buffer_bytes = 2 << 20;
/// assert_eq!(settings.window_scale(), 6);
/// assert_eq!(settings.syn_window(), 65_535);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReceiveSettings {
    /// The size of the buffer at first, in bytes: the window that an idle receiver offers. The receiver rounds it up to
    /// a multiple of the segment size. Default: 65 536, which a SYN can offer almost in full.
    pub buffer_bytes: u32,
    /// The size to which the buffer grows if the application reads more than half of it in a round trip, in bytes.
    /// `buffer_bytes` or less: it keeps its size. Default: 6 MiB (as Linux), which fills 250 Mbit/s over 200 ms.
    pub most_buffer_bytes: u32,
    /// The memory of packets that received bytes may keep, in bytes, headers included; a short packet counts as 2 KiB.
    /// Past it they are copied, so a slow reader cannot hold the memory of the device. Default: 128 KiB.
    pub packet_memory_bytes: u32,
    /// The most ranges beyond a gap. Segments that would begin another one are dropped. Default: 256, enough for one
    /// loss in 17 segments of a window of 6 MiB.
    pub out_of_order_ranges: u16,
    /// The longest time for which an acknowledgment waits for a second segment or for data to go with (RFC 9293,
    /// 3.8.6.3: less than 500 ms, of which its timer may be 5 ms late). Default: 40 ms (as Linux and FreeBSD).
    pub ack_delay: Duration,
    /// The least time to which a quarter of the round trip shortens that delay. Default: 40 ms, so the round trip does
    /// not matter: an application often takes longer to answer than a short path, and each acknowledgment that does not
    /// wait for the answer is a segment more.
    pub least_ack_delay: Duration,
    /// The first segments with data of a connection that are acknowledged at once, which makes the slow start of some
    /// senders faster. Default: 0.
    pub quick_acks: u8,
}

impl Default for ReceiveSettings {
    fn default() -> Self {
        Self {
            buffer_bytes: 64 << 10,
            most_buffer_bytes: 6 << 20,
            packet_memory_bytes: 128 << 10,
            out_of_order_ranges: 256,
            ack_delay: Duration::from_millis(40),
            least_ack_delay: Duration::from_millis(40),
            quick_acks: 0,
        }
    }
}

impl ReceiveSettings {
    /// The window field of a SYN or a SYN-ACK, which is never scaled (RFC 7323, 2.2).
    pub fn syn_window(&self) -> u16 {
        u16::try_from(self.buffer_bytes).unwrap_or(u16::MAX)
    }

    /// The least window scale that can offer the largest buffer, at most 14 (RFC 7323, 2.3).
    pub fn window_scale(&self) -> u8 {
        let most = self.buffer_bytes.max(self.most_buffer_bytes);
        let suffices = |&scale: &u8| u32::from(u16::MAX) << scale >= most;
        (0..MOST_SCALE).find(suffices).unwrap_or(MOST_SCALE)
    }
}

/// The largest window scale (RFC 7323, 2.3).
pub(super) const MOST_SCALE: u8 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_for(most_buffer_bytes: u32) -> u8 {
        let settings = ReceiveSettings {
            most_buffer_bytes,
            ..ReceiveSettings::default()
        };
        settings.window_scale()
    }

    #[test]
    fn the_window_scale_suffices_for_the_largest_buffer() {
        assert_eq!(scale_for(0), 1);
        assert_eq!(scale_for(73_728), 1);
        assert_eq!(scale_for(2 << 20), 6);
        assert_eq!(scale_for(6 << 20), 7);
        assert_eq!(scale_for(u32::MAX), 14);
    }
}
