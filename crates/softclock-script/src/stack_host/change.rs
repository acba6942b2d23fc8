//! Settings and options of sockets, as those of the stack.

use std::time::Duration;

use softclock_net::stack::{TcpListenSettings, TcpSettings};
use softclock_net::tcp::congestion::Algorithm;
use softclock_net::tcp::listen::CookieUse;
use softclock_net::tcp::peer::EcnMode;
use softclock_net::tcp::settings::{Linger, Settings};

use crate::host::{Refusal, SocketOptions};
use crate::settings::{EcnUse, Setting};

/// The settings of the sockets that are created next.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    stack: TcpSettings,
    listen: TcpListenSettings,
    /// Acknowledgments are not delayed, whatever the delay is.
    acks_at_once: bool,
    /// SYN cookies are switched off.
    refuses_cookies: bool,
    /// Each SYN is answered by a cookie, even if they are switched off.
    only_cookies: bool,
}

impl Chosen {
    /// Changes a setting. Those that the stack does not have are refused, unless the value is what the stack does.
    pub(super) fn set(&mut self, setting: &Setting) -> Result<(), Refusal> {
        let connection = &mut self.stack.connection;
        let listen = self.listen.listen.get_or_insert_default();
        match setting {
            Setting::Sack(is_on) => connection.has_sack = *is_on,
            Setting::Timestamps(is_on) => connection.has_timestamps = *is_on,
            Setting::WindowScaling(is_on) => connection.has_window_scale = *is_on,
            Setting::Ecn(ecn) => {
                connection.ecn = match ecn {
                    EcnUse::Off => EcnMode::Off,
                    EcnUse::Accepted => EcnMode::Accept,
                    EcnUse::Offered => EcnMode::On,
                };
            }
            Setting::ReceiveBuffer(bytes) => connection.receive.buffer_bytes = *bytes,
            Setting::SendBuffer(bytes) => connection.send.buffer = *bytes,
            Setting::MostBuffer(bytes) => {
                connection.receive.most_buffer_bytes = *bytes;
                connection.send.most_buffer = *bytes;
            }
            Setting::DropSynFin(is_on) => {
                listen.drops_syn_fin = *is_on;
                connection.drops_syn_fin = *is_on;
            }
            Setting::InsecureReset(is_on) => {
                listen.trust.resets_in_window = *is_on;
                connection.trust.resets_in_window = *is_on;
            }
            Setting::InsecureSyn(is_on) => {
                listen.trust.syns_in_window = *is_on;
                self.stack.time_wait.trust.syns_in_window = *is_on;
                connection.trust.syns_in_window = *is_on;
            }
            Setting::InitialRto(time) => {
                connection.syn_timeout = *time;
                connection.send.initial_timeout = *time;
                listen.initial_timeout = *time;
            }
            Setting::LeastRto(time) => connection.send.minimum_timeout = *time,
            Setting::AckDelay(time) => connection.receive.ack_delay = *time,
            Setting::DelaysAcks(is_on) => self.acks_at_once = !is_on,
            Setting::KeepAlive(is_on) => connection.keep_alive.is_on = *is_on,
            Setting::KeepAliveIdle(time) => connection.keep_alive.idle = *time,
            Setting::KeepAliveInterval(time) => connection.keep_alive.interval = *time,
            Setting::KeepAliveProbes(count) => {
                connection.keep_alive.probes = u8::try_from(*count).unwrap_or(u8::MAX);
            }
            Setting::Cookies(is_on) => self.refuses_cookies = !is_on,
            Setting::CookiesOnly(is_on) => self.only_cookies = *is_on,
            Setting::SynQueue(count) => listen.half_open = *count as usize,
            Setting::TimeWait(time) => self.stack.time_wait.duration = *time,
            Setting::TimeWaitGivesWay(is_on) => self.stack.time_wait.gives_way = *is_on,
            Setting::FinWait2(time) => connection.fin_wait_2 = *time,
            Setting::InitialWindow(segments) => {
                connection.send.congestion.initial_segments =
                    u8::try_from(*segments).unwrap_or(u8::MAX);
            }
            Setting::LeastMss(bytes) => connection.least_mss = *bytes,
            Setting::CongestionControl(name) => {
                connection.send.congestion.algorithm = algorithm(name)?;
            }
            Setting::Pacing(is_on) => connection.send.pacing.is_enabled = *is_on,
            // A new stack knows no paths. A closed port answers.
            Setting::ForgetPaths | Setting::SilentPorts(0) | Setting::PathMtuDiscovery(true) => {}
            Setting::InsecureAck(false) | Setting::DropSynOptions(false) => {}
            Setting::PacingRate(0) => {}
            Setting::IcmpAborts(is_on) => connection.hard_errors_abort = *is_on,
            Setting::ConnectTimeout(time) => connection.connect_timeout = Some(*time),
            Setting::SynSlop(time) => connection.syn_slop = *time,
            Setting::EcnRetries(count) => {
                connection.ecn_retries = u8::try_from(*count).unwrap_or(u8::MAX);
            }
            other => return Err(unsupported(&format!("setting {other:?}"))),
        }
        Ok(())
    }

