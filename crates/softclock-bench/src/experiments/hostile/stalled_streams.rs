//! `hostile/stalled-streams`: HTTP/2 streams whose window stays 0, each with a large file to send.

use std::error::Error;
use std::io;

use super::{NGINX, NGINX_LIMITED, SOFTCLOCK};
use crate::lab::hostile::frames::{get_block, opening};
use crate::lab::hostile::link::{Link, again_and_again};
use crate::lab::hostile::subject::Subject;
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground, LARGE};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/stalled-streams",
    about: "1280 HTTP/2 streams that take nothing of a large file, under a limit of 1024 open files",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let nginx_cached = Subject {
        name: "nginx, open_file_cache",
        settings: "open_file_cache max=1000;",
        ..NGINX
    };
    let limited = Subject {
        name: "softclock, --max-client-streams",
        settings: "--max-client-streams 20",
        ..SOFTCLOCK
    };
    let defaults = vec![SOFTCLOCK, limited, NGINX, nginx_cached, NGINX_LIMITED];
    let softclock_second = Subject {
        name: "softclock, --send-timeout 1",
        settings: "--send-timeout 1",
        ..SOFTCLOCK
    };
    let nginx_second = Subject {
        name: "nginx, send_timeout 1s",
        settings: "send_timeout 1s; reset_timedout_connection on;",
        ..NGINX
    };
    let cases = [
        ("usual timeouts", defaults),
        ("timeouts of 1 s", vec![softclock_second, nginx_second]),
    ];
    let case = |(name, subjects)| Case {
        name: format!("10 connections of 128 stalled streams, {name}"),
        attack: Box::new(|against| again_and_again(against, stall)),
        threads: 10,
        units: "requests",
        subjects,
        ground: Ground::Files,
    };
    let cases = cases.into_iter().map(case).collect();
    table::report(context, "stalled HTTP/2 streams", cases, &NOTES)
}

/// Keeps [`STREAMS`] streams open: opens another for each that the server resets.
fn stall(link: &mut Link<'_>) -> io::Result<()> {
    link.send(&opening(0))?;
    let block = get_block(LARGE, []);
    link.keep_open(STREAMS, &block)
}

/// Streams per connection; most servers allow 128.
const STREAMS: u64 = 128;

const NOTES: [&str; 1] = [
    "the file has 16 MB; a stream that the server resets is followed by another; the connections end with the attack",
];
