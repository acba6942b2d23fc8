//! The options of TCP on a network stack of the command's own.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, ValueEnum};
use softclock::net::stack::{CookieUse, EcnMode, TcpSettings, TcpSettingsError};

use super::content::size;
use crate::values::{format_time, seconds, whole};

/// Options of TCP on the stack. Each needs `--dev`: the kernel's sockets have the kernel's settings.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Stack")]
pub(crate) struct TcpArgs {
    /// How long the stack remembers a connection that this end has closed first (TIME-WAIT), so that its old segments
    /// do not disturb another: 1ms to 1h
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = time_wait, requires = "dev")]
    pub(crate) tcp_time_wait: Duration,

    /// Most half-open connections of each address to listen on, over all threads (1 to 1048576); for more, see
    /// --tcp-cookies
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = whole(1..=MOST_HALF_OPEN), requires = "dev")]
    pub(crate) tcp_half_open: usize,

    /// When a SYN is answered by a cookie, which needs no memory, but forgets options of clients without time stamps
    #[arg(long, value_name = "NAME", value_enum, default_value_t = CookieName::WhenFull, requires = "dev")]
    pub(crate) tcp_cookies: CookieName,

    /// Probe a connection that is idle for this time; after nine probes without an answer, 75 seconds apart, it is
    /// closed. At most 720h; 0 for no probes
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = keep_alive, requires = "dev")]
    pub(crate) tcp_keep_alive: Duration,

    /// How long data of a connection may wait without any progress, to be acknowledged or to be sent, until the
    /// connection is closed (RFC 5482): at most 6553; 0 for 15 retransmissions
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = user_timeout, requires = "dev")]
    pub(crate) tcp_user_timeout: Duration,

    /// Most bytes of a connection that wait to be sent or acknowledged (4K to 1023M); buffers grow to this with the
    /// congestion window
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = buffer, requires = "dev")]
    pub(crate) tcp_send_buffer: u32,

    /// Most bytes of a connection that have arrived and are not read, the largest window (4K to 1023M); buffers grow to
    /// this if the server reads fast
    #[arg(long, value_name = "SIZE", default_value = "6M", value_parser = buffer, requires = "dev")]
    pub(crate) tcp_receive_buffer: u32,

    /// Most bytes in the buffers of all connections, over all threads; beyond it, each connection may hold 16K. At
    /// least 1M, and as much as each of the two buffers
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory, requires = "dev")]
    pub(crate) tcp_memory: usize,

    /// Use of explicit congestion notification (RFC 3168)
    #[arg(long, value_name = "NAME", value_enum, default_value_t = EcnName::Accept, requires = "dev")]
    pub(crate) tcp_ecn: EcnName,
}

/// The values of `--tcp-cookies`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CookieName {
    /// While there are as many half-open connections as may be
    WhenFull,
    /// For each connection
    Always,
    /// Never: the oldest half-open connection gives way to a new one
    Never,
}

/// The values of `--tcp-ecn`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EcnName {
    /// Never
    Off,
    /// On connections whose client offers it
    Accept,
    /// Also on connections to upstreams that accept it
    On,
}

impl TcpArgs {
    /// Logs the settings in effect, as the options write them.
    pub(crate) fn log(&self) {
        let time = |time: Duration| match time.is_zero() {
            true => "none".to_owned(),
            false => format_time(time),
        };
        tracing::info!(
            time_wait = %format_time(self.tcp_time_wait),
            half_open = self.tcp_half_open,
            cookies = %name(&self.tcp_cookies),
            keep_alive = %time(self.tcp_keep_alive),
            user_timeout = %time(self.tcp_user_timeout),
            send_buffer = self.tcp_send_buffer,
            receive_buffer = self.tcp_receive_buffer,
            memory = self.tcp_memory,
            ecn = %name(&self.tcp_ecn),
            "TCP of the stack"
        );
    }

    /// The settings of a stack with these options.
    pub(crate) fn settings(&self) -> TcpSettings {
        let mut settings = TcpSettings::default();
        settings.time_wait.duration = self.tcp_time_wait;
        settings.listen.half_open = self.tcp_half_open;
        settings.shared.half_open = settings.shared.half_open.max(self.tcp_half_open);
        settings.listen.cookies = match self.tcp_cookies {
            CookieName::WhenFull => CookieUse::WhenFull,
            CookieName::Always => CookieUse::Always,
            CookieName::Never => CookieUse::Never,
        };
        settings.memory = self.tcp_memory;
        let connection = &mut settings.connection;
        if !self.tcp_keep_alive.is_zero() {
            connection.keep_alive.is_on = true;
            connection.keep_alive.idle = self.tcp_keep_alive;
        }
        connection.send.user_timeout = Some(self.tcp_user_timeout).filter(|time| !time.is_zero());
        let send = &mut connection.send;
        send.most_buffer = self.tcp_send_buffer;
        send.buffer = send.buffer.min(self.tcp_send_buffer);
        let receive = &mut connection.receive;
        receive.most_buffer_bytes = self.tcp_receive_buffer;
        receive.buffer_bytes = receive.buffer_bytes.min(self.tcp_receive_buffer);
        connection.ecn = match self.tcp_ecn {
            EcnName::Off => EcnMode::Off,
            EcnName::Accept => EcnMode::Accept,
            EcnName::On => EcnMode::On,
        };
        settings
    }
}

