//! `getsockopt` and `setsockopt`.

use std::time::Duration;

use super::call::Outcome;
use super::constants::{pointed_value, value};
use super::sockets::Socket;
use super::{Runner, Stop};
use crate::errno::Errno;
use crate::host::{Host, SocketOptions};
use crate::syntax::{Call, Expression};

impl<H: Host> Runner<'_, H> {
    /// Compares the value of an option with the script's.
    pub(super) fn getsockopt(&mut self, number: i64, call: &Call) -> Result<Outcome, Stop> {
        let (Some(name), Some(expected)) = (option_name(call), call.arguments.get(3)) else {
            return Ok(Outcome::Failed(Errno::EINVAL));
        };
        let actual = self.option(number, name)?;
        let length = call.arguments.get(4).and_then(pointed_value);
        if !matches!(expected, Expression::Any) && pointed_value(expected) != Some(actual) {
            let shown = match (
                name,
                Errno::ALL
                    .iter()
                    .find(|(_, errno)| errno.number() == actual),
            ) {
                ("SO_ERROR", Some((errno, _))) => (*errno).to_owned(),
                _ => actual.to_string(),
            };
            return Err(Stop::Failed(format!("{name} is {shown}")));
        }
        match length {
            None | Some(4 | 8) => Ok(Outcome::Returned(0)),
            Some(_) => Err(Stop::Failed(format!("{name} has a length of 4"))),
        }
    }

    fn option(&mut self, number: i64, name: &str) -> Result<i64, Stop> {
        let descriptor = self.descriptor(number)?;
        let (socket, stated) = (descriptor.socket, descriptor.options.clone());
        let mut options = self.defaults.clone();
        options.update(&stated);
        // The host's word counts, not what the script has stated.
        if let Socket::Connection(id) | Socket::Listener(id) = socket {
            options.update(&self.host.options(id));
        }
        let seconds = |time: Option<Duration>, default| {
            time.unwrap_or(Duration::from_secs(default)).as_secs() as i64
        };
        Ok(match name {
            "SO_ERROR" => match socket {
                Socket::Connection(id) => self.host.take_error(id).map_or(0, Errno::number),
                Socket::Fresh(_) | Socket::Listener(_) => 0,
            },
            "SO_RCVBUF" => options.receive_buffer.unwrap_or(65_536).into(),
            "SO_SNDBUF" => options.send_buffer.unwrap_or(32_768).into(),
            "SO_KEEPALIVE" => options.keep_alive.unwrap_or(false).into(),
            "SO_TYPE" => 1,
            "SO_ACCEPTCONN" => matches!(socket, Socket::Listener(_)).into(),
            "TCP_NODELAY" => options.no_delay.unwrap_or(false).into(),
            "TCP_NOOPT" => options.no_options.unwrap_or(false).into(),
            "TCP_NOPUSH" | "TCP_CORK" => options.cork.unwrap_or(false).into(),
            "TCP_KEEPIDLE" => seconds(options.keep_alive_idle, 7200),
            "TCP_KEEPINTVL" => seconds(options.keep_alive_interval, 75),
            "TCP_KEEPINIT" => seconds(options.connect_timeout, 75),
            "TCP_KEEPCNT" => options.keep_alive_probes.unwrap_or(8).into(),
            "IP_TTL" | "IPV6_UNICAST_HOPS" => options.ttl.unwrap_or(64).into(),
            "IP_TOS" | "IPV6_TCLASS" => options.class.unwrap_or(0).into(),
            other => return Err(Stop::NotApplicable(format!("socket option {other}"))),
        })
    }

    /// Sets an option: at once for a connection or a listener, otherwise when the socket connects or listens. The error
    /// of a host that refuses leaves the option as it was.
    pub(super) fn setsockopt(&mut self, number: i64, call: &Call) -> Result<Outcome, Stop> {
        let (Some(name), Some(argument)) = (option_name(call), call.arguments.get(3)) else {
            return Ok(Outcome::Failed(Errno::EINVAL));
        };
        let mut change = SocketOptions::default();
        if let Err(outcome) = set(&mut change, name, argument) {
            return outcome;
        }
        let now = self.now;
        let result = match self.descriptor(number)?.socket {
            Socket::Connection(id) | Socket::Listener(id) => self.host.change(now, id, &change),
            Socket::Fresh(_) => Ok(()),
        };
        if result.is_ok() {
            self.descriptor(number)?.options.update(&change);
        }
        Outcome::of(result.map(|()| 0), true)
    }
}