    /// The settings of a new stack.
    pub(super) fn stack_settings(&self) -> TcpSettings {
        self.stack.clone()
    }

    /// The settings of a new listener.
    pub(super) fn listen_settings(
        &self,
        backlog: usize,
        options: &SocketOptions,
    ) -> Result<TcpListenSettings, Refusal> {
        let mut settings = self.listen.clone();
        settings.backlog = Some(backlog.max(1));
        settings.connection = Some(self.connection_settings(options)?);
        settings.listen.get_or_insert_default().cookies =
            match (self.only_cookies, self.refuses_cookies) {
                (true, _) => CookieUse::Always,
                (false, true) => CookieUse::Never,
                (false, false) => CookieUse::WhenFull,
            };
        let mut all = self.stack.clone();
        all.listen = settings.listen.unwrap_or_default();
        check(&all)?;
        Ok(settings)
    }

    /// The settings of a connection with these options.
    pub(super) fn connection_settings(&self, options: &SocketOptions) -> Result<Settings, Refusal> {
        let mut settings = self.stack.connection.clone();
        if self.acks_at_once {
            settings.receive.ack_delay = Duration::ZERO;
        }
        apply(&mut settings, options)?;
        Ok(settings)
    }
}

/// Refuses values that the stack does not promise to bear.
pub(super) fn check(settings: &TcpSettings) -> Result<(), Refusal> {
    let result = settings.check();
    result.map_err(|error| Refusal::Unsupported(error.to_string()))
}

/// Puts the stated options of a socket into the settings of a connection that exists. Those that count for new
/// connections only are refused.
pub(super) fn apply_to_connection(
    settings: &mut Settings,
    options: &SocketOptions,
) -> Result<(), Refusal> {
    let fixed = [
        (options.receive_buffer.is_some(), "SO_RCVBUF"),
        (options.send_buffer.is_some(), "SO_SNDBUF"),
        (options.mss.is_some(), "TCP_MAXSEG"),
        (options.congestion_control.is_some(), "TCP_CONGESTION"),
    ];
    match fixed.iter().find(|(is_stated, _)| *is_stated) {
        Some((_, name)) => Err(unsupported(&format!(
            "socket option {name} of a connection"
        ))),
        None => apply(settings, options),
    }
}

