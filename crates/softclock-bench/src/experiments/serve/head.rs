//! `serve/head`: the cost of the strict scanner per request, beside the parser behind it.
//!
//! The server scans each request's head before hyper parses it with httparse. The scanner stores and allocates nothing.
//! httparse fills an array of fields here, which is the least that hyper has it do.

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;

use softclock_http::head::{HeadLimits, Scanner};

use crate::measure::calls::{Effort, ns_per_call};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "serve/head",
    about: "the strict scanner of request heads, beside httparse",
    takes: Takes::Nothing,
    run,
};

/// A request of wrk.
const SMALL: &str = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

/// A request of Firefox.
const BROWSER: &str = "GET /articles/2024/soft-timers.html?ref=home HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Referer: https://www.example.org/\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    If-None-Match: \"25-18ea081fa9303501-9880f1\"\r\n\
    Priority: u=0, i\r\n\r\n";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let effort = Effort::of(context, 200);
    let mut rows = Vec::new();
    for (name, head) in [("small", SMALL), ("browser's", BROWSER)] {
        let bytes = head.as_bytes();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut scanner = Scanner::new(HeadLimits::default());
        let rounds = effort.samples / TOGETHER;
        for round in 0..rounds {
            let of_round = context.round(round, rounds, name, || {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                // Alternate the variants, so that noise affects both.
                for _ in 0..TOGETHER {
                    ours.push(ns_per_call(effort.calls, || {
                        let scanned = scanner.scan(black_box(bytes));
                        assert_eq!(scanned.passed, bytes.len());
                    }));
                    theirs.push(ns_per_call(effort.calls, || parse(black_box(bytes))));
                }
                Ok::<_, Infallible>((ours, theirs))
            });
            let Ok((of_ours, of_theirs)) = of_round;
            ours.extend(of_ours);
            theirs.extend(of_theirs);
        }
        context.progress(rounds, rounds, "");
        let metric = format!("a {name} head of {} bytes", bytes.len());
        rows.push(Row::of_samples("scanner", &metric, "ns", &ours));
        rows.push(Row::of_samples("httparse", &metric, "ns", &theirs));
    }
    Ok(Report {
        title: "what it costs to read a request's head",
        notes: vec!["the scanner comes on top of the parser, which hyper needs".to_owned()],
        rows,
        charts: Vec::new(),
    })
}

/// Short loops of each variant per round. The steal time is read once per round, so a round must be long enough for it.
const TOGETHER: usize = 25;

fn parse(bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut fields);
    let complete = request.parse(bytes);
    assert!(complete.is_ok_and(|status| status.is_complete()));
}
