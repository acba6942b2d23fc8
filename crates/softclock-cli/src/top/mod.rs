//! `softclock top`: shows a running server by its metrics.
//!
//! - [`fetch`]: fetches the page.
//! - [`sample`]: the metrics of a page.
//! - [`view`]: formats the difference of two samples, including a proxy's upstreams and a network stack; pure.
//! - [`terminal`]: the screen and the keys.

mod fetch;
mod sample;
mod terminal;
mod view;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;

use crate::stdout;
use crate::values::seconds;
use fetch::Target;
use sample::Sample;
use terminal::{Key, Terminal};

/// The options of `softclock top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct TopOptions {
    /// Address of the server's metrics (--metrics of serve, proxy and echo): IP:PORT, unix:PATH, or a URL
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9180")]
    target: Target,

    /// Print the rates of one interval and exit
    #[arg(long)]
    once: bool,

    /// Time between samples (0.1 to 3600)
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

const NOTES: &str = "\
Examples:
  softclock serve --metrics 127.0.0.1:9180 DIR    a server that can be watched
  softclock top                                   watches it; q or Ctrl-C ends
  softclock top --once                            for scripts
";

/// The reason why there is nothing to show, as one line.
#[derive(Debug)]
pub(crate) struct TopError(String);

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shows the server until a key or a signal ends it.
pub(crate) fn run(options: &TopOptions) -> Result<(), TopError> {
    let mut previous = sample(options)?;
    let on_screen = !options.once && io::stdout().is_terminal() && io::stdin().is_terminal();
    let terminal = on_screen.then(Terminal::enter).transpose();
    let terminal =
        terminal.map_err(|error| TopError(format!("cannot use the terminal: {error}")))?;
    loop {
        if wait(options.interval, terminal.as_ref()) == Key::End {
            return Ok(());
        }
        let current = sample(options)?;
        let width = terminal.as_ref().map_or(WIDTH, Terminal::width);
        let text = view::text(&previous, &current, &options.target.to_string(), width);
        let shown = match &terminal {
            Some(terminal) => terminal.show(&text),
            None => write(&text),
        };
        match shown {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(TopError(stdout::not_written(&error))),
            Ok(()) if options.once => return Ok(()),
            Ok(()) => {}
        }
        previous = current;
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn sample(options: &TopOptions) -> Result<Sample, TopError> {
    let target = &options.target;
    let page = target.fetch().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                "no server listens there; start softclock serve, proxy or echo with --metrics ADDR"
                    .into()
            }
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".into(),
            _ => error.to_string(),
        };
        TopError(format!("cannot read metrics from {target}: {advice}"))
    })?;
    let sample = Sample::parse(&page, Instant::now());
    sample.ok_or_else(|| TopError(format!("{target} serves no metrics of softclock")))
}

/// Waits for `time`, or less if a key is pressed.
fn wait(time: Duration, terminal: Option<&Terminal>) -> Key {
    match terminal {
        Some(terminal) => terminal.wait(time),
        None => {
            std::thread::sleep(time);
            Key::None
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    let interval = seconds(text).ok();
    interval
        .filter(|interval| range.contains(interval))
        .ok_or_else(|| "write seconds from 0.1 to 3600, or a time like 500ms".into())
}

/// Columns if standard output is not a terminal.
const WIDTH: usize = 80;
