//! The ranges of the settings of TCP.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use super::TcpSettings;
use crate::due::Slack;
use crate::tcp::listen::ListenSettings;
use crate::tcp::settings::Settings;

/// A setting that is out of its range, or contradicts another one. Displays as the setting and its requirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSettingsError {
    /// The path of the field in [`TcpSettings`], such as `time_wait.duration`.
    pub setting: &'static str,
    /// What it must be, such as `from 1 ms to 1 h`.
    pub must_be: &'static str,
}

impl fmt::Display for TcpSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, must_be } = self;
        write!(f, "the setting {setting} of TCP must be {must_be}")
    }
}

impl core::error::Error for TcpSettingsError {}

impl TcpSettings {
    /// Checks that each setting is in its range, and that none contradicts another one.
    ///
    /// A stack does not call this, so that tests can have any value. Some values out of range are taken as the nearest
    /// one, others as they are. Call it before [`divided`](Self::divided): the part of a stack may be smaller than a
    /// buffer.
    ///
    /// ```
    /// use softclock_net::stack::TcpSettings;
    ///
    /// let mut settings = TcpSettings::default();
    /// assert_eq!(settings.check(), Ok(()));
    /// settings.time_wait.most = 0;
    /// assert_eq!(settings.check().unwrap_err().setting, "time_wait.most");
    /// ```
    ///
    /// # Errors
    /// The first setting that fails.
    pub fn check(&self) -> Result<(), TcpSettingsError> {
        self.check_totals()?;
        check_listen(&self.listen)?;
        check_connection(&self.connection)?;
        require(
            self.listen.half_open <= self.shared.half_open,
            "listen.half_open",
            "at most shared.half_open, the limit of all listeners: raise that one, or lower this one",
        )?;
        let send = &self.connection.send;
        let receive = &self.connection.receive;
        let fits = |bytes: u32| bytes as usize <= self.memory;
        require(
            fits(send.buffer.max(send.most_buffer)),
            "connection.send.most_buffer",
            "at most memory, the limit of all connections: raise that one, or lower this one",
        )?;
        require(
            fits(receive.buffer_bytes.max(receive.most_buffer_bytes)),
            "connection.receive.most_buffer_bytes",
            "at most memory, the limit of all connections: raise that one, or lower this one",
        )
    }

    fn check_totals(&self) -> Result<(), TcpSettingsError> {
        for (number, setting) in [
            (self.most_connections, "most_connections"),
            (self.most_listeners, "most_listeners"),
            (self.least_memory, "least_memory"),
            (self.shared.half_open, "shared.half_open"),
            (self.time_wait.most, "time_wait.most"),
            (self.channel.packets, "channel.packets"),
            (self.syn_channel.packets, "syn_channel.packets"),
            (self.handshake_channel.packets, "handshake_channel.packets"),
            (self.time_wait_channel.packets, "time_wait_channel.packets"),
        ] {
            require(number > 0, setting, "at least 1")?;
        }
        for (bytes, setting) in [
            (self.channel.bytes, "channel.bytes"),
            (self.syn_channel.bytes, "syn_channel.bytes"),
            (self.handshake_channel.bytes, "handshake_channel.bytes"),
            (self.time_wait_channel.bytes, "time_wait_channel.bytes"),
        ] {
            require(
                bytes >= LEAST_CHANNEL,
                setting,
                "at least 2048, a packet of Ethernet",
            )?;
        }
        require(
            self.shared.proven_peers <= MOST_PROVEN,
            "shared.proven_peers",
            "at most 1 048 576",
        )?;
        require(
            self.memory >= self.least_memory,
            "memory",
            "at least least_memory, what each connection may hold",
        )?;
        require(
            self.longest_wait + Slack::ACKNOWLEDGMENT.most() < Duration::from_millis(500),
            "longest_wait",
            "less than 495 ms, as an acknowledgment waits (RFC 9293, 3.8.6.3) and its timer is late",
        )?;
        require(
            self.least_wait <= self.longest_wait,
            "least_wait",
            "at most longest_wait",
        )?;
        let duration = self.time_wait.duration;
        let range = Duration::from_millis(1)..=HOUR;
        within(duration, range, "time_wait.duration", "from 1 ms to 1 h")
    }
}

fn check_listen(settings: &ListenSettings) -> Result<(), TcpSettingsError> {
    require(settings.half_open > 0, "listen.half_open", "at least 1")?;
    require(settings.backlog > 0, "listen.backlog", "at least 1")?;
    require(
        settings.cookies_per_second > 0,
        "listen.cookies_per_second",
        "at least 1: listen.cookies turns cookies off",
    )?;
    require(settings.retries <= 8, "listen.retries", "at most 8")?;
    within(
        settings.initial_timeout,
        Duration::from_millis(1)..=Duration::from_secs(60),
        "listen.initial_timeout",
        "from 1 ms to 60 s",
    )
}

