//! The options of a script.

use std::net::IpAddr;
use std::time::Duration;

use super::Stop;
use crate::host::Network;
use crate::syntax::{Script, ScriptOption};

/// What a script's options say; the defaults are packetdrill's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// The addresses and the MTU.
    pub network: Network,
    /// The port that `bind` takes.
    pub bind_port: u16,
    /// The remote end's port for `connect`.
    pub connect_port: u16,
    /// By how much a time may differ from that in the script.
    pub tolerance: Duration,
    /// The time between two values of the host's time stamps; none: the values are not compared.
    pub timestamp_tick: Option<Duration>,
    /// Whether a system call with another result than the script's lets the script go on.
    pub ignores_calls: bool,
}

impl Environment {
    /// Reads the options of a script.
    pub(super) fn new(script: &Script) -> Result<Self, Stop> {
        let version = script
            .options
            .iter()
            .rev()
            .find(|option| option.name == "ip_version");
        let is_v6 = match version.and_then(|option| option.value.as_deref()) {
            None | Some("ipv4" | "ipv4-mapped-ipv6") => false,
            Some("ipv6") => true,
            Some(other) => return Err(Stop::Failed(format!("unknown IP version {other}"))),
        };
        let mut environment = Self {
            network: network(is_v6),
            bind_port: 8080,
            connect_port: 8080,
            tolerance: Duration::from_millis(4),
            timestamp_tick: None,
            ignores_calls: false,
        };
        for option in &script.options {
            environment.apply(option)?;
        }
        let network = &environment.network;
        let all = [network.local, network.gateway, network.remote];
        if all.iter().any(|address| address.is_ipv6() != is_v6) {
            return Err(Stop::failed("the addresses are not all of the IP version"));
        }
        Ok(environment)
    }

    fn apply(&mut self, option: &ScriptOption) -> Result<(), Stop> {
        let value = option.value.as_deref().unwrap_or_default();
        let mistake = || {
            let ScriptOption { at, name, .. } = option;
            Stop::Failed(format!("{at}: option {name} cannot be {value}"))
        };
        let number = || value.parse::<u64>().map_err(|_| mistake());
        let port = || value.parse::<u16>().map_err(|_| mistake());
        let address = || value.parse::<IpAddr>().map_err(|_| mistake());
        match option.name.as_str() {
            "local_ip" => self.network.local = address()?,
            "remote_ip" => {
                // A prefix may follow the address, since the remote end can be a network.
                let address = value.split('/').next().unwrap_or_default();
                self.network.remote = address.parse().map_err(|_| mistake())?;
            }
            "gateway_ip" => self.network.gateway = address()?,
            "netmask_ip" => match value.parse::<IpAddr>() {
                Ok(IpAddr::V4(mask)) => {
                    self.network.prefix_bits = mask.to_bits().leading_ones() as u8;
                }
                _ => return Err(mistake()),
            },
            "bind_port" => self.bind_port = port()?,
            "connect_port" => self.connect_port = port()?,
            // The minimum of IPv4 (RFC 791), and the longest packet.
            "mtu" => match usize::from(value.parse::<u16>().map_err(|_| mistake())?) {
                mtu @ 68.. => self.network.mtu = mtu,
                _ => return Err(mistake()),
            },
            "tolerance_usecs" => self.tolerance = Duration::from_micros(number()?),
            "tcp_ts_tick_usecs" => {
                let tick = Duration::from_micros(number()?);
                self.timestamp_tick = Some(tick).filter(|tick| !tick.is_zero());
            }
            "non_fatal" => self.ignores_calls = value.split(',').any(|name| name == "syscall"),
            "udp_encapsulation" => return Err(Stop::not_applicable("TCP over UDP")),
            "tcp_md5_secret" => return Err(Stop::not_applicable("MD5 signatures")),
            // Those about the runner itself do not change what is expected of the host.
            "ip_version" | "verbose" | "speed" | "dry_run" | "debug" | "code" | "init_scripts"
            | "define" | "tolerance_percent" | "wire_client" | "wire_server"
            | "persistent_tun_dev" => {}
            other => return Err(Stop::not_applicable(&format!("option {other}"))),
        }
        Ok(())
    }
}

/// The network of packetdrill by default: a host, a router beside it, and a remote end in a network for documentation.
fn network(is_v6: bool) -> Network {
    let v4 = |a, b, c, d| IpAddr::from([a, b, c, d]);
    let v6 = |words: [u16; 8]| IpAddr::from(words);
    match is_v6 {
        false => Network {
            local: v4(192, 168, 0, 1),
            prefix_bits: 16,
            gateway: v4(192, 168, 0, 2),
            remote: v4(192, 0, 2, 1),
            mtu: 1500,
        },
        true => Network {
            local: v6([0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1]),
            prefix_bits: 48,
            gateway: v6([0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 2]),
            remote: v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
            mtu: 1500,
        },
    }
}
