//! `hostile/metrics`: scrapes of a metrics endpoint whose connections an attacker occupies.

use std::error::Error;
use std::time::Duration;

use super::{HAPROXY, NGINX, SOFTCLOCK};
use crate::lab::hostile::hold::Hold;
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/metrics",
    about: "scrapes of metrics while 40 clients are silent there, or ask without reading",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let hold = |opening| Hold {
        connections: CLIENTS,
        opening,
        drip: b"",
        sip: 0,
        buffer: Some(128 << 10),
        pause: Duration::from_millis(50),
    };
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let attacks = [
        ("40 silent clients", hold(Vec::new())),
        (
            "40 clients that ask 2000 times and never read",
            hold(request.repeat(2000)),
        ),
    ];
    let cases = attacks.map(|(name, hold)| Case {
        name: name.to_owned(),
        attack: Box::new(move |against| hold.run(against, against.front.metrics)),
        threads: 1,
        units: "connections",
        subjects: vec![SOFTCLOCK, NGINX, HAPROXY],
        ground: Ground::Metrics,
    });
    table::report(
        context,
        "scrapes of a held metrics endpoint",
        cases.into(),
        &NOTES,
    )
}

const CLIENTS: usize = 40;

const NOTES: [&str; 1] = [
    "nginx answers by stub_status on a listener of its own, HAProxy by its prometheus-exporter; new connections are what a \
     scraper makes after a restart or a timeout",
];
