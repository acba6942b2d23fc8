//! The commands `load` and `hold`.

use std::error::Error;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::cold::{self, Cold, ColdOptions, PER_PROCESS};
use super::hot::{self, HotOptions, HotResult};
use super::progress::Bar;
use super::target::Target;

/// Arguments of `load`.
#[derive(Args, Debug)]
pub struct Load {
    /// Resource to request: http://HOST:PORT/PATH
    #[arg(value_name = "URL")]
    target: Target,

    /// Requests a second, sent at this rate however fast the server answers; 0 for none
    #[arg(long, short, default_value_t = 1000.0, value_parser = not_negative)]
    rate: f64,

    /// Duration in seconds
    #[arg(long, short, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,

    /// Opens a connection for each request
    #[arg(long)]
    no_keep_alive: bool,

    /// Most requests outstanding; a further one is not sent and counts as failed
    #[arg(long, value_name = "N", default_value_t = 4096)]
    most_outstanding: usize,

    /// Time after which a request has failed
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    patience: Duration,

    /// Holds this many additional connections open that send nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    cold: usize,

    /// Sends a byte of a head that never ends on each of the cold connections, at this interval
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    dribble: Option<Duration>,

    /// Most cold connections per process
    #[arg(long, hide = true, default_value_t = PER_PROCESS)]
    cold_per_process: usize,

    /// Connections to open before the first request
    #[arg(long, hide = true, default_value_t = 0)]
    connections: usize,

    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `hold`, which `load` starts.
#[derive(Args, Debug)]
pub struct Hold {
    address: SocketAddr,
    count: usize,
    #[arg(long)]
    from: Option<IpAddr>,
    #[arg(long, value_parser = seconds)]
    dribble: Option<Duration>,
}

impl Load {
    /// Sends the load; returns the text to print.
    ///
    /// # Errors
    /// The cold connections or the runtime cannot be created.
    pub fn execute(self) -> Result<String, Box<dyn Error>> {
        let cold_options = ColdOptions {
            address: self.target.address,
            connections: self.cold,
            dribble: self.dribble,
            per_process: self.cold_per_process,
        };
        let cold = Cold::open(&cold_options)?;
        let options = HotOptions {
            target: self.target,
            rate: self.rate,
            duration: self.duration,
            warm_up: Duration::ZERO,
            most_outstanding: self.most_outstanding,
            keep_alive: !self.no_keep_alive,
            connections: self.connections,
            patience: self.patience,
        };
        let result = if options.rate > 0.0 {
            let bar = Bar::new(options.duration);
            let result = hot::run(&options, |elapsed, result| bar.show(elapsed, result))?;
            bar.clear();
            Some(result)
        } else {
            std::thread::sleep(options.duration);
            None
        };
        let still_open = cold.close()?;
        Ok(if self.json {
            as_json(result.as_ref(), self.cold, still_open)
        } else {
            as_text(result.as_ref(), self.cold, still_open)
        })
    }
}

impl Hold {
    /// Holds connections until standard input ends.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn execute(self) -> Result<(), Box<dyn Error>> {
        Ok(cold::hold(
            self.address,
            self.count,
            self.from,
            self.dribble,
        )?)
    }
}

fn as_text(result: Option<&HotResult>, cold: usize, still_open: usize) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    if let Some(result) = result {
        let _ = writeln!(
            text,
            "requests     {} intended, {} answered ({:.1} a second), {} failed",
            result.intended,
            result.completed(),
            result.throughput(),
            result.failed()
        );
        for (status, count) in &result.statuses {
            let _ = writeln!(text, "status {status}   {count}");
        }
        for (reason, count) in &result.errors {
            let _ = writeln!(text, "failed       {count}: {reason}");
        }
        if result.retries > 0 {
            let _ = writeln!(
                text,
                "sent again   {} (the server had closed the reused connection)",
                result.retries
            );
        }
        for (name, share) in QUANTILES {
            let _ = writeln!(text, "latency      {name} {} us", result.latency_us(share));
        }
    }
    if cold > 0 {
        let _ = writeln!(
            text,
            "cold         {cold} connections, {still_open} open at the end"
        );
    }
    text
}

fn as_json(result: Option<&HotResult>, cold: usize, still_open: usize) -> String {
    let hot = result.map(|result| {
        let latency: serde_json::Map<_, _> = QUANTILES
            .iter()
            .map(|&(name, share)| (name.to_owned(), result.latency_us(share).into()))
            .collect();
        json!({
            "intended": result.intended,
            "answered": result.completed(),
            "failed": result.failed(),
            "requests_per_second": result.throughput(),
            "statuses": result.statuses,
            "errors": result.errors,
            "retries": result.retries,
            "latency_us": latency,
        })
    });
    let all = json!({ "hot": hot, "cold": { "connections": cold, "open": still_open } });
    format!("{all:#}\n")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = not_negative(text)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "too long".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("not a number of at least 0".into()),
    }
}

const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];
