//! The options of a network stack of the command's own, which `echo`, `serve` and `proxy` share.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use softclock::net::stack::{Architecture, LinkAddress, Prefix, StackMechanism, StackOptions};

use super::PcapOptions;

/// Options of a stack on an interface.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Stack")]
pub(crate) struct StackArgs {
    /// Interface on which the command has a network stack of its own, shared with the host; tap:NAME creates a TAP
    /// device, whose other end is the host's
    #[arg(long, value_name = "IF")]
    pub(crate) dev: Option<String>,

    /// Address of the stack with its prefix, such as 192.0.2.7/24 or 2001:db8::7/64; may be repeated
    #[arg(long, value_name = "A/PREFIX", requires = "dev", value_parser = prefix)]
    pub(crate) address: Vec<Prefix>,

    /// Router of the stack to other networks; once for each version of IP
    #[arg(long, value_name = "A", requires = "dev", value_parser = router)]
    pub(crate) gateway: Vec<IpAddr>,

    /// The stack's own address on the link [default: a random one]
    #[arg(long, value_name = "MAC", requires = "dev", value_parser = link_address)]
    pub(crate) link_address: Option<LinkAddress>,

    /// Mechanism by which the stack receives and sends frames
    #[arg(long, value_name = "NAME", value_enum, default_value_t = MechanismName::Auto)]
    pub(crate) mechanism: MechanismName,

    /// When the stack demultiplexes and processes packets
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ArchitectureName::SoftLrp)]
    pub(crate) architecture: ArchitectureName,

    /// The capture of its frames.
    #[command(flatten)]
    pub(crate) pcap: PcapOptions,
}

/// The values of `--mechanism`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MechanismName {
    /// AF_XDP where the driver does it without copies, and has one queue and rxvlan off; else AF_PACKET
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
    /// The settings of a stack on the interface `dev`.
    pub(crate) fn options(&self, dev: String) -> StackOptions {
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
        options.addresses.clone_from(&self.address);
        options.gateways.clone_from(&self.gateway);
        options.link_address = self.link_address;
        options.capture = self.pcap.settings();
        options
    }
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse()
        .map_err(|_| "write an address and its prefix, such as 192.0.2.7/24".into())
}

fn router(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address, such as 192.0.2.1".into())
}

fn link_address(text: &str) -> Result<LinkAddress, String> {
    match text.parse::<LinkAddress>() {
        Ok(address) if address.is_host() => Ok(address),
        _ => Err("write the address of a single host, such as 02:00:00:00:00:01".into()),
    }
}
