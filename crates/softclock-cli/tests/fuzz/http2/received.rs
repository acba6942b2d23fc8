//! Compares the frames on the streams of a connection with the permitted outcomes.

use std::collections::BTreeMap;

use crate::asked::{Answer, Asked};
use crate::recorder::{Tally, count};
use crate::target::Target;

use super::frames::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PUSH_PROMISE,
    RST_STREAM, SETTINGS,
};
use super::incoming::{Fields, Frame};
use super::plan::{Credit, Expected, Plan};

/// The state of a connection.
pub(crate) struct Received<'a> {
    plan: &'a Plan,
    streams: BTreeMap<u32, Stream>,
    /// Bytes that the server may still send on all streams.
    window: i64,
    /// A block whose CONTINUATION frames have not arrived yet, and whether the stream ends with it.
    block: Option<(u32, Vec<u8>, bool)>,
    /// The last stream that the server has worked on, and why there are no more.
    goaway: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Stream {
    window: i64,
    answer: Answer,
    has_head: bool,
    is_ended: bool,
    reset: Option<u32>,
}

impl<'a> Received<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let stream = || Stream {
            window: i64::from(plan.window),
            answer: Answer::default(),
            has_head: false,
            is_ended: false,
            reset: None,
        };
        Self {
            plan,
            streams: plan.streams.keys().map(|&id| (id, stream())).collect(),
            window: 65_535,
            block: None,
            goaway: None,
        }
    }

    /// Takes a frame, and returns the frames that the client answers with.
    pub(crate) fn take(&mut self, frame: Frame) -> Result<Vec<u8>, String> {
        if frame.payload.len() > 16_384 {
            return Err(format!("a frame of {} bytes", frame.payload.len()));
        }
        if self.block.is_some() && frame.kind != CONTINUATION {
            return Err("a frame within a field block".into());
        }
        match frame.kind {
            DATA => self.data(&frame),
            HEADERS => {
                let skipped = usize::from(frame.flags & 0x20 != 0) * 5;
                let block = frame.payload[skipped..].to_vec();
                self.block = Some((frame.stream, block, frame.flags & END_STREAM != 0));
                self.block_end(frame.flags)
            }
            CONTINUATION => {
                let block = self
                    .block
                    .as_mut()
                    .ok_or("CONTINUATION behind no HEADERS")?;
                block.1.extend(frame.payload);
                self.block_end(frame.flags)
            }
            RST_STREAM => {
                let code = word(&frame.payload);
                let stream = self.stream(frame.stream)?;
                stream.reset = Some(code);
                Ok(Vec::new())
            }
            SETTINGS if frame.flags & ACK == 0 && self.plan.acknowledges => {
                Ok(frames::frame(SETTINGS, ACK, 0, &[]))
            }
            PING if frame.flags & ACK == 0 && self.plan.acknowledges => {
                Ok(frames::frame(PING, ACK, 0, &frame.payload))
            }
            GOAWAY => {
                let payload = &frame.payload;
                self.goaway = Some((word(payload), word(&payload[4..])));
                Ok(Vec::new())
            }
            PUSH_PROMISE => Err("a push, which was turned off".into()),
            _ => Ok(Vec::new()),
        }
    }

    fn stream(&mut self, id: u32) -> Result<&mut Stream, String> {
        self.streams
            .get_mut(&id)
            .ok_or_else(|| format!("a frame on stream {id}, which was not opened"))
    }

    fn data(&mut self, frame: &Frame) -> Result<Vec<u8>, String> {
        let len = frame.payload.len();
        self.window -= len as i64;
        if self.window < 0 {
            return Err("more than the connection's window".into());
        }
        let stream = self.stream(frame.stream)?;
        stream.window -= len as i64;
        if stream.window < 0 {
            return Err(format!("more than the window of stream {}", frame.stream));
        }
        if !stream.has_head || stream.is_ended || stream.reset.is_some() {
            return Err(format!("DATA where none may be: {stream:?}"));
        }
        stream.answer.body.extend(&frame.payload);
        stream.is_ended = frame.flags & END_STREAM != 0;
        if self.plan.credit == Credit::Never || len == 0 {
            return Ok(Vec::new());
        }
        let mut room = frames::window_update(0, len as u32);
        self.window += len as i64;
        let stream = self.stream(frame.stream)?;
        if !stream.is_ended {
            stream.window += len as i64;
            room.extend(frames::window_update(frame.stream, len as u32));
        }
        Ok(room)
    }

    fn block_end(&mut self, flags: u8) -> Result<Vec<u8>, String> {
        if flags & END_HEADERS == 0 {
            return Ok(Vec::new());
        }
        let Some((id, block, ends)) = self.block.take() else {
            return Ok(Vec::new());
        };
        let fields = Fields::decode(&block).ok_or_else(|| format!("no field block: {block:x?}"))?;
        let is_small = self.plan.window <= 100 && self.plan.credit == Credit::Always;
        let stream = self.stream(id)?;
        if stream.is_ended {
            return Err(format!("fields behind the end of stream {id}"));
        }
        stream.is_ended = ends;
        let is_interim = (100..200).contains(&fields.status);
        if stream.has_head || is_interim {
            return if ends == is_interim {
                Err(format!("interim or trailing fields: {fields:?}"))
            } else {
                Ok(Vec::new())
            };
        }
        stream.has_head = true;
        stream.answer.status = fields.status;
        stream.answer.has_length = fields.has_length;
        if ends || !is_small {
            return Ok(Vec::new());
        }
        // Byte by byte would take too long.
        stream.window += MORE;
        Ok(frames::window_update(id, MORE as u32))
    }

    /// Whether nothing more is to come.
    pub(crate) fn is_complete(&self) -> bool {
        let is_over = |(id, stream): (&u32, &Stream)| {
            let is_own = matches!(self.plan.streams[id], Expected::Anything);
            stream.is_ended || stream.reset.is_some() || is_own
        };
        self.streams.iter().all(is_over)
    }

    /// Judges each stream once the connection or the session is over; `is_excused` if streams may lack their end.
    pub(crate) fn judge(&mut self, target: &Target, is_excused: bool) -> Result<(), String> {
        for (id, stream) in &mut self.streams {
            count(&target.recorder.tally.streams);
            stream.answer.is_complete = stream.is_ended;
            let is_over = stream.is_ended || stream.reset.is_some();
            let was_told = self.goaway.is_some_and(|(last, _)| last < *id);
            let verdict = match &self.plan.streams[id] {
                Expected::Anything => Ok(()),
                Expected::Refusal(fault) => refused(stream, fault, &target.recorder.tally),
                Expected::Answer(_) if !is_over && !was_told && !is_excused => Err("no end".into()),
                Expected::Answer(asked) => {
                    let may_lack = is_excused || was_told || self.plan.credit == Credit::Never;
                    answered(target, asked, stream, may_lack)
                }
            };
            verdict.map_err(|fault| format!("stream {id}: {fault}; goaway: {:?}", self.goaway))?;
        }
        Ok(())
    }
}

