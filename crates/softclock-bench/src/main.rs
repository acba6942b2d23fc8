//! The command `softclock-bench`: lists and runs the experiments.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use softclock::events::Mechanism;
use softclock::signalling::{LatencyBound, Policy};
use softclock_bench::experiments;
use softclock_bench::lab::bridge::flows::Flows;
use softclock_bench::lab::sleepers;
use softclock_bench::lab::timers::TokioTimers;
use softclock_bench::load::{Hold, Load};
use softclock_bench::measure::environment::Environment;
use softclock_bench::output::json::{self, Record};
use softclock_bench::output::page::{self, Outcome};
use softclock_bench::output::report::{Context, Experiment, Report, Takes};
use softclock_bench::output::{file, measurements, svg, table};
use softclock_bench::peers::media::MediaSender;
use softclock_bench::peers::quic::{QuicReceiver, QuicSender};
use softclock_bench::peers::runtimes::RuntimeServer;
use softclock_bench::servers::{ServeOptions, proxy, serve};

/// Measures the tables and figures of the papers on this machine, beside today's peers.
#[derive(Parser)]
#[command(name = "softclock-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the experiments.
    List,
    /// Runs experiments and prints their results: the paper's, softclock's and the peers' numbers, with their spread.
    Run(Run),
    /// Runs experiments, all by default, and writes an HTML page: tables, charts, environment and spread.
    Report(Page),
    /// Writes the Markdown pages of results, and the chart of the README, from the JSON files of earlier runs.
    Pages(Pages),
    /// Sends requests to an HTTP server at a given rate, and holds idle connections open.
    Load(Load),
    /// Holds connections open for `load`.
    #[command(hide = true)]
    Hold(Hold),
    /// Sends datagrams to many ports, for `pspacer/table-7` and `pspacer/tolerance`.
    #[command(hide = true)]
    Flows(Flows),
    /// Runs the server of `softclock serve`, for experiments that need it in a separate process.
    #[command(hide = true)]
    Serve(ServeOptions),
    /// Runs the server of `softclock proxy`, for experiments that need it in a separate process.
    #[command(hide = true)]
    Proxy(Proxy),
    /// Runs a small server on an async runtime, for `embed/runtimes`.
    #[command(hide = true)]
    RuntimeServer(RuntimeServer),
    /// Sends media streams, for `embed/media`.
    #[command(hide = true)]
    MediaSender(MediaSender),
    /// Sends to a client of QUIC, for `embed/quic`.
    #[command(hide = true)]
    QuicSender(QuicSender),
    /// Receives from a sender of QUIC, for `embed/quic`.
    #[command(hide = true)]
    QuicReceiver(QuicReceiver),
    /// Sleeps and prints the lateness and the cost, for `soft-timers/sleep-precision`.
    #[command(hide = true)]
    Sleep(Sleep),
    /// Sleeps on tokio beside sockets, for `embed/timers`.
    #[command(hide = true)]
    TokioTimers(TokioTimers),
}

