//! `hostile/stopped`: a proxy that is stopped (SIGSTOP) for longer than its timeouts while its upstream answers.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{HAPROXY, NGINX, SOFTCLOCK};
use crate::command;
use crate::lab::hostile::subject::{Program, Subject};
use crate::lab::hostile::table::keep_installed;
use crate::lab::hostile::trial::{Ground, Stage};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/stopped",
    about: "good answers that become errors when a proxy is stopped for longer than its timeout of responses",
    takes: Takes::Rounds,
    run,
};

const TITLE: &str = "a proxy that is stopped and continued";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = command::softclock() {
        return Ok(Report::not_measured(TITLE, &reason.to_string()));
    }
    let mut subjects = vec![
        Subject {
            settings: "--response-timeout 0.5",
            ..SOFTCLOCK
        },
        Subject {
            settings: "proxy_read_timeout 500ms;",
            ..NGINX
        },
        Subject {
            settings: "timeout server 500ms",
            ..HAPROXY
        },
    ];
    keep_installed(&mut subjects, context);
    let stage = Stage::build()?;
    let rounds = if context.smoke {
        1
    } else {
        context.rounds.unwrap_or(7)
    };
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            // Rotate the order, so that no proxy always runs first.
            let index = (round + turn) % subjects.len();
            let subject = &subjects[index];
            let (done, total) = (round * subjects.len() + turn, rounds * subjects.len());
            let sample = context.round(done, total, subject.name, || sample(&stage, subject));
            let sample = sample.map_err(|error| format!("{}: {error}", subject.name))?;
            samples[index].push(sample);
        }
    }
    context.progress(1, 1, "");
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    notes.extend(Program::ALL.map(Program::note));
    Ok(Report {
        title: TITLE,
        notes,
        rows: rows(&subjects, &samples),
        charts: Vec::new(),
    })
}

/// Numbers of failed requests, each of ten.
#[derive(Clone, Copy)]
struct Sample {
    outstanding: usize,
    later: usize,
}

fn sample(stage: &Stage, subject: &Subject) -> io::Result<Sample> {
    let (server, front) = stage.start(subject, Ground::Proxy(100))?;
    let outstanding = thread::scope(|scope| {
        let ask = |_| scope.spawn(|| is_good(front.plain, "/wait/200"));
        let asking: Vec<_> = (0..REQUESTS).map(ask).collect();
        // All requests reach the upstream before the proxy stops.
        thread::sleep(BEFORE);
        server.signal(Signal::STOP)?;
        thread::sleep(STOPPED);
        server.signal(Signal::CONT)?;
        let good = asking
            .into_iter()
            .map(|thread| thread.join().unwrap_or(false));
        io::Result::Ok(good.filter(|good| !good).count())
    })?;
    let later = (0..REQUESTS).filter(|_| !is_good(front.plain, "/"));
    Ok(Sample {
        outstanding,
        later: later.count(),
    })
}

/// Returns whether the response's status is 200.
fn is_good(address: SocketAddr, path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        io::Result::Ok(answer.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

fn rows(subjects: &[Subject], samples: &[Vec<Sample>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric, of: fn(&Sample) -> usize| {
        for (subject, samples) in subjects.iter().zip(samples) {
            let share = |sample| of(sample) as f64 * 100.0 / REQUESTS as f64;
            let values: Vec<f64> = samples.iter().map(share).collect();
            rows.push(Row::of_samples(subject.name, metric, "%", &values));
        }
    };
    add("share of ten good answers that became errors", |sample| {
        sample.outstanding
    });
    add("share of ten later requests that failed", |sample| {
        sample.later
    });
    rows
}

const REQUESTS: usize = 10;

/// The time from the requests to SIGSTOP.
const BEFORE: Duration = Duration::from_millis(50);

/// The time from SIGSTOP to SIGCONT: twice the timeouts.
const STOPPED: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(5);

const NOTES: [&str; 2] = [
    "ten requests at once whose upstream answers after 200 ms; 50 ms after them SIGSTOP to all processes of the proxy, SIGCONT \
     a second later; then ten requests, one after another, that are answered at once",
    "the timeout of responses is 0.5 s: --response-timeout, proxy_read_timeout, timeout server",
];