fn check_connection(settings: &Settings) -> Result<(), TcpSettingsError> {
    check_receive(settings)?;
    check_send(settings)?;
    check_keep_alive(settings)?;
    for (time, setting) in [
        (settings.fin_wait_2, "connection.fin_wait_2"),
        (settings.orphan_timeout, "connection.orphan_timeout"),
    ] {
        let range = Duration::from_millis(1)..=DAY;
        within(time, range, setting, "from 1 ms to 1 day")?;
    }
    within(
        settings.syn_timeout,
        Duration::from_millis(1)..=Duration::from_secs(60),
        "connection.syn_timeout",
        "from 1 ms to 60 s",
    )?;
    within(
        settings.connect_timeout.unwrap_or(DAY),
        Duration::from_millis(1)..=DAY,
        "connection.connect_timeout",
        "from 1 ms to 1 day, or none",
    )?;
    within(
        settings.least_mss,
        LEAST_MSS..=536,
        "connection.least_mss",
        "from 48 to 536, the default of RFC 9293",
    )?;
    require(
        settings.most_mss.is_none_or(|most| most >= LEAST_MSS),
        "connection.most_mss",
        "at least 48",
    )?;
    require(settings.dscp <= 63, "connection.dscp", "at most 63")?;
    let hop_limit = settings.hop_limit;
    require(hop_limit > 0, "connection.hop_limit", "at least 1")
}

fn check_receive(settings: &Settings) -> Result<(), TcpSettingsError> {
    let receive = &settings.receive;
    let range = 1..=MOST_BUFFER;
    within(
        receive.buffer_bytes,
        range,
        "connection.receive.buffer_bytes",
        "from 1 to 1073725440 bytes, the largest window of RFC 7323",
    )?;
    require(
        receive.most_buffer_bytes <= MOST_BUFFER,
        "connection.receive.most_buffer_bytes",
        "at most 1073725440 bytes, the largest window of RFC 7323",
    )?;
    require(
        receive.out_of_order_ranges > 0,
        "connection.receive.out_of_order_ranges",
        "at least 1",
    )?;
    require(
        receive.ack_delay + Slack::ACKNOWLEDGMENT.most() < Duration::from_millis(500),
        "connection.receive.ack_delay",
        "less than 495 ms: 500 ms (RFC 9293, 3.8.6.3) with the slack of its timer",
    )
}

fn check_send(settings: &Settings) -> Result<(), TcpSettingsError> {
    let send = &settings.send;
    within(
        send.buffer,
        1..=MOST_BUFFER,
        "connection.send.buffer",
        "from 1 to 1073725440 bytes, the largest window of RFC 7323",
    )?;
    require(
        send.most_buffer <= MOST_BUFFER,
        "connection.send.most_buffer",
        "at most 1073725440 bytes, the largest window of RFC 7323",
    )?;
    within(
        send.maximum_timeout,
        Duration::from_secs(1)..=HOUR,
        "connection.send.maximum_timeout",
        "from 1 s to 1 h",
    )?;
    require(
        send.minimum_timeout <= send.maximum_timeout,
        "connection.send.minimum_timeout",
        "at most connection.send.maximum_timeout",
    )?;
    within(
        send.initial_timeout,
        Duration::from_millis(1)..=Duration::from_secs(60),
        "connection.send.initial_timeout",
        "from 1 ms to 60 s",
    )?;
    require(
        send.peer_ack_delay <= Duration::from_millis(2550),
        "connection.send.peer_ack_delay",
        "at most 2.55 s",
    )?;
    require(
        send.least_probe_timeout <= Duration::from_millis(255),
        "connection.send.least_probe_timeout",
        "at most 255 ms",
    )?;
    require(send.retries > 0, "connection.send.retries", "at least 1")?;
    let range = Duration::from_millis(1)..=MOST_USER_TIMEOUT;
    require(
        send.user_timeout.is_none_or(|time| range.contains(&time)),
        "connection.send.user_timeout",
        "none, or from 1 ms to 6553 s",
    )?;
    require(
        send.congestion.initial_segments > 0,
        "connection.send.congestion.initial_segments",
        "at least 1",
    )
}