fn option_name(call: &Call) -> Option<&str> {
    match call.arguments.get(2) {
        Some(Expression::Name(name)) => Some(name),
        _ => None,
    }
}

/// Puts the value of an option into `options`. The error is the outcome of the call.
fn set(
    options: &mut SocketOptions,
    name: &str,
    argument: &Expression,
) -> Result<(), Result<Outcome, Stop>> {
    let invalid = || Err(Ok(Outcome::Failed(Errno::EINVAL)));
    if name == "TCP_CONGESTION" {
        let text = match argument {
            Expression::List(elements) => elements.first().unwrap_or(argument),
            other => other,
        };
        return match text {
            Expression::Text(algorithm) => {
                options.congestion_control = Some(algorithm.clone());
                Ok(())
            }
            _ => invalid(),
        };
    }
    if name == "SO_LINGER" {
        let structure = match argument {
            Expression::List(elements) => elements.first().unwrap_or(argument),
            other => other,
        };
        let field = |name: &str| structure.field(name).and_then(value);
        let (Some(is_on), Some(seconds)) = (
            field("onoff").or_else(|| field("l_onoff")),
            field("linger").or_else(|| field("l_linger")),
        ) else {
            return invalid();
        };
        let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        options.linger = Some((is_on != 0).then_some(time));
        return Ok(());
    }
    let Some(number) = pointed_value(argument).and_then(|number| u64::try_from(number).ok()) else {
        return invalid();
    };
    let out_of_range = |_| Ok(Outcome::Failed(Errno::EINVAL));
    let seconds = Some(Duration::from_secs(number));
    match name {
        "SO_RCVBUF" => options.receive_buffer = Some(u32::try_from(number).map_err(out_of_range)?),
        "SO_SNDBUF" => options.send_buffer = Some(u32::try_from(number).map_err(out_of_range)?),
        "SO_KEEPALIVE" => options.keep_alive = Some(number != 0),
        "SO_MAX_PACING_RATE" => options.pacing_rate = Some(number),
        // A port of a script is never in use.
        "SO_REUSEADDR" | "SO_REUSEPORT" | "SO_REUSEPORT_LB" | "SO_NOSIGPIPE" | "SO_DEBUG" => {}
        "TCP_NODELAY" => options.no_delay = Some(number != 0),
        "TCP_NOPUSH" | "TCP_CORK" => options.cork = Some(number != 0),
        "TCP_NOOPT" => options.no_options = Some(number != 0),
        "TCP_MAXSEG" => options.mss = Some(u16::try_from(number).map_err(out_of_range)?),
        "TCP_KEEPIDLE" => options.keep_alive_idle = seconds,
        "TCP_KEEPINTVL" => options.keep_alive_interval = seconds,
        "TCP_KEEPINIT" => options.connect_timeout = seconds,
        "TCP_KEEPCNT" => {
            let probes = u8::try_from(number).map_err(out_of_range)?;
            options.keep_alive_probes = Some(probes.into());
        }
        "TCP_USER_TIMEOUT" => options.user_timeout = Some(Duration::from_millis(number)),
        "IP_TTL" | "IPV6_UNICAST_HOPS" if number == 0 => return invalid(),
        "IP_TTL" | "IPV6_UNICAST_HOPS" => {
            options.ttl = Some(u8::try_from(number).map_err(out_of_range)?)
        }
        "IP_TOS" | "IPV6_TCLASS" => {
            options.class = Some(u8::try_from(number).map_err(out_of_range)?)
        }
        other => return Err(Err(Stop::NotApplicable(format!("socket option {other}")))),
    }
    Ok(())
}
