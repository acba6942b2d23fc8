//! A client that sends as its plan says, and checks the answers.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_lite::{AsyncWriteExt, future};
use softclock::{sleep, timeout};

use crate::asked::Asked;
use crate::limits::{ANSWER, DELAY};
use crate::random::Random;
use crate::recorder::{Recorder, count, printable};
use crate::target::Target;
use crate::transport::{Writer, connect};

use super::incoming::{Incoming, Response, Stop};
use super::plan::{End, Plan, Tail};

/// The state that the two halves of a session share.
struct Shared<'a> {
    recorder: &'a Recorder,
    begun: Instant,
    /// This program was so late that the server's timeouts may have expired.
    is_delayed: Cell<bool>,
    /// Everything is sent.
    is_sent: Cell<bool>,
}

impl Shared<'_> {
    fn is_delayed(&self) -> bool {
        self.is_delayed.get() || self.recorder.was_held_up_since(self.begun)
    }

    /// Whether this status says that the client was late, and it was.
    fn is_excused(&self, status: u16) -> bool {
        status == 408 && self.is_delayed()
    }
}

/// Describes the session of this number.
pub(crate) fn describe(target: &Target, session: u64, random: &mut Random) -> String {
    Plan::choose(target, session, random).describe()
}

/// Runs the session of this number, which its seed determines.
pub(crate) async fn run(target: &Target, session: u64, random: &mut Random) {
    let begun = Instant::now();
    let plan = Plan::choose(target, session, random);
    let resets = matches!(plan.end, End::Reset(_));
    let tls = target.trust.as_ref().map(|trust| (trust, "http/1.1"));
    let Ok(Ok((reader, writer))) = timeout(ANSWER, connect(target.address, tls, resets)).await
    else {
        return target
            .recorder
            .violation(Some(session), "no connection", &plan.describe());
    };
    let shared = Shared {
        recorder: &target.recorder,
        begun,
        is_delayed: Cell::default(),
        is_sent: Cell::default(),
    };
    let mut incoming = Incoming::new(reader, plan.reading);
    let sending = async {
        let writer = send(&plan, writer, &shared).await;
        shared.is_sent.set(true);
        if let End::Reset(pause) | End::Leave(pause) = plan.end {
            sleep(Duration::from_millis(pause)).await;
            return Ok(());
        }
        // Keep the sending side open until the answers have arrived.
        let _open = writer;
        future::pending().await
    };
    let receiving = check(target, &plan, &mut incoming, &shared);
    let result = future::or(receiving, sending).await;
    if shared.is_delayed() {
        count(&target.recorder.tally.delayed);
    }
    if let Err(fault) = result {
        let received = printable(&incoming.all);
        let details = format!("{}\nreceived:\n{received}", plan.describe());
        target.recorder.violation(Some(session), &fault, &details);
    }
}

async fn send(plan: &Plan, mut writer: Writer, shared: &Shared<'_>) -> Option<Writer> {
    for (bytes, pause) in &plan.pieces {
        let begun = Instant::now();
        // A server that has sent its last response may close the connection.
        if !matches!(timeout(ANSWER, writer.write_all(bytes)).await, Ok(Ok(()))) {
            return None;
        }
        let pause = Duration::from_millis(*pause);
        sleep(pause).await;
        if begun.elapsed() > pause + DELAY {
            shared.is_delayed.set(true);
        }
    }
    let _ = writer.flush().await;
    if plan.end == End::HalfClose {
        let _ = writer.close().await;
    }
    Some(writer)
}

/// Reads all expected answers; an error describes the first wrong one.
async fn check(
    target: &Target,
    plan: &Plan,
    incoming: &mut Incoming,
    shared: &Shared<'_>,
) -> Result<(), String> {
    let begun = Instant::now();
    for (number, asked) in plan.asked.iter().enumerate() {
        let response = match incoming.response(asked.method).await {
            Ok(response) => response,
            Err(stop) => return early(target, plan, number, &stop, shared),
        };
        if !response.answer.is_complete && breaks_off_from(target, plan, number + 1) {
            return asked.judge_start(target.mode, &response.answer);
        }
        if shared.is_excused(response.answer.status) {
            return Ok(());
        }
        judge(target, number, asked, &response)?;
        if response.is_last || !response.answer.is_complete {
            return last(target, plan, number, incoming).await;
        }
        if begun.elapsed() > ANSWER && !asked.is_slow() {
            shared.is_delayed.set(true);
        }
    }
    match &plan.tail {
        Tail::Refused => refused(target, plan, incoming, shared).await,
        Tail::Tunnel(bytes) => tunnel(target, bytes, incoming, shared).await,
        Tail::Mutant | Tail::Incomplete => whatever(plan, incoming).await,
        Tail::Nothing | Tail::SaysClose => nothing(plan, incoming).await,
    }
}

fn judge(target: &Target, number: usize, asked: &Asked, response: &Response) -> Result<(), String> {
    let tally = &target.recorder.tally;
    count(&tally.answers);
    if asked.is_good() {
        let gave_up = target.mode.is_proxy() && response.answer.status >= 500;
        count(if gave_up {
            &tally.given_up
        } else {
            &tally.good
        });
    }
    let verdict = asked.judge(target.mode, &response.answer);
    verdict.map_err(|fault| format!("answer {number}: {fault}"))
}

