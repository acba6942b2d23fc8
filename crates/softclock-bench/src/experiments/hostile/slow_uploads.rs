//! `hostile/slow-uploads`: bodies that arrive byte by byte, through a proxy with a low limit of concurrent requests.

use std::error::Error;
use std::time::Duration;

use super::{HAPROXY, NGINX, SOFTCLOCK};
use crate::lab::hostile::hold::Hold;
use crate::lab::hostile::subject::Subject;
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/slow-uploads",
    about: "40 uploads that come byte by byte through a proxy that passes 20 requests on at a time",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let haproxy_buffers = Subject {
        name: "HAProxy, http-buffer-request",
        settings: "option http-buffer-request",
        ..HAPROXY
    };
    let attacks = [
        ("40 slow uploads of 1 KB", 1 << 10, 0),
        ("40 slow uploads of 1 MB, 64 KB at once", 1 << 20, 64 << 10),
    ];
    let cases = attacks.map(|(name, length, at_once)| {
        let head =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let hold = Hold {
            connections: 40,
            opening: [head.into_bytes(), vec![b'x'; at_once]].concat(),
            drip: b"x",
            sip: 0,
            buffer: None,
            pause: Duration::from_millis(200),
        };
        Case {
            name: name.to_owned(),
            attack: Box::new(move |against| hold.run(against, against.front.plain)),
            threads: 1,
            units: "connections",
            subjects: vec![SOFTCLOCK, NGINX, HAPROXY, haproxy_buffers],
            ground: Ground::Proxy(20),
        }
    });
    table::report(
        context,
        "slow uploads through a proxy",
        cases.into(),
        &NOTES,
    )
}

const NOTES: [&str; 2] = [
    "a byte of each body every 200 ms; a connection that the proxy ends is replaced; the victim's requests are answered at \
     once by the same upstream",
    "nginx reads a whole body before it asks the upstream (proxy_request_buffering on, its default); HAProxy reads its buffer \
     full, 16 KB, with option http-buffer-request",
];
