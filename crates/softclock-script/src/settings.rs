//! Settings of a host: those that scripts change by `sysctl`, and those of directives.
//!
//! | `sysctl` of FreeBSD | directive | setting |
//! |---|---|---|
//! | `net.inet.tcp.sack.enable` | `sack` | [`Setting::Sack`] |
//! | `net.inet.tcp.rfc1323` | `timestamps`, `window_scaling` | both, or 2 and 3 for one of them |
//! | `net.inet.tcp.ecn.enable` | `ecn` | [`Setting::Ecn`] |
//! | `net.inet.tcp.ecn.maxretries` | `ecn_retries` | [`Setting::EcnRetries`] |
//! | `net.inet.tcp.recvspace` | `receive_buffer` | [`Setting::ReceiveBuffer`] |
//! | `net.inet.tcp.sendspace` | `send_buffer` | [`Setting::SendBuffer`] |
//! | `kern.ipc.maxsockbuf` | `most_buffer` | [`Setting::MostBuffer`] |
//! | `net.inet.tcp.insecure_rst` | `insecure_reset` | [`Setting::InsecureReset`] |
//! | `net.inet.tcp.insecure_syn` | `insecure_syn` | [`Setting::InsecureSyn`] |
//! | `net.inet.tcp.insecure_ack` | `insecure_ack` | [`Setting::InsecureAck`] |
//! | `net.inet.tcp.drop_synfin` | `drop_syn_fin` | [`Setting::DropSynFin`] |
//! | `net.inet.tcp.blackhole` | `silent_ports` | [`Setting::SilentPorts`] |
//! | `net.inet.tcp.rexmit_initial` | `initial_rto` | [`Setting::InitialRto`] |
//! | `net.inet.tcp.rexmit_min` | `least_rto` | [`Setting::LeastRto`] |
//! | `net.inet.tcp.rexmit_slop` | `syn_slop` | [`Setting::SynSlop`], for SYNs only |
//! | `net.inet.tcp.rexmit_drop_options` | `drop_syn_options` | [`Setting::DropSynOptions`] |
//! | `net.inet.tcp.delayed_ack` | `delays_acks` | [`Setting::DelaysAcks`] |
//! | `net.inet.tcp.delacktime` | `ack_delay` | [`Setting::AckDelay`] |
//! | `net.inet.tcp.keepinit` | `connect_timeout` | [`Setting::ConnectTimeout`] |
//! | `net.inet.tcp.keepidle` | `keep_alive_idle` | [`Setting::KeepAliveIdle`] |
//! | `net.inet.tcp.keepintvl` | `keep_alive_interval` | [`Setting::KeepAliveInterval`] |
//! | `net.inet.tcp.keepcnt` | `keep_alive_probes` | [`Setting::KeepAliveProbes`] |
//! | `net.inet.tcp.always_keepalive` | `keep_alive` | [`Setting::KeepAlive`] |
//! | `net.inet.tcp.icmp_may_rst` | `icmp_aborts` | [`Setting::IcmpAborts`] |
//! | `net.inet.tcp.path_mtu_discovery` | `path_mtu_discovery` | [`Setting::PathMtuDiscovery`] |
//! | `net.inet.tcp.hostcache.purgenow` | `forget_paths` | [`Setting::ForgetPaths`] |
//! | `net.inet.tcp.syncookies` | `cookies` | [`Setting::Cookies`] |
//! | `net.inet.tcp.syncookies_only` | `cookies_only` | [`Setting::CookiesOnly`] |
//! | `net.inet.tcp.msl` | `time_wait` | [`Setting::TimeWait`], twice the value |
//! | `#ifdef STANDARD` in the script | `time_wait_gives_way` | [`Setting::TimeWaitGivesWay`], switched off |
//! | `net.inet.tcp.finwait2_timeout` | `fin_wait_2` | [`Setting::FinWait2`] |
//! | `net.inet.tcp.initcwnd_segments` | `initial_window` | [`Setting::InitialWindow`] |
//! | `net.inet.tcp.minmss` | `least_mss` | [`Setting::LeastMss`] |
//! | `net.inet.tcp.mssdflt` | `default_mss` | [`Setting::DefaultMss`] |
//! | `net.inet.tcp.cc.algorithm` | `congestion_control` | [`Setting::CongestionControl`] |
//! | `net.inet.tcp.nolocaltimewait`, `net.inet.tcp.log_debug` and the like | | none: they change no segment here |
//!
//! Times of directives are in milliseconds, as FreeBSD's are.