/// Whether the response of this number or a later one breaks off. Then the proxy resets the connection, and whatever a
/// client has not read by then is lost, up to the first byte of that response.
fn breaks_off_from(target: &Target, plan: &Plan, number: usize) -> bool {
    let mut rest = plan.asked[number..].iter();
    target.mode.is_proxy() && rest.any(|asked| asked.reply.breaks_off())
}

/// The connection ended before the answer of this number.
fn early(
    target: &Target,
    plan: &Plan,
    number: usize,
    stop: &Stop,
    shared: &Shared<'_>,
) -> Result<(), String> {
    match stop {
        Stop::Fault(fault) => return Err(format!("answer {number}: {fault}")),
        Stop::Late => {
            return Err(format!(
                "answer {number} does not come, and the connection does not end"
            ));
        }
        Stop::End | Stop::Within => {}
    }
    let half_closed = plan.end == End::HalfClose && target.mode.is_proxy();
    let after_upload = plan.asked[..=number].iter().any(Asked::may_end_connection);
    let is_excused = shared.is_delayed() || breaks_off_from(target, plan, number);
    if half_closed || after_upload || is_excused {
        return Ok(());
    }
    Err(format!(
        "the connection ended before answer {number}: {stop:?}"
    ))
}

/// The answer of this number was the last: the end must follow.
async fn last(
    target: &Target,
    plan: &Plan,
    number: usize,
    incoming: &mut Incoming,
) -> Result<(), String> {
    let is_asked = number + 1 == plan.asked.len() && plan.tail != Tail::Nothing;
    let after_upload = plan.asked[..=number].iter().any(Asked::may_end_connection);
    let half_closed = plan.end == End::HalfClose;
    let by_upstream = target.mode.is_proxy() && !plan.asked[number].is_good();
    if !(is_asked || after_upload || half_closed || by_upstream) {
        return Err(format!(
            "the server ends the connection with answer {number} for no reason"
        ));
    }
    match incoming.end().await {
        Ok(rest) if rest.is_empty() => Ok(()),
        Ok(rest) => Err(format!(
            "behind the last answer came {:?}",
            printable(&rest)
        )),
        Err(_) => Err("the last answer was there, but no end".into()),
    }
}

async fn refused(
    target: &Target,
    plan: &Plan,
    incoming: &mut Incoming,
    shared: &Shared<'_>,
) -> Result<(), String> {
    let response = match incoming.response("POST").await {
        Ok(response) => response,
        Err(Stop::End | Stop::Within)
            if shared.is_delayed() || !plan.asked.is_empty() || !shared.is_sent.get() =>
        {
            return Ok(());
        }
        Err(stop) => return Err(format!("the refusal: {stop:?}")),
    };
    count(&target.recorder.tally.refusals);
    if !(400..=505).contains(&response.answer.status) {
        return Err(format!(
            "a malformed request is answered with {}",
            response.answer.status
        ));
    }
    match incoming.end().await {
        Ok(rest) if rest.is_empty() => Ok(()),
        Ok(rest) => Err(format!("behind a refusal came {}", printable(&rest))),
        Err(_) => Err("the end does not follow on a refusal".into()),
    }
}

async fn tunnel(
    target: &Target,
    bytes: &[u8],
    incoming: &mut Incoming,
    shared: &Shared<'_>,
) -> Result<(), String> {
    let response = match incoming.response("GET").await {
        Ok(response) => response,
        Err(stop) => return Err(format!("the upgrade: {stop:?}")),
    };
    let status = response.answer.status;
    if matches!(status, 502..=504) || shared.is_excused(status) {
        return Ok(());
    }
    if response.answer.status != 101 {
        return Err(format!(
            "an upgrade is answered with {}",
            response.answer.status
        ));
    }
    count(&target.recorder.tally.tunnels);
    let mut through = Vec::new();
    let result = incoming.take(bytes.len(), &mut through).await;
    if result != Ok(true) || through != bytes {
        return Err(format!(
            "of {} bytes {} came through the tunnel",
            bytes.len(),
            through.len()
        ));
    }
    Ok(())
}

/// Any answers, as long as they are some, and then the end.
async fn whatever(plan: &Plan, incoming: &mut Incoming) -> Result<(), String> {
    loop {
        match incoming.response("GET").await {
            Ok(response) if response.answer.body.windows(6).any(|six| six == b"forged") => {
                return Err("the answer to no request".into());
            }
            Ok(response) if response.is_last => {}
            Ok(_) => {}
            // A response to HEAD looks as if it had a body.
            Err(Stop::Fault(_)) if plan.tail == Tail::Mutant => return Ok(()),
            Err(Stop::Fault(fault)) => return Err(fault),
            Err(Stop::Late) => return Err("the connection of half a request does not end".into()),
            Err(Stop::End | Stop::Within) => return Ok(()),
        }
    }
}

async fn nothing(plan: &Plan, incoming: &mut Incoming) -> Result<(), String> {
    if plan.end == End::Close && plan.tail == Tail::Nothing {
        return Ok(());
    }
    if !plan.is_patient() {
        return future::pending().await;
    }
    match incoming.end().await {
        Ok(rest) if rest.is_empty() => Ok(()),
        Ok(rest) => Err(format!("behind all answers came {:?}", printable(&rest))),
        Err(_) => Err("an idle connection does not end".into()),
    }
}