/// Words a contradiction of these options for the user. `None` if the setting has none of them.
pub(crate) fn contradiction(error: &TcpSettingsError) -> Option<&'static str> {
    match error.setting {
        "connection.send.most_buffer" => {
            Some("--tcp-send-buffer is more than --tcp-memory; lower it, or raise --tcp-memory")
        }
        "connection.receive.most_buffer_bytes" => {
            Some("--tcp-receive-buffer is more than --tcp-memory; lower it, or raise --tcp-memory")
        }
        _ => None,
    }
}

/// The name of a value as the command line has it.
fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn time_wait(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(1)..=Duration::from_secs(3600))
}

fn keep_alive(text: &str) -> Result<Duration, String> {
    zero_or_within(
        text,
        Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 3600),
    )
}

fn user_timeout(text: &str) -> Result<Duration, String> {
    zero_or_within(text, Duration::from_millis(1)..=Duration::from_secs(6553))
}

/// Parses a time in this range, or 0.
fn zero_or_within(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Ok(Duration::ZERO),
        _ => within(text, range).map_err(|error| format!("{error}, or 0 for none")),
    }
}

/// Parses a time in this range.
fn within(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = seconds(text)?;
    match range.contains(&time) {
        true => Ok(time),
        false => Err(format!(
            "write a time from {} to {}",
            format_time(*range.start()),
            format_time(*range.end())
        )),
    }
}

/// Parses the size of a buffer.
fn buffer(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size(text)?).ok();
    let bytes = bytes.filter(|bytes| (LEAST_BUFFER..=MOST_BUFFER).contains(bytes));
    bytes.ok_or_else(|| "write a size from 4K to 1023M".into())
}

/// Parses the memory of all connections.
fn memory(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    match bytes >= LEAST_MEMORY {
        true => Ok(bytes),
        false => Err("write a size of 1M or more".into()),
    }
}

const MOST_HALF_OPEN: usize = 1 << 20;

/// Several segments of Ethernet.
const LEAST_BUFFER: u32 = 4 << 10;

/// The largest window of TCP is a little less than 1 GiB (RFC 7323, 2.3).
const MOST_BUFFER: u32 = 1023 << 20;

const LEAST_MEMORY: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[arg(long)]
        dev: Option<String>,
        #[command(flatten)]
        tcp: TcpArgs,
    }

    fn parse(arguments: &[&str]) -> Result<TcpArgs, String> {
        let arguments = ["test"].iter().chain(arguments);
        match Only::try_parse_from(arguments) {
            Ok(only) => {
                assert!(only.dev.is_none_or(|dev| dev == "lo"));
                Ok(only.tcp)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn defaults_are_the_library_s() {
        let settings = parse(&[]).unwrap().settings();
        assert_eq!(
            format!("{settings:?}"),
            format!("{:?}", TcpSettings::default())
        );
    }

    #[test]
    fn values() {
        let options = parse(&[
            "--dev=lo",
            "--tcp-time-wait=500ms",
            "--tcp-half-open=100000",
            "--tcp-cookies=never",
            "--tcp-keep-alive=10m",
            "--tcp-user-timeout=30",
            "--tcp-send-buffer=32K",
            "--tcp-receive-buffer=16M",
            "--tcp-memory=1G",
            "--tcp-ecn=on",
        ]);
        let settings = options.unwrap().settings();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!(settings.time_wait.duration, Duration::from_millis(500));
        let (one, all) = (settings.listen.half_open, settings.shared.half_open);
        assert_eq!((one, all), (100_000, 100_000));
        assert_eq!(settings.listen.cookies, CookieUse::Never);
        assert_eq!(settings.memory, 1 << 30);
        let connection = &settings.connection;
        assert!(connection.keep_alive.is_on);
        assert_eq!(connection.keep_alive.idle, Duration::from_secs(600));
        let send = &connection.send;
        assert_eq!(send.user_timeout, Some(Duration::from_secs(30)));
        assert_eq!((send.buffer, send.most_buffer), (32 << 10, 32 << 10));
        assert_eq!(connection.receive.most_buffer_bytes, 16 << 20);
        assert_eq!(connection.ecn, EcnMode::On);
    }

    #[test]
    fn mistakes() {
        for (argument, part) in [
            ("--tcp-time-wait=0", "a time from 1ms to 3600s"),
            ("--tcp-time-wait=2h", "a time from 1ms to 3600s"),
            ("--tcp-half-open=0", "from 1 to 1048576"),
            ("--tcp-cookies=maybe", "when-full"),
            ("--tcp-keep-alive=721h", "or 0 for none"),
            ("--tcp-keep-alive=2592001", "or 0 for none"),
            ("--tcp-user-timeout=6554", "to 6553s, or 0 for none"),
            ("--tcp-send-buffer=1K", "from 4K to 1023M"),
            ("--tcp-receive-buffer=1G", "from 4K to 1023M"),
            ("--tcp-memory=64K", "1M or more"),
            ("--tcp-ecn=2", "accept"),
        ] {
            let error = parse(&["--dev=lo", argument]).unwrap_err();
            assert!(error.contains(part), "{argument}: {error}");
        }
        let error = parse(&["--tcp-memory=1G"]).unwrap_err();
        assert!(error.contains("--dev"), "{error}");
    }

    #[test]
    fn buffers_beyond_the_memory_of_all_connections_name_their_flag() {
        for (memory, flag) in [("5M", "--tcp-receive-buffer"), ("3M", "--tcp-send-buffer")] {
            let options = parse(&["--dev=lo", "--tcp-memory", memory]).unwrap();
            let error = options.settings().check().unwrap_err();
            assert!(contradiction(&error).is_some_and(|text| text.starts_with(flag)));
        }
    }
}