use std::time::Duration;

/// A setting of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Setting {
    /// Whether selective acknowledgments are offered.
    Sack(bool),
    /// Whether time stamps are offered.
    Timestamps(bool),
    /// Whether window scaling is offered.
    WindowScaling(bool),
    /// Whether ECN is used.
    Ecn(EcnUse),
    /// The SYNs that are repeated with ECN before one without.
    EcnRetries(u32),
    /// The bytes of receive buffers.
    ReceiveBuffer(u32),
    /// The bytes of send buffers.
    SendBuffer(u32),
    /// The most bytes to which a buffer grows, or may be set.
    MostBuffer(u32),
    /// Whether any RST in the window resets a connection (RFC 793), not only one at its left edge (RFC 5961, 3).
    InsecureReset(bool),
    /// Whether a SYN in the window resets a connection (RFC 793), instead of being answered (RFC 5961, 4).
    InsecureSyn(bool),
    /// Whether acknowledgments of old data are accepted without the check of RFC 5961, 5.
    InsecureAck(bool),
    /// Whether segments with SYN and FIN are dropped.
    DropSynFin(bool),
    /// Whether segments for closed ports are answered: 0 by RST; 1 not if they are SYNs; 2 and 3 not.
    SilentPorts(u32),
    /// The first retransmission timeout (RFC 6298, 2.1).
    InitialRto(Duration),
    /// The least retransmission timeout.
    LeastRto(Duration),
    /// A time that is added to each doubled timeout of the SYN of `connect`. FreeBSD adds it to those of SYN-ACKs and
    /// of data, too: a script that expects these differs.
    SynSlop(Duration),
    /// Whether later SYNs are sent without options.
    DropSynOptions(bool),
    /// Whether acknowledgments are delayed.
    DelaysAcks(bool),
    /// The longest delay of an acknowledgment.
    AckDelay(Duration),
    /// How long connecting may take.
    ConnectTimeout(Duration),
    /// The idle time before the first keep-alive probe.
    KeepAliveIdle(Duration),
    /// The time between keep-alive probes.
    KeepAliveInterval(Duration),
    /// The keep-alive probes without an answer that end a connection.
    KeepAliveProbes(u32),
    /// Whether connections are probed unless their owner says otherwise.
    KeepAlive(bool),
    /// Whether hard errors of ICMP abort connections that are being opened.
    IcmpAborts(bool),
    /// Whether the path's MTU is discovered.
    PathMtuDiscovery(bool),
    /// Forgets what is known about paths.
    ForgetPaths,
    /// Whether SYN cookies are used when the queue of SYNs is full.
    Cookies(bool),
    /// Whether SYN cookies are always used.
    CookiesOnly(bool),
    /// The time of a connection in TIME-WAIT.
    TimeWait(Duration),
    /// Whether a connection in TIME-WAIT gives way to a SYN that is surely newer (RFC 6191), which the standard allows
    /// but does not demand.
    TimeWaitGivesWay(bool),
    /// The time of a closed connection in FIN-WAIT-2.
    FinWait2(Duration),
    /// The initial window, in segments.
    InitialWindow(u32),
    /// The least segment size that a peer can impose.
    LeastMss(u16),
    /// The segment size for a peer that states none.
    DefaultMss(u16),
    /// The algorithm of congestion control, by its name.
    CongestionControl(String),
    /// The rate at which a connection sends at most, in bytes per second; 0 for none.
    PacingRate(u64),
    /// Whether segments are spread over the round trip.
    Pacing(bool),
    /// The half-open connections of a listener before cookies begin.
    SynQueue(u32),
    /// A setting of the host with a name of its own.
    Other(String, String),
}

