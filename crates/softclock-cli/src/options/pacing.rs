//! How fast a server sends.

use clap::Args;
use softclock::Rate;
use softclock_http::Pace;

/// Options that pace the responses of one server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pacing")]
pub(crate) struct PacingOptions {
    /// Send to each connection at this rate, in pieces clocked by soft timers, such as 50mbit
    ///
    /// Rates are written as for tc: 100mbit, 1.5gbit, 64kbit, 10mbps (bytes). They count the bytes of TCP connections,
    /// without the headers of packets; connections of Unix sockets are not paced. Clients are not thought slow for it.
    /// With a large initial window in the route (ip route change ... initcwnd 100) a response begins at this rate at once,
    /// in place of slow start.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) pace: Option<Rate>,

    /// Rate at which a connection catches up where the server was late [default: twice --pace]
    #[arg(long, value_name = "RATE", value_parser = rate, requires = "pace")]
    pub(crate) pace_burst: Option<Rate>,

    /// Send to all connections together at this rate; each thread has an equal share
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) pace_total: Option<Rate>,
}

impl PacingOptions {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            rate: self.pace,
            burst: self.pace_burst,
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
