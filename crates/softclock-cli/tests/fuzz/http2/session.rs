//! A client that sends as its plan says, answers control frames, and checks the responses.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_lite::{AsyncWriteExt, future};
use softclock::{sleep, timeout};

use crate::limits::{ANSWER, DELAY};
use crate::random::Random;
use crate::recorder::{Recorder, count};
use crate::target::Target;
use crate::transport::{Reader, Writer, connect};

use super::incoming::{Stop, next};
use super::plan::{Credit, End, Plan};
use super::received::Received;

/// The state that the parts of a session share.
struct Shared<'a> {
    recorder: &'a Recorder,
    begun: Instant,
    is_delayed: Cell<bool>,
    is_sent: Cell<bool>,
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
    let tls = target.trust.as_ref().map(|trust| (trust, "h2"));
    let Ok(Ok((mut reader, writer))) = timeout(ANSWER, connect(target.address, tls, resets)).await
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
    let mut received = Received::new(&plan);
    let (answers, waiting) = async_channel::unbounded();
    let sending = send(&plan, writer, &waiting, &shared);
    let receiving = receive(target, &plan, &mut received, &mut reader, &answers, &shared);
    let result = future::or(receiving, sending).await;
    if shared.is_delayed() {
        count(&target.recorder.tally.delayed);
    }
    if let Err(fault) = result {
        target
            .recorder
            .violation(Some(session), &fault, &plan.describe());
    }
}

type Outgoing = async_channel::Sender<Vec<u8>>;
type Incoming = async_channel::Receiver<Vec<u8>>;

impl Shared<'_> {
    /// Whether this program was so late that the server's timeouts may have struck.
    fn is_delayed(&self) -> bool {
        self.is_delayed.get() || self.recorder.was_held_up_since(self.begun)
    }

    fn note_time(&self, late: Duration) {
        if late > DELAY {
            self.is_delayed.set(true);
        }
    }
}

/// Sends the frames of the plan, then the answers that had to wait so as not to interrupt a frame.
async fn send(
    plan: &Plan,
    mut writer: Writer,
    answers: &Incoming,
    shared: &Shared<'_>,
) -> Result<(), String> {
    for (bytes, pause) in &plan.pieces {
        write(&mut writer, bytes, shared).await;
        let begun = Instant::now();
        let pause = Duration::from_millis(*pause);
        sleep(pause).await;
        shared.note_time(begun.elapsed().saturating_sub(pause));
    }
    shared.is_sent.set(true);
    if let End::Reset(pause) | End::Leave(pause) = plan.end {
        sleep(Duration::from_millis(pause)).await;
        return Ok(());
    }
    while let Ok(bytes) = answers.recv().await {
        write(&mut writer, &bytes, shared).await;
    }
    // The connection is open until the session is over.
    future::pending().await
}

/// A server that has said its last word may have closed.
async fn write(writer: &mut Writer, bytes: &[u8], shared: &Shared<'_>) {
    let begun = Instant::now();
    let written = timeout(ANSWER, async {
        writer.write_all(bytes).await?;
        writer.flush().await
    });
    let _ = written.await;
    shared.note_time(begun.elapsed());
}

async fn receive(
    target: &Target,
    plan: &Plan,
    received: &mut Received<'_>,
    reader: &mut Reader,
    answers: &Outgoing,
    shared: &Shared<'_>,
) -> Result<(), String> {
    loop {
        let is_done = shared.is_sent.get() && received.is_complete();
        if is_done && plan.end == End::Close && !plan.is_fatal {
            return received.judge(target, shared.is_delayed());
        }
        match next(reader).await {
            Ok(frame) => {
                let answer = received.take(frame)?;
                if !answer.is_empty() {
                    let _ = answers.send(answer).await;
                }
            }
            Err(Stop::End) => return ended(target, plan, received, shared),
            Err(Stop::Late) => {
                // The frames received before the failure may explain it.
                received.judge(target, shared.is_delayed())?;
                return Err("the connection neither goes on nor ends".into());
            }
        }
    }
}

/// The server has closed.
fn ended(
    target: &Target,
    plan: &Plan,
    received: &mut Received<'_>,
    shared: &Shared<'_>,
) -> Result<(), String> {
    let may_stall = plan.credit == Credit::Never || !plan.acknowledges;
    // h2 ends the connection for some fields that no request may have, as a server may (RFC 9113, section 8.1.1).
    let may_end = plan.is_fatal || plan.floods || may_stall || plan.has_refusals();
    let is_excused = may_end || shared.is_delayed();
    received.judge(target, is_excused)
}
