//! `hostile/departed-clients`: clients that send a slow request to a proxy and disconnect.

use std::error::Error;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::{HAPROXY, NGINX, SOFTCLOCK};
use crate::lab::hostile::link::{Against, open};
use crate::lab::hostile::subject::Subject;
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/departed-clients",
    about: "50 clients a second that ask a proxy for what takes its upstream 20 s, and leave; 40 requests at a time",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let haproxy_aborts = Subject {
        name: "HAProxy, abortonclose",
        settings: "option abortonclose",
        ..HAPROXY
    };
    let case = Case {
        name: "50 clients a second that leave".to_owned(),
        attack: Box::new(leave),
        threads: 1,
        units: "requests",
        subjects: vec![SOFTCLOCK, NGINX, HAPROXY, haproxy_aborts],
        ground: Ground::Proxy(40),
    };
    let title = "clients that leave before a slow upstream answers";
    table::report(context, title, vec![case], &NOTES)
}

fn leave(against: &Against<'_>) {
    let begun = Instant::now();
    let mut sent = 0;
    while against.tally.goes_on() {
        if ask(against).is_err() {
            against.tally.ended.add(1);
        }
        sent += 1;
        let due = begun + sent * BETWEEN;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

fn ask(against: &Against<'_>) -> io::Result<()> {
    let mut stream = open(against.front.plain, None)?;
    let sent = stream.write(b"GET /wait/20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    against.tally.bytes.add(sent);
    against.tally.units.add(1);
    // Gives the proxy time to pass the request to the upstream before the client disconnects.
    thread::sleep(BETWEEN / 4);
    Ok(())
}

const BETWEEN: Duration = Duration::from_millis(20);

const NOTES: [&str; 1] = [
    "a client closes its connection 5 ms after its request; the victim's requests are answered at once by the same upstream",
];
