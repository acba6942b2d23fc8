//! The programs that the experiment compares.

use std::io;
use std::process::Command;

use clap::ValueEnum;

use crate::lab::sleepers::{Finding, Kind, Order, load};
use crate::peers::program::{Compiled, Library, Source, Workshop};

/// A program that sleeps.
pub(super) struct Sleeper {
    pub(super) name: &'static str,
    start: Box<dyn Fn() -> Command>,
}

impl Sleeper {
    pub(super) fn run(&self, order: &Order, load: u32) -> io::Result<Finding> {
        load::run((self.start)(), order, load)
    }
}

/// Returns the sleepers that work on this machine; adds a note for each that does not.
pub(super) fn sleepers(workshop: &Workshop, notes: &mut Vec<String>) -> io::Result<Vec<Sleeper>> {
    let this = std::env::current_exe()?;
    let mut found = Vec::new();
    for (kind, name) in KINDS {
        let this = this.clone();
        let start = move || {
            let mut command = Command::new(&this);
            let kind = kind.to_possible_value();
            command
                .arg("sleep")
                .args(kind.as_ref().map(|kind| kind.get_name()));
            command
        };
        found.push(Sleeper {
            name,
            start: Box::new(start),
        });
    }
    let compiled = [
        ("libuv", workshop.c_program(LIBUV_SOURCES, Library::UV)),
        ("Go, time.Sleep", workshop.go_program(GO_SOURCE)),
    ];
    for (name, program) in compiled {
        match program {
            Ok(Compiled { program, version }) => {
                notes.push(format!("{name}: version {version}"));
                found.push(Sleeper {
                    name,
                    start: Box::new(move || Command::new(&program)),
                });
            }
            Err(missing) => notes.push(missing),
        }
    }
    // A sleeper that fails here, for example where io_uring is forbidden, must not end the experiment.
    found.retain(|sleeper| match sleeper.run(&TRIAL, 0) {
        Ok(_) => true,
        Err(error) => {
            notes.push(format!("{} is left out: {error}", sleeper.name));
            false
        }
    });
    Ok(found)
}

/// A short run that checks whether a sleeper works.
const TRIAL: Order = Order {
    timers: 1,
    shortest_us: 100,
    longest_us: 100,
    warm_up_ms: 1,
    milliseconds: 2,
};

/// The name of softclock with its defaults.
pub(super) const SOFTCLOCK: &str = "softclock";

const KINDS: [(Kind, &str); 6] = [
    (Kind::Softclock, SOFTCLOCK),
    (Kind::SoftclockNoSpin, "softclock, spin cap 0"),
    (Kind::Tokio, "tokio"),
    (Kind::TokioTimerfd, "tokio, timerfd"),
    (Kind::AsyncIo, "async-io"),
    (Kind::IoUring, "io_uring timeout"),
];

const LIBUV_SOURCES: &[Source] = &[
    (
        "sleep_libuv.c",
        include_str!("../../../../peers/sleep_libuv.c"),
    ),
    ("sleep.h", include_str!("../../../../peers/sleep.h")),
];
const GO_SOURCE: Source = ("sleep_go.go", include_str!("../../../../peers/sleep_go.go"));