/// Puts the stated options of a socket into the settings of its connection.
fn apply(settings: &mut Settings, options: &SocketOptions) -> Result<(), Refusal> {
    let SocketOptions {
        receive_buffer,
        send_buffer,
        keep_alive,
        keep_alive_idle,
        keep_alive_interval,
        keep_alive_probes,
        connect_timeout,
        user_timeout,
        no_delay,
        cork,
        no_options,
        mss,
        linger,
        ttl,
        class,
        pacing_rate: _,
        congestion_control,
    } = options;
    if let Some(bytes) = receive_buffer {
        // A buffer whose size the program states does not grow.
        settings.receive.buffer_bytes = *bytes;
        settings.receive.most_buffer_bytes = *bytes;
    }
    if let Some(bytes) = send_buffer {
        settings.send.buffer = *bytes;
        settings.send.most_buffer = *bytes;
    }
    let keep = &mut settings.keep_alive;
    keep.is_on = keep_alive.unwrap_or(keep.is_on);
    keep.idle = keep_alive_idle.unwrap_or(keep.idle);
    keep.interval = keep_alive_interval.unwrap_or(keep.interval);
    if let Some(probes) = keep_alive_probes {
        keep.probes = u8::try_from(*probes).unwrap_or(u8::MAX);
    }
    if user_timeout.is_some() {
        settings.send.user_timeout = user_timeout.filter(|time| !time.is_zero());
    }
    if let Some(is_on) = no_delay {
        settings.send.has_nagle = !is_on;
    }
    if mss.is_some() {
        settings.most_mss = *mss;
    }
    if let Some(linger) = linger {
        settings.linger = linger.map_or(Linger::Background, Linger::AtMost);
    }
    settings.hop_limit = ttl.unwrap_or(settings.hop_limit);
    settings.dscp = class.map_or(settings.dscp, |class| class >> 2);
    if let Some(name) = congestion_control {
        settings.send.congestion.algorithm = algorithm(name)?;
    }
    settings.connect_timeout = connect_timeout.or(settings.connect_timeout);
    let missing = [
        (*cork == Some(true), "TCP_CORK"),
        (*no_options == Some(true), "TCP_NOOPT"),
    ];
    match missing.iter().find(|(is_set, _)| *is_set) {
        Some((_, name)) => Err(unsupported(&format!("socket option {name}"))),
        None => {
            let mut all = TcpSettings::default();
            all.connection = settings.clone();
            check(&all)
        }
    }
}

/// The options that a connection with these settings has.
pub(super) fn options(settings: &Settings) -> SocketOptions {
    let keep = &settings.keep_alive;
    SocketOptions {
        receive_buffer: Some(settings.receive.buffer_bytes),
        send_buffer: Some(settings.send.buffer),
        keep_alive: Some(keep.is_on),
        keep_alive_idle: Some(keep.idle),
        keep_alive_interval: Some(keep.interval),
        keep_alive_probes: Some(keep.probes.into()),
        connect_timeout: settings.connect_timeout,
        user_timeout: settings.send.user_timeout,
        no_delay: Some(!settings.send.has_nagle),
        cork: Some(false),
        no_options: Some(false),
        mss: settings.most_mss,
        linger: Some(match settings.linger {
            Linger::Background => None,
            Linger::AtMost(time) => Some(time),
        }),
        ttl: Some(settings.hop_limit),
        class: Some(settings.dscp << 2),
        pacing_rate: None,
        congestion_control: None,
    }
}

fn algorithm(name: &str) -> Result<Algorithm, Refusal> {
    match name {
        "newreno" | "reno" => Ok(Algorithm::NewReno),
        "cubic" => Ok(Algorithm::Cubic),
        other => Err(unsupported(&format!("congestion control {other}"))),
    }
}

fn unsupported(what: &str) -> Refusal {
    Refusal::Unsupported(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(settings: &[Setting]) -> TcpListenSettings {
        let mut chosen = Chosen::default();
        for setting in settings {
            chosen.set(setting).unwrap();
        }
        let options = SocketOptions::default();
        chosen.listen_settings(1, &options).unwrap()
    }

    #[test]
    fn settings_can_be_restored_in_any_order() {
        let cookies = |settings: &[Setting]| chosen(settings).listen.unwrap().cookies;
        let (off, only) = (Setting::Cookies(false), Setting::CookiesOnly(true));
        let (on, not_only) = (Setting::Cookies(true), Setting::CookiesOnly(false));
        assert_eq!(cookies(&[]), CookieUse::WhenFull);
        assert_eq!(cookies(&[off.clone(), not_only.clone()]), CookieUse::Never);
        assert_eq!(cookies(&[not_only.clone(), off.clone()]), CookieUse::Never);
        assert_eq!(cookies(&[only.clone(), on.clone()]), CookieUse::Always);
        assert_eq!(cookies(&[off, only, not_only, on]), CookieUse::WhenFull);

        let delay = |settings: &[Setting]| chosen(settings).connection.unwrap().receive.ack_delay;
        let default = Settings::default().receive.ack_delay;
        let time = Duration::from_millis(100);
        let (off, on) = (Setting::DelaysAcks(false), Setting::DelaysAcks(true));
        let set = Setting::AckDelay(time);
        assert_eq!(delay(&[off.clone(), on.clone()]), default);
        assert_eq!(delay(&[off.clone(), set.clone()]), Duration::ZERO);
        assert_eq!(delay(&[off, set, on]), time);
    }
}
