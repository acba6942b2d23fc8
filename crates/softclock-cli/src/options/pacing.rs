//! The options that pace responses.

use clap::{ArgGroup, Args};
use softclock::Rate;
use softclock_core::units::parse_size;
use softclock_http::Pace;

/// Options that pace the responses of one server.
#[derive(Args, Clone, PartialEq, Debug)]
#[command(next_help_heading = "Pacing")]
#[command(group = ArgGroup::new("paced").args(["pace", "pace_total"]).multiple(true))]
pub(crate) struct PacingOptions {
    /// Send to each connection at this rate, at least 64kbit, in pieces clocked by soft timers, such as 50mbit
    ///
    /// Rates are written as for tc: 100mbit, 1.5gbit, 64kbit, 10mbyte; a number alone, and 10mbps, are refused as
    /// ambiguous. They count the bytes of TCP connections, without the headers of packets; connections of Unix sockets
    /// are not paced. Pacing does not count against the client in --send-timeout and --min-rate. With a large initial
    /// window in the route (ip route change ... initcwnd 100) a response starts at this rate at once, without slow
    /// start.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) pace: Option<Rate>,

    /// Rate, at least --pace, at which a connection catches up after the server was late. Those of a stack (--dev) do so
    /// at twice --pace, unless --pace-total is given [default: twice --pace]
    #[arg(long, value_name = "RATE", value_parser = rate, requires = "pace")]
    pub(crate) pace_burst: Option<Rate>,

    /// Bytes to send for each soft timer, 512 to 64kb [default: a segment, more if the server cannot send so often]
    ///
    /// Sizes are written as for tc: 4kb, 2896 (bytes). A larger size costs the server less, but makes longer bursts.
    /// Connections of a stack (--dev) send a segment at a time, unless --pace-total is given.
    #[arg(long, value_name = "SIZE", value_parser = quantum, requires = "paced")]
    pub(crate) pace_quantum: Option<usize>,

    /// Send to all TCP connections together at this rate, at least 64kbit; each thread gets an equal share
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) pace_total: Option<Rate>,
}

impl PacingOptions {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            rate: self.pace,
            burst: self.pace_burst,
            quantum: self.pace_quantum,
            total: self.pace_total,
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        Ok(rate) if rate < Pace::LEAST => Err(format!("less than {}", Pace::LEAST)),
        Ok(rate) => Ok(rate),
        Err(error) => Err(format!("{error}")),
    }
}

fn quantum(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    match usize::try_from(bytes) {
        Ok(bytes @ 512..=0x1_0000) => Ok(bytes),
        _ => Err("not from 512 to 64kb".into()),
    }
}
