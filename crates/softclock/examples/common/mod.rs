//! The options with which an example runs on a network stack of its own.

use clap::{Args, ValueEnum};
use softclock::net::stack::{
    self, Architecture, Prefix, Stack, StackError, StackMechanism, StackOptions,
};

/// Options of a stack. Without `--dev` there is none, and all sockets are the kernel's.
#[derive(Args)]
pub(crate) struct StackArguments {
    /// Interface on which the program has a network stack of its own; tap:NAME creates a TAP device
    #[arg(long, value_name = "IF", requires = "address")]
    dev: Option<String>,

    /// Address of the stack with its prefix; may be repeated
    #[arg(long, value_name = "A/PREFIX", requires = "dev")]
    address: Vec<Prefix>,

    /// How the stack receives and sends frames
    #[arg(long, value_enum, default_value_t = Mechanism::Auto)]
    mechanism: Mechanism,

    /// Let the XDP program of the interface demultiplex
    #[arg(long)]
    ni_lrp: bool,
}

#[derive(ValueEnum, Clone, Copy)]
enum Mechanism {
    Auto,
    Packet,
    Xdp,
}

impl StackArguments {
    /// Gives the current runtime the stack, if there is to be one.
    pub(crate) fn open(&self) -> Result<Option<Stack>, StackError> {
        let Some(dev) = &self.dev else {
            return Ok(None);
        };
        let mut options = StackOptions::new(dev.as_str());
        options.addresses.clone_from(&self.address);
        options.mechanism = match self.mechanism {
            Mechanism::Auto => StackMechanism::Auto,
            Mechanism::Packet => StackMechanism::Packet,
            Mechanism::Xdp => StackMechanism::Xdp,
        };
        if self.ni_lrp {
            options.architecture = Architecture::NiLrp;
        }
        stack::open(&options).map(Some)
    }
}
