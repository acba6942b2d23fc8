//! The frames that a session of HTTP/2 sends, and the answers that it may expect.

use std::collections::BTreeMap;

use crate::asked::{Asked, Mode};
use crate::limits::is_without;
use crate::random::Random;
use crate::recorder::printable;
use crate::target::Target;

use super::{frames, malformed};

pub(crate) struct Plan {
    /// Bytes, each followed by a pause in milliseconds.
    pub(crate) pieces: Vec<(Vec<u8>, u64)>,
    pub(crate) streams: BTreeMap<u32, Expected>,
    /// The initial window of each stream.
    pub(crate) window: u32,
    pub(crate) credit: Credit,
    /// Whether the frames must end the connection.
    pub(crate) is_fatal: bool,
    /// The plan sends more control frames than the server allows, which may end the connection.
    pub(crate) floods: bool,
    /// The client answers PING and SETTINGS.
    pub(crate) acknowledges: bool,
    pub(crate) end: End,
}

/// The permitted outcomes of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// The answer to this.
    Answer(Asked),
    /// Any outcome but an answer as for a good request; with the mistake in the request.
    Refusal(String),
    /// The client has reset the stream.
    Anything,
}

/// When the client makes room for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credit {
    Always,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Close,
    Stay,
    Leave(u64),
    Reset(u64),
}

impl Plan {
    pub(crate) fn choose(target: &Target, session: u64, random: &mut Random) -> Self {
        let stalls = random.chance(10) && !is_without("stall");
        let mut plan = Self {
            pieces: Vec::new(),
            streams: BTreeMap::new(),
            window: if stalls {
                random.pick(&[0, 1, 100])
            } else {
                random.pick(&[1, 100, 65_535, 65_535, 1_000_000])
            },
            credit: if stalls {
                Credit::Never
            } else {
                Credit::Always
            },
            is_fatal: random.chance(15),
            floods: false,
            acknowledges: random.chance(80),
            end: choose_end(random),
        };
        let mut frames = plan.requests(target, session, random);
        if plan.is_fatal {
            let next = 1 + 2 * plan.streams.len() as u32;
            frames.push(malformed::fatal(next, random));
            plan.end = End::Stay;
        }
        let mut bytes = [
            frames::PREFACE,
            &frames::settings(&[(1, 0), (2, 0), (4, plan.window)]),
        ]
        .concat();
        bytes.extend(frames.concat());
        let (most, pause) = (random.pick(&[1, 2, 4, 12]), random.pick(&[0, 1, 10, 30]));
        let pieces = random.split(&bytes, most).into_iter();
        plan.pieces = pieces
            .map(|piece| (piece, random.next() % (pause + 1)))
            .collect();
        plan
    }

    /// Frames of all streams, mixed.
    fn requests(&mut self, target: &Target, session: u64, random: &mut Random) -> Vec<Vec<u8>> {
        let count = random.pick(&[0, 1, 1, 2, 4, 10, 30]);
        let (mut all, mut bodies) = (Vec::new(), Vec::<Vec<Vec<u8>>>::new());
        let mut room = 60_000;
        for number in 0..count {
            let stream = 1 + 2 * number as u32;
            let mut asked = Asked::choose(target.mode, session * 1_000 + number, random);
            asked.upload = asked.upload.map(|len| if len <= room { len } else { 1 });
            room -= asked.upload.unwrap_or(0).min(room);
            if target.is_patient && asked.is_slow() && matches!(self.end, End::Close | End::Stay) {
                self.end = End::Leave(random.next() % 100);
            }
            all.push(self.request(target.mode, stream, &asked, random));
            if asked.upload.is_some() {
                bodies.push(frames::data(stream, &asked.upload(), random));
            }
            self.streams
                .entry(stream)
                .or_insert(Expected::Answer(asked));
            self.between(&mut all, stream, random);
            for body in &mut bodies {
                if !body.is_empty() && random.chance(50) {
                    all.push(body.remove(0));
                }
            }
        }
        all.extend(bodies.into_iter().flatten());
        all
    }

    fn request(&mut self, mode: Mode, stream: u32, asked: &Asked, random: &mut Random) -> Vec<u8> {
        let mut fields = fields(asked, mode, random);
        let is_spoilt = random.chance(6);
        if is_spoilt {
            let fault = malformed::spoil(&mut fields, random);
            self.streams.insert(stream, Expected::Refusal(fault));
        }
        // The crate h2 forgets that a field is malformed if the end of the frame cuts another field.
        let most = if is_spoilt && is_without("continuation") {
            1
        } else {
            random.pick(&[1, 1, 1, 2, 5])
        };
        frames::headers(
            stream,
            &frames::block(&fields),
            asked.upload.is_none(),
            most,
            random,
        )
    }

    /// Frames of the connection, and streams that end before their time.
    fn between(&mut self, all: &mut Vec<Vec<u8>>, stream: u32, random: &mut Random) {
        if random.chance(20) {
            all.push(malformed::harmless(random));
        }
        if random.chance(1) {
            all.push(malformed::flood(random));
            self.floods = true;
        }
        if random.chance(5)
            && matches!(
                self.streams[&stream],
                Expected::Answer(Asked { upload: None, .. })
            )
        {
            let code = random.pick(&[0, 8, 2, 77]);
            all.push(frames::frame(
                frames::RST_STREAM,
                0,
                stream,
                &u32::to_be_bytes(code),
            ));
            self.streams.insert(stream, Expected::Anything);
        }
    }

    pub(crate) fn has_refusals(&self) -> bool {
        self.streams
            .values()
            .any(|expected| matches!(expected, Expected::Refusal(_)))
    }

    pub(crate) fn describe(&self) -> String {
        let sent: Vec<u8> = self
            .pieces
            .iter()
            .flat_map(|(bytes, _)| bytes.clone())
            .collect();
        let cuts: Vec<_> = self
            .pieces
            .iter()
            .map(|(bytes, pause)| (bytes.len(), *pause))
            .collect();
        format!(
            "streams: {:#?}\nwindow: {}, {:?}, fatal: {}, acknowledges: {}, end: {:?}\npieces and pauses: {cuts:?}\n\
            sent:\n{}",
            self.streams,
            self.window,
            self.credit,
            self.is_fatal,
            self.acknowledges,
            self.end,
            printable(&sent)
        )
    }
}

fn choose_end(random: &mut Random) -> End {
    match random.weighted(&[60, 20, 10, 10]) {
        0 => End::Close,
        1 => End::Stay,
        2 => End::Leave(random.next() % 100),
        _ => End::Reset(random.next() % 100),
    }
}

fn fields(asked: &Asked, mode: Mode, random: &mut Random) -> Vec<(String, String)> {
    let mut fields = vec![
        (":method".to_owned(), asked.method.to_owned()),
        (":scheme".into(), "https".into()),
        (":path".into(), asked.target(mode)),
        (":authority".into(), "fuzz".into()),
        ("x-fuzz".into(), asked.id.to_string()),
    ];
    if let Some((first, last)) = asked.range {
        fields.push(("range".into(), format!("bytes={first}-{last}")));
    }
    if let Some(len) = asked.upload.filter(|_| random.chance(50)) {
        fields.push(("content-length".into(), len.to_string()));
    }
    for number in 0..random.pick(&[0, 0, 1, 3, 20]) {
        let value = "v".repeat(random.pick(&[0, 1, 10, 200]));
        fields.push((format!("x-more-{number}"), value));
    }
    fields
}