#[derive(Args)]
struct Run {
    /// Names as `list` shows them, a group such as `soft-timers/`, or `all`.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Runs each experiment at its smallest size, which checks that it works; the numbers mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Rounds, in which the subjects take turns [default: each experiment's own]. An experiment with a fixed plan
    /// refuses it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Measures only the subjects whose names contain TEXT, such as `soft-lrp; work 10 us` or `AF_XDP, 0 idle`. If none
    /// does, the error lists the names. An experiment with a fixed plan refuses it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Writes the results as JSON: one object for one experiment, an array for several. The file is rewritten after
    /// each experiment, so a later failure does not lose earlier results.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the results as one SVG picture, the experiments below one another.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Args)]
struct Page {
    /// Directory of the page index.html; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Names as `list` shows them, or groups such as `soft-timers/`.
    #[arg(value_name = "NAME", default_value = "all")]
    names: Vec<String>,
    /// Runs the smallest sizes, which checks that the experiments work; the numbers mean nothing.
    #[arg(long)]
    smoke: bool,
}

#[derive(Args)]
struct Pages {
    /// Directory of the pages; its folder `results` holds the JSON, one file per experiment.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Args)]
struct Proxy {
    /// Address to listen on.
    address: SocketAddr,
    /// Address of the upstream server.
    upstream: SocketAddr,
    /// Mechanism by which the event queue learns which sockets are ready.
    #[arg(long, value_name = "MECHANISM")]
    events: Mechanism,
    /// How it learns of the kernel's events.
    #[arg(long, value_name = "POLICY")]
    signalling: Policy,
    /// The latency bound of the policy, in microseconds.
    #[arg(long, value_name = "MICROSECONDS")]
    signalling_latency: Option<u64>,
}

#[derive(Args)]
struct Sleep {
    kind: sleepers::Kind,
    #[command(flatten)]
    order: sleepers::Order,
}

/// A message for the user and an exit status: 2 for a wrong command line, 1 for a failure at run time.
struct Failure {
    status: u8,
    message: String,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::List => list(),
        Command::Run(run) => run.execute(),
        Command::Report(page) => page.execute(),
        Command::Pages(pages) => pages.execute(),
        Command::Load(load) => load
            .execute()
            .map_err(went_wrong)
            .and_then(|text| show(&text)),
        Command::Hold(hold) => hold.execute().map_err(went_wrong),
        Command::Flows(flows) => flows.send().map_err(|error| failure(1, error.to_string())),
        Command::Serve(options) => serve(&options).map_err(|error| failure(1, error.to_string())),
        Command::Proxy(proxy) => proxy.execute(),
        Command::RuntimeServer(server) => {
            server.run().map_err(|error| failure(1, error.to_string()))
        }
        Command::MediaSender(sender) => sender.run().map_err(|error| failure(1, error.to_string())),
        Command::TokioTimers(timers) => timers.run().map_err(|error| failure(1, error.to_string())),
        Command::QuicSender(sender) => sender.run().map_err(|error| failure(1, error.to_string())),
        Command::QuicReceiver(receiver) => receiver
            .run()
            .map_err(|error| failure(1, error.to_string())),
        Command::Sleep(Sleep { kind, order }) => {
            sleepers::sleep(kind, order).map_err(|error| failure(1, error.to_string()))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("softclock-bench: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

fn list() -> Result<(), Failure> {
    let all = experiments::ALL;
    let width = all.iter().map(|e| e.name.len()).max().unwrap_or(0);
    let lines: String = all
        .iter()
        .map(|experiment| format!("{:width$}  {}\n", experiment.name, experiment.about))
        .collect();
    show(&lines)
}

impl Run {
    fn execute(&self) -> Result<(), Failure> {
        let chosen = choose(&self.names, experiments::ALL)?;
        self.check(&chosen)?;
        // Find a path that cannot be written before minutes of measuring.
        for path in [&self.json, &self.svg].into_iter().flatten() {
            file::probe(path).map_err(|error| file_failure(path, &error))?;
        }
        let environment = Environment::detect();
        show(&table::environment(&environment))?;
        self.run_each(&chosen, &environment)
    }

    /// Refuses choices that an experiment would ignore.
    fn check(&self, chosen: &[&Experiment]) -> Result<(), Failure> {
        let taken: [(&str, bool, &[Takes]); 2] = [
            (
                "--rounds",
                self.rounds.is_some(),
                &[Takes::Rounds, Takes::RoundsAndSubjects],
            ),
            ("--only", self.only.is_some(), &[Takes::RoundsAndSubjects]),
        ];
        for (option, is_given, takes) in taken {
            let ignoring = chosen.iter().filter(|of| !takes.contains(&of.takes));
            let ignoring: Vec<&str> = ignoring.map(|of| of.name).collect();
            if is_given && !ignoring.is_empty() {
                let names = ignoring.join(", ");
                return Err(failure(2, format!("{option} has no effect on {names}")));
            }
        }
        Ok(())
    }

    /// Runs the experiments. Later ones run even if one fails; a failure of any sets the exit status.
    fn run_each(&self, chosen: &[&Experiment], environment: &Environment) -> Result<(), Failure> {
        let mut context = Context::new(self.smoke);
        context.rounds = self.rounds.map(usize::from);
        context.only.clone_from(&self.only);
        let mut results: Vec<(Record, Report)> = Vec::new();
        let mut failed = Vec::new();
        for experiment in chosen {
            match experiment.measure(&context) {
                Ok((report, steal)) => {
                    show(&table::report(experiment.name, &report))?;
                    let record = Record {
                        experiment: experiment.name,
                        title: report.title,
                        date: json::today(),
                        rounds: context.rounds,
                        only: context.only.clone(),
                        environment: environment.clone(),
                        steal,
                        notes: report.notes.clone(),
                        rows: report.rows.clone(),
                        charts: report.charts.clone(),
                    };
                    results.push((record, report));
                    // After each experiment, so that an interrupted run leaves the results so far.
                    self.save(&results, chosen.len())?;
                }
                Err(error) => {
                    eprintln!("softclock-bench: {}: {error}", experiment.name);
                    failed.push(experiment.name);
                }
            }
        }
        fail_if_any(&failed)
    }

    fn save(&self, results: &[(Record, Report)], chosen: usize) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            let records: Vec<&Record> = results.iter().map(|(record, _)| record).collect();
            save_file(path, &json::document(&records, chosen > 1))?;
        }
        if let Some(path) = &self.svg {
            let figures: Vec<(&str, &Report)> = results
                .iter()
                .map(|(record, report)| (record.experiment, report))
                .collect();
            save_file(path, &svg::document(&figures))?;
        }
        Ok(())
    }
}

impl Page {
    /// Runs the experiments. One that fails is reported on the page, and by the exit status at the end.
    fn execute(&self) -> Result<(), Failure> {
        let chosen = choose(&self.names, experiments::ALL)?;
        let path = self.directory.join("index.html");
        fs::create_dir_all(&self.directory)
            .and_then(|()| file::probe(&path))
            .map_err(|error| file_failure(&path, &error))?;
        let environment = Environment::detect();
        let mut outcomes = Vec::new();
        for (index, experiment) in chosen.iter().enumerate() {
            eprintln!("[{}/{}] {}", index + 1, chosen.len(), experiment.name);
            outcomes.push(outcome(experiment, &Context::new(self.smoke)));
            // Written after each experiment, so that an interrupted run leaves the results so far.
            save_file(&path, &page::document(&environment, &outcomes, self.smoke))?;
        }
        let failed: Vec<&str> = outcomes
            .iter()
            .filter(|outcome| outcome.result.is_err())
            .map(|outcome| outcome.name)
            .collect();
        fail_if_any(&failed)
    }
}

impl Pages {
    fn execute(&self) -> Result<(), Failure> {
        let results = self.directory.join("results");
        let read = measurements::read(&results)
            .map_err(|error| failure(1, format!("cannot read {}: {error}", results.display())))?;
        for (name, page) in measurements::pages(&read) {
            save_file(&self.directory.join(name), &page)?;
        }
        Ok(())
    }
}

impl Proxy {
    fn execute(&self) -> Result<(), Failure> {
        let mut policy = self.signalling;
        if let Some(us) = self.signalling_latency {
            let bound = LatencyBound::new(Duration::from_micros(us));
            policy = policy.with_bound(bound.map_err(|error| failure(2, error.to_string()))?);
        }
        proxy(self.address, self.upstream, self.events, policy)
            .map_err(|error| failure(1, error.to_string()))
    }
}

fn outcome(experiment: &Experiment, context: &Context) -> Outcome {
    let start = Instant::now();
    let result = experiment.measure(context);
    let result = result.map_err(|error| error.to_string());
    if let Err(error) = &result {
        eprintln!("softclock-bench: {}: {error}", experiment.name);
    }
    Outcome {
        name: experiment.name,
        about: experiment.about,
        result: result.map(|(report, _)| report),
        seconds: start.elapsed().as_secs_f64(),
    }
}

fn fail_if_any(failed: &[&str]) -> Result<(), Failure> {
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failure(1, format!("failed: {}", failed.join(", "))))
    }
}

/// Returns the experiments that `names` select, each once, in the order of `all`.
fn choose<'a>(names: &[String], all: &[&'a Experiment]) -> Result<Vec<&'a Experiment>, Failure> {
    for name in names {
        if !all.iter().any(|experiment| matches(name, experiment)) {
            let message = format!("unknown experiment '{name}'; `list` shows all names");
            return Err(failure(2, message));
        }
    }
    let chosen = all
        .iter()
        .filter(|experiment| names.iter().any(|name| matches(name, experiment)));
    Ok(chosen.copied().collect())
}

fn matches(name: &str, experiment: &Experiment) -> bool {
    let group = experiment.name.strip_prefix(name.trim_end_matches('/'));
    name == "all" || name == experiment.name || group.is_some_and(|rest| rest.starts_with('/'))
}

fn save_file(path: &Path, contents: &str) -> Result<(), Failure> {
    file::write(path, contents.as_bytes()).map_err(|error| file_failure(path, &error))
}

fn file_failure(path: &Path, error: &io::Error) -> Failure {
    failure(1, format!("cannot write {}: {error}", path.display()))
}

fn went_wrong(error: Box<dyn Error>) -> Failure {
    failure(1, error.to_string())
}

fn failure(status: u8, message: String) -> Failure {
    Failure { status, message }
}

/// Prints `text`. A closed pipe (`list | head`) is not an error.
fn show(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let shown = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match shown {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failure(1, format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