fn refused(stream: &Stream, fault: &str, tally: &Tally) -> Result<(), String> {
    count(&tally.refusals);
    match stream.answer.status {
        0 | 400.. => Ok(()),
        status => Err(format!(
            "a malformed request, {fault}, is answered with {status}"
        )),
    }
}

fn answered(target: &Target, asked: &Asked, stream: &Stream, may_lack: bool) -> Result<(), String> {
    if !stream.has_head {
        // A reset discards all frames of the stream that wait to be sent, even the head.
        let may_end = may_lack || asked.upload.is_some() || asked.reply.breaks_off();
        return if may_end {
            Ok(())
        } else {
            Err(format!("reset without an answer: {:?}", stream.reset))
        };
    }
    if stream.answer.status == 408 && may_lack {
        // The client was late, as `may_lack` says.
        return Ok(());
    }
    let tally = &target.recorder.tally;
    count(&tally.answers);
    if asked.is_good() {
        let gave_up = target.mode.is_proxy() && stream.answer.status >= 500;
        count(if gave_up {
            &tally.given_up
        } else {
            &tally.good
        });
    }
    let verdict = asked.judge(target.mode, &stream.answer);
    match verdict {
        // The received part must still be correct.
        Err(_) if may_lack && !stream.is_ended => asked.judge_start(target.mode, &stream.answer),
        verdict => verdict.map_err(|fault| format!("{fault}, reset: {:?}", stream.reset)),
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |four| u32::from_be_bytes(*four))
}

/// Room for the largest response in a proxy and most files.
const MORE: i64 = 1_000_000;