/// Whether ECN is used (RFC 3168, 6.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcnUse {
    /// Neither offered nor accepted.
    Off,
    /// Accepted from peers.
    Accepted,
    /// Offered and accepted.
    Offered,
}

/// The result of a `sysctl` or a directive.
pub type Settings = Result<Vec<Setting>, String>;

/// The settings that a variable of `sysctl` stands for: none if it changes no segment of this runner's scripts.
///
/// # Errors
/// The variable is unknown, or its value is not of its type.
///
/// ```
/// use softclock_script::settings::{Setting, of_sysctl};
///
/// assert_eq!(of_sysctl("net.inet.tcp.sack.enable", "0"), Ok(vec![Setting::Sack(false)]));
/// assert!(of_sysctl("net.inet.tcp.unheard_of", "0").is_err());
/// ```
pub fn of_sysctl(name: &str, value: &str) -> Settings {
    let short = name.strip_prefix("net.inet.tcp.").unwrap_or(name);
    let directive = match short {
        "sack.enable" => "sack",
        "rfc1323" => return rfc1323(value),
        "ecn.enable" => "ecn",
        "ecn.maxretries" => "ecn_retries",
        "recvspace" => "receive_buffer",
        "sendspace" => "send_buffer",
        "kern.ipc.maxsockbuf" => "most_buffer",
        "insecure_rst" => "insecure_reset",
        "insecure_syn" => "insecure_syn",
        "insecure_ack" => "insecure_ack",
        "drop_synfin" => "drop_syn_fin",
        "blackhole" => "silent_ports",
        "rexmit_initial" => "initial_rto",
        "rexmit_min" => "least_rto",
        "rexmit_slop" => "syn_slop",
        "rexmit_drop_options" => "drop_syn_options",
        "delayed_ack" => "delays_acks",
        "delacktime" => "ack_delay",
        "keepinit" => "connect_timeout",
        "keepidle" => "keep_alive_idle",
        "keepintvl" => "keep_alive_interval",
        "keepcnt" => "keep_alive_probes",
        "always_keepalive" => "keep_alive",
        "icmp_may_rst" => "icmp_aborts",
        "path_mtu_discovery" => "path_mtu_discovery",
        "hostcache.purgenow" => return Ok(vec![Setting::ForgetPaths]),
        "syncookies" => "cookies",
        "syncookies_only" => "cookies_only",
        "msl" => {
            return number(name, value)
                .map(|ms| vec![Setting::TimeWait(milliseconds(ms.saturating_mul(2)))]);
        }
        "finwait2_timeout" => "fin_wait_2",
        "initcwnd_segments" => "initial_window",
        "minmss" => "least_mss",
        "mssdflt" | "v6mssdflt" => "default_mss",
        "cc.algorithm" => "congestion_control",
        // Neither reports nor the sharing of what is known about a path change a segment of a script with one
        // connection after a purge.
        "log_debug"
        | "log_in_vain"
        | "hostcache.enable"
        | "hostcache.expire"
        | "hostcache.prune"
        | "nolocaltimewait"
        | "fast_finwait2_recycle" => return Ok(Vec::new()),
        _ => return Err(format!("sysctl {name}")),
    };
    of_directive(directive, value).map_err(|_| format!("sysctl {name}={value}"))
}