fn check_keep_alive(settings: &Settings) -> Result<(), TcpSettingsError> {
    let keep_alive = &settings.keep_alive;
    for (time, setting) in [
        (keep_alive.idle, "connection.keep_alive.idle"),
        (keep_alive.interval, "connection.keep_alive.interval"),
    ] {
        let range = Duration::from_millis(1)..=30 * DAY;
        within(time, range, setting, "from 1 ms to 30 days")?;
    }
    require(
        keep_alive.probes > 0,
        "connection.keep_alive.probes",
        "at least 1",
    )
}

fn within<T: PartialOrd>(
    value: T,
    range: RangeInclusive<T>,
    setting: &'static str,
    must_be: &'static str,
) -> Result<(), TcpSettingsError> {
    require(range.contains(&value), setting, must_be)
}

fn require(
    holds: bool,
    setting: &'static str,
    must_be: &'static str,
) -> Result<(), TcpSettingsError> {
    match holds {
        true => Ok(()),
        false => Err(TcpSettingsError { setting, must_be }),
    }
}

/// The largest window that can be stated: 65 535 bytes, shifted by 14 (RFC 7323, 2.3).
const MOST_BUFFER: u32 = 65_535 << 14;

/// The most that a connection keeps, in units of 100 ms.
const MOST_USER_TIMEOUT: Duration = Duration::from_secs(6553);

/// The least segment size of Linux (`tcp_min_snd_mss`).
const LEAST_MSS: u16 = 48;

const LEAST_CHANNEL: usize = 2048;

/// With NI-LRP each has an entry in a map of BPF, some 90 bytes of the kernel's memory.
const MOST_PROVEN: usize = 1 << 20;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut TcpSettings);

    fn refused(change: impl Fn(&mut TcpSettings)) -> Option<&'static str> {
        let mut settings = TcpSettings::default();
        change(&mut settings);
        settings.check().err().map(|error| error.setting)
    }

    #[test]
    fn values_out_of_their_ranges_are_refused() {
        let seconds = Duration::from_secs;
        let changes: [(Change, &str); 14] = [
            (
                |all| all.listen.cookies_per_second = 0,
                "listen.cookies_per_second",
            ),
            (
                |all| all.shared.proven_peers = 1 << 30,
                "shared.proven_peers",
            ),
            (|all| all.most_connections = 0, "most_connections"),
            (|all| all.channel.bytes = 2047, "channel.bytes"),
            (
                |all| all.time_wait.duration = Duration::ZERO,
                "time_wait.duration",
            ),
            (|all| all.listen.retries = 9, "listen.retries"),
            (|all| all.listen.half_open = 0, "listen.half_open"),
            (
                |all| all.connection.receive.buffer_bytes = u32::MAX,
                "connection.receive.buffer_bytes",
            ),
            (
                |all| all.connection.send.retries = 0,
                "connection.send.retries",
            ),
            (
                |all| all.connection.send.user_timeout = Some(Duration::ZERO),
                "connection.send.user_timeout",
            ),
            (
                |all| all.connection.keep_alive.probes = 0,
                "connection.keep_alive.probes",
            ),
            (|all| all.connection.least_mss = 47, "connection.least_mss"),
            (|all| all.connection.dscp = 64, "connection.dscp"),
            (|all| all.connection.hop_limit = 0, "connection.hop_limit"),
        ];
        for (change, setting) in changes {
            assert_eq!(refused(change), Some(setting));
        }
        assert_eq!(refused(|all| all.time_wait.duration = seconds(3600)), None);
        assert_eq!(
            refused(|all| all.time_wait.duration = seconds(3601)),
            Some("time_wait.duration")
        );
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let changes: [(Change, &str); 6] = [
            (|all| all.listen.half_open = 65_537, "listen.half_open"),
            (|all| all.longest_wait = Duration::ZERO, "least_wait"),
            (|all| all.least_memory = all.memory + 1, "memory"),
            (
                |all| all.memory = 5 << 20,
                "connection.receive.most_buffer_bytes",
            ),
            (|all| all.memory = 3 << 20, "connection.send.most_buffer"),
            (
                |all| all.connection.send.minimum_timeout = Duration::from_secs(121),
                "connection.send.minimum_timeout",
            ),
        ];
        for (change, setting) in changes {
            assert_eq!(refused(change), Some(setting));
        }
    }

    #[test]
    fn an_error_says_what_the_setting_must_be() {
        let settings = TcpSettings {
            most_listeners: 0,
            ..TcpSettings::default()
        };
        let error = alloc::string::ToString::to_string(&settings.check().unwrap_err());
        assert_eq!(
            error,
            "the setting most_listeners of TCP must be at least 1"
        );
    }
}
