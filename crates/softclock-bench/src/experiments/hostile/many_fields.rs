//! `hostile/many-fields`: HTTP/2 requests with a thousand fields.

use std::error::Error;
use std::io;

use super::{NGINX, NGINX_LIMIT_REQ, SOFTCLOCK};
use crate::lab::hostile::frames::{MAX_WINDOW, get_block, opening};
use crate::lab::hostile::link::{Link, again_and_again};
use crate::lab::hostile::table;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/many-fields",
    about: "HTTP/2 requests with 1000 fields on 8 connections",
    takes: Takes::Rounds,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let case = Case {
        name: "requests of 1000 fields on 8 connections".to_owned(),
        attack: Box::new(|against| again_and_again(against, ask)),
        threads: 8,
        units: "requests",
        subjects: vec![SOFTCLOCK, NGINX, NGINX_LIMIT_REQ],
        ground: Ground::Files,
    };
    let title = "HTTP/2 requests with 1000 fields";
    table::report(context, title, vec![case], &NOTES)
}

fn ask(link: &mut Link<'_>) -> io::Result<()> {
    link.send(&opening(MAX_WINDOW))?;
    let fields = (0..FIELDS).map(|number| (format!("x{number:04}"), "1".to_owned()));
    let block = get_block("/small.html", fields);
    link.keep_open(OUTSTANDING, &block)
}

const FIELDS: usize = 1000;

/// Unanswered requests per connection.
const OUTSTANDING: u64 = 16;

const NOTES: [&str; 1] = [
    "16 requests outstanding on each connection, for a file of 1 KB; each has 8 KB of fields that do not enter the dynamic \
     table",
];
