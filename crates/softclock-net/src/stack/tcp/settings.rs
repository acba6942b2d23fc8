//! The settings of TCP in a stack.

use core::time::Duration;

use crate::channel::ChannelLimits;
use crate::tcp::listen::{ListenSettings, SharedSettings};
use crate::tcp::settings::Settings;
use crate::tcp::time_wait::TimeWaitSettings;

/// The settings that all connections of a stack share, and the defaults of each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpSettings {
    /// The defaults of connections.
    pub connection: Settings,
    /// The most connections, without those that are half open or in TIME-WAIT. The default is 1 048 576: with their
    /// buffers empty they take about 1 GB.
    pub most_connections: usize,
    /// The most listeners. The default is 1024.
    pub most_listeners: usize,
    /// The most connections whose owners are gone and that are not over: beyond it, closing resets. The default is
    /// 16 384; Linux's (`tcp_max_orphans`) depends on memory.
    pub most_orphans: usize,
    /// The memory of all that has arrived and is not read, or waits to be sent or acknowledged, in bytes. Beyond it,
    /// each connection may hold [`least_memory`](Self::least_memory) only. The default is 256 MiB.
    pub memory: usize,
    /// The memory that each connection may always hold, so that it makes progress: as much for what has arrived, and as
    /// much for what is to be sent. The default is 16 KiB.
    pub least_memory: usize,
    /// The defaults of listeners: half-open connections, SYN cookies, retransmission of SYN-ACKs.
    pub listen: ListenSettings,
    /// The limits that half-open connections of all listeners share, challenge ACKs and time stamps.
    pub shared: SharedSettings,
    /// The connections in TIME-WAIT.
    pub time_wait: TimeWaitSettings,
    /// The limits of a connection's channel: segments that have arrived and are not processed. The default is 2048
    /// packets and 16 MiB, beyond the largest window, as a channel that is smaller loses what the window has allowed.
    pub channel: ChannelLimits,
    /// The limits of a listener's channel of SYNs. The default is 256 packets: beyond it SYNs of a flood are discarded
    /// before any work.
    pub syn_channel: ChannelLimits,
    /// The limits of a listener's channel of segments that may complete a handshake. The default is 1024 packets.
    pub handshake_channel: ChannelLimits,
    /// The limits of the channel of segments to connections in TIME-WAIT. The default is 128 packets.
    pub time_wait_channel: ChannelLimits,
    /// The most resets in a second that answer segments without a connection. The default is 1000.
    pub resets_per_second: u32,
    /// The time for which a segment waits at least for the owner of its connection, before a timer processes it. The
    /// default is 1 ms: over short paths, an owner takes longer than the network.
    pub least_wait: Duration,
    /// The time for which it waits at most; between the two, a quarter of the round trip. The default is 40 ms, as long
    /// as an acknowledgment is delayed.
    pub longest_wait: Duration,
}

impl Default for TcpSettings {
    fn default() -> Self {
        let packets = |packets| ChannelLimits {
            packets,
            bytes: packets * 2048,
        };
        Self {
            connection: Settings::default(),
            most_connections: 1 << 20,
            most_listeners: 1024,
            most_orphans: 16_384,
            memory: 256 << 20,
            least_memory: 16 << 10,
            listen: ListenSettings::default(),
            shared: SharedSettings::default(),
            time_wait: TimeWaitSettings::default(),
            channel: ChannelLimits {
                packets: 2048,
                bytes: 16 << 20,
            },
            syn_channel: packets(256),
            handshake_channel: packets(1024),
            time_wait_channel: packets(128),
            resets_per_second: 1000,
            least_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(40),
        }
    }
}

/// The settings of a listener.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TcpListenSettings {
    /// Half-open connections, cookies, retransmission of SYN-ACKs; those of the stack unless given. Offer, MTU, window
    /// and `requires_timestamps` follow from the settings of connections.
    pub listen: Option<ListenSettings>,
    /// The most connections that wait to be accepted, in place of that of `listen`.
    pub backlog: Option<usize>,
    /// The settings of the connections; those of the stack unless given.
    pub connection: Option<Settings>,
}

impl TcpListenSettings {
    /// The defaults, with a backlog.
    pub fn with_backlog(backlog: usize) -> Self {
        Self {
            backlog: Some(backlog),
            ..Self::default()
        }
    }
}
