//! The options of a network stack of the command's own, which `echo`, `serve` and `proxy` share.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use softclock::net::stack::{
    Architecture, InterruptDelay, LinkAddress, Prefix, StackMechanism, StackOptions, Transport,
};

use softclock::signalling::{LatencyBound, Policy};

use super::{PcapOptions, napi, signalling};

/// Options of a stack on an interface.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Stack")]
pub(crate) struct StackArgs {
    /// Interface on which the command has a network stack of its own, shared with the host; tap:NAME creates a TAP
    /// device, whose other end is the host's
    #[arg(long, value_name = "IF")]
    pub(crate) dev: Option<String>,

    /// Address of the stack with its prefix, such as 192.0.2.7/24 or 2001:db8::7/64; may be repeated. Or host: the
    /// stack takes its ports at the addresses that the host has on the interface, by AF_XDP, and the host keeps all
    /// others
    #[arg(long, value_name = "A/PREFIX|host", requires = "dev", value_parser = address)]
    pub(crate) address: Vec<StackAddress>,

    /// Router of the stack to other networks; once for each version of IP
    #[arg(long, value_name = "A", requires = "dev", value_parser = router)]
    pub(crate) gateway: Vec<IpAddr>,

    /// The stack's own address on the link [default: a random one]
    #[arg(long, value_name = "MAC", requires = "dev", value_parser = link_address)]
    pub(crate) link_address: Option<LinkAddress>,

    /// Longest packet of the stack, at least 576, or 1280 with an address of IPv6; a TAP device gets it as its MTU
    /// [default: the MTU of the interface]
    #[arg(long, value_name = "BYTES", requires = "dev", value_parser = mtu)]
    pub(crate) mtu: Option<u16>,

    /// Mechanism by which the stack receives and sends frames
    #[arg(long, value_name = "NAME", value_enum, default_value_t = MechanismName::Auto, requires = "dev")]
    pub(crate) mechanism: MechanismName,

    /// When the stack demultiplexes and processes packets
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ArchitectureName::SoftLrp, requires = "dev")]
    pub(crate) architecture: ArchitectureName,

    #[arg(
        long,
        value_name = "POLICY",
        default_value = "automatic",
        value_parser = signalling::policy,
        help = signalling::HELP,
        long_help = signalling::long_help(signalling::HELP)
    )]
    pub(crate) signalling: Policy,

    /// Longest time between two looks of soft-poll and automatic: 20us to 10ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = signalling::latency)]
    pub(crate) signalling_latency: LatencyBound,

    /// Delay the interrupts of the interface, such as flush=200us or defer=2,flush=50us,suspend=20ms: with flush=TIME
    /// the kernel polls the device at this interval, until defer=ROUNDS (1) polls in a row find nothing; with
    /// suspend=TIME a thread with --busy-poll masks them for up to this time. Undone at the end, also after kill -9.
    /// Needs CAP_NET_ADMIN
    #[arg(long, value_name = "SETTINGS", value_parser = napi::delay)]
    pub(crate) napi: Option<InterruptDelay>,

    /// The capture of its frames.
    #[command(flatten)]
    pub(crate) pcap: PcapOptions,
}

/// A value of `--address`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StackAddress {
    /// An address of the stack's own.
    Own(Prefix),
    /// The addresses of the host.
    Host,
}

/// The values of `--mechanism`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MechanismName {
    /// AF_XDP where the driver does it without copies, with at most 16 queues (one for ni-lrp) and rxvlan off; else AF_PACKET
    Auto,
    /// AF_PACKET
    Packet,
    /// AF_XDP, even if the driver copies frames
    Xdp,
}

/// The values of `--architecture`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArchitectureName {
    /// All work when a packet arrives, through one queue
    Bsd,
    /// Discard when a packet arrives and its receiver is behind; all other work at once, too
    EarlyDemux,
    /// Discard when a packet arrives and its receiver is behind; other work when the receiver asks
    SoftLrp,
    /// The same, with the discard in the driver's XDP program; implies --mechanism xdp
    NiLrp,
}

impl StackArgs {
    /// Whether the stack shares the addresses of the host.
    pub(crate) fn shares_host(&self) -> bool {
        self.address.contains(&StackAddress::Host)
    }

    /// The stack's own addresses.
    pub(crate) fn own_addresses(&self) -> impl Iterator<Item = Prefix> {
        let own = |address: &StackAddress| match address {
            StackAddress::Own(prefix) => Some(*prefix),
            StackAddress::Host => None,
        };
        self.address.iter().filter_map(own)
    }

    /// The policy, with its latency bound.
    pub(crate) fn policy(&self) -> Policy {
        self.signalling.with_bound(self.signalling_latency)
    }

    /// The settings of a stack on the interface `dev`. If it shares the addresses of the host, it has these ports.
    pub(crate) fn options(&self, dev: String, ports: Vec<(Transport, u16)>) -> StackOptions {
        let mut options = StackOptions::new(dev);
        options.mechanism = match self.mechanism {
            MechanismName::Auto => StackMechanism::Auto,
            MechanismName::Packet => StackMechanism::Packet,
            MechanismName::Xdp => StackMechanism::Xdp,
        };
        options.architecture = match self.architecture {
            ArchitectureName::Bsd => Architecture::Bsd,
            ArchitectureName::EarlyDemux => Architecture::EarlyDemux,
            ArchitectureName::SoftLrp => Architecture::SoftLrp,
            ArchitectureName::NiLrp => Architecture::NiLrp,
        };
        options.addresses = self.own_addresses().collect();
        options.host_ports = self.shares_host().then_some(ports);
        options.gateways.clone_from(&self.gateway);
        options.link_address = self.link_address;
        options.mtu = self.mtu;
        options.signalling = self.policy();
        options.interrupts = self.napi;
        options.capture = self.pcap.settings();
        options
    }
}

fn address(text: &str) -> Result<StackAddress, String> {
    if text == "host" {
        return Ok(StackAddress::Host);
    }
    let prefix = text.parse().map(StackAddress::Own);
    prefix.map_err(|_| {
        "write an address and its prefix, such as 192.0.2.7/24, or host for those of this host"
            .into()
    })
}

fn router(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address, such as 192.0.2.1".into())
}

fn mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(bytes @ 576..) => Ok(bytes),
        _ => Err("write a number of bytes, at least 576, such as 9000".into()),
    }
}

fn link_address(text: &str) -> Result<LinkAddress, String> {
    match text.parse::<LinkAddress>() {
        Ok(address) if address.is_host() => Ok(address),
        _ => Err("write the address of a single host, such as 02:00:00:00:00:01".into()),
    }
}
