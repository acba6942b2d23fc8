//! `hostile/slow-clients`: request heads that are sent, and responses that are read, a few bytes at a time.

use std::error::Error;
use std::time::Duration;

use super::{NGINX, NGINX_LIMITED, SOFTCLOCK};
use crate::lab::hostile::hold::Hold;
use crate::lab::hostile::subject::Subject;
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground, LARGE};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/slow-clients",
    about: "400 and 1000 heads sent byte by byte, 400 responses hardly read, under a limit of 1024 open files",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let heads = |connections| Hold {
        connections,
        opening: b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_vec(),
        drip: b"a",
        sip: 0,
        buffer: None,
        pause: PAUSE,
    };
    let request = format!("GET {LARGE} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let readers = Hold {
        opening: request.into_bytes(),
        drip: b"",
        sip: 100,
        buffer: Some(READ_BUFFER),
        ..heads(400)
    };
    let softclock_second = Subject {
        name: "softclock, --head-timeout 1",
        settings: "--head-timeout 1",
        ..SOFTCLOCK
    };
    let nginx_second = Subject {
        name: "nginx, client_header_timeout 1s",
        settings: "client_header_timeout 1s; reset_timedout_connection on;",
        ..NGINX
    };
    let softclock_limited = Subject {
        name: "softclock, --max-client-connections",
        settings: "--max-client-connections 20",
        ..SOFTCLOCK
    };
    let timed = vec![
        SOFTCLOCK,
        softclock_second,
        softclock_limited,
        NGINX,
        nginx_second,
    ];
    let attacks = [
        ("400 slow heads", heads(400), timed.clone()),
        ("1000 slow heads", heads(1000), timed),
        (
            "400 slow readers",
            readers,
            vec![SOFTCLOCK, softclock_limited, NGINX, NGINX_LIMITED],
        ),
    ];
    let cases = attacks.map(|(name, hold, subjects)| Case {
        name: name.to_owned(),
        attack: Box::new(move |against| hold.run(against, against.front.plain)),
        threads: 1,
        units: "connections",
        subjects,
        ground: Ground::Files,
    });
    table::report(context, "slow clients", cases.into(), &NOTES)
}

/// The time between two bytes of a head, or two reads of a response.
const PAUSE: Duration = Duration::from_millis(200);

/// The receive buffer, small beside the file. With much less than a segment of the loopback interface (64 KB) the
/// result would be the cost of the kernel's collapsing of segments.
const READ_BUFFER: usize = 128 << 10;

const NOTES: [&str; 2] = [
    "a byte of each head, or 100 bytes of each response of 16 MB, every 200 ms; a connection that the server ends is replaced",
    "nginx's limit_conn does not count connections whose head is not complete; of its defences against slow heads \
     client_header_timeout remains, 60 s unless stated, and ours has 10 s: longer than the attack; with 1 s each also ends the \
     attacker's",
];