/// The settings that a directive `//@ set NAME=VALUE` stands for. A name that is not in the list above is left to the
/// host, as [`Setting::Other`].
///
/// # Errors
/// The value is not of the setting's type.
pub fn of_directive(name: &str, value: &str) -> Settings {
    let flag = |make: fn(bool) -> Setting| number(name, value).map(|number| make(number != 0));
    let time = |make: fn(Duration) -> Setting| number(name, value).map(|ms| make(milliseconds(ms)));
    let count = |make: fn(u32) -> Setting| {
        let number = number(name, value)?;
        u32::try_from(number)
            .map(make)
            .map_err(|_| mistaken(name, value))
    };
    let size = |make: fn(u16) -> Setting| {
        let number = number(name, value)?;
        u16::try_from(number)
            .map(make)
            .map_err(|_| mistaken(name, value))
    };
    let setting = match name {
        "sack" => flag(Setting::Sack),
        "timestamps" => flag(Setting::Timestamps),
        "window_scaling" => flag(Setting::WindowScaling),
        "ecn" => match value {
            "0" => Ok(Setting::Ecn(EcnUse::Off)),
            "1" => Ok(Setting::Ecn(EcnUse::Offered)),
            "2" => Ok(Setting::Ecn(EcnUse::Accepted)),
            _ => Err(mistaken(name, value)),
        },
        "ecn_retries" => count(Setting::EcnRetries),
        "receive_buffer" => count(Setting::ReceiveBuffer),
        "send_buffer" => count(Setting::SendBuffer),
        "most_buffer" => count(Setting::MostBuffer),
        "insecure_reset" => flag(Setting::InsecureReset),
        "insecure_syn" => flag(Setting::InsecureSyn),
        "insecure_ack" => flag(Setting::InsecureAck),
        "drop_syn_fin" => flag(Setting::DropSynFin),
        "silent_ports" => count(Setting::SilentPorts),
        "initial_rto" => time(Setting::InitialRto),
        "least_rto" => time(Setting::LeastRto),
        "syn_slop" => time(Setting::SynSlop),
        "drop_syn_options" => flag(Setting::DropSynOptions),
        "delays_acks" => flag(Setting::DelaysAcks),
        "ack_delay" => time(Setting::AckDelay),
        "connect_timeout" => time(Setting::ConnectTimeout),
        "keep_alive_idle" => time(Setting::KeepAliveIdle),
        "keep_alive_interval" => time(Setting::KeepAliveInterval),
        "keep_alive_probes" => count(Setting::KeepAliveProbes),
        "keep_alive" => flag(Setting::KeepAlive),
        "icmp_aborts" => flag(Setting::IcmpAborts),
        "path_mtu_discovery" => flag(Setting::PathMtuDiscovery),
        "forget_paths" => Ok(Setting::ForgetPaths),
        "cookies" => flag(Setting::Cookies),
        "cookies_only" => flag(Setting::CookiesOnly),
        "time_wait" => time(Setting::TimeWait),
        "time_wait_gives_way" => flag(Setting::TimeWaitGivesWay),
        "fin_wait_2" => time(Setting::FinWait2),
        "initial_window" => count(Setting::InitialWindow),
        "least_mss" => size(Setting::LeastMss),
        "default_mss" => size(Setting::DefaultMss),
        "congestion_control" => Ok(Setting::CongestionControl(value.to_owned())),
        "pacing_rate" => number(name, value).map(Setting::PacingRate),
        "pacing" => flag(Setting::Pacing),
        "syn_queue" => count(Setting::SynQueue),
        _ => Ok(Setting::Other(name.to_owned(), value.to_owned())),
    };
    setting.map(|setting| vec![setting])
}

fn rfc1323(value: &str) -> Settings {
    let (has_scale, has_timestamps) = match value {
        "0" => (false, false),
        "1" => (true, true),
        "2" => (true, false),
        "3" => (false, true),
        _ => return Err(mistaken("net.inet.tcp.rfc1323", value)),
    };
    Ok(vec![
        Setting::WindowScaling(has_scale),
        Setting::Timestamps(has_timestamps),
    ])
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| mistaken(name, value))
}

fn mistaken(name: &str, value: &str) -> String {
    format!("{name} cannot be {value}")
}

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}
