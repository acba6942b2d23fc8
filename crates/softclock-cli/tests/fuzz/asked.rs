//! One request and its permitted answers, in either version of HTTP.

use crate::limits::is_without;
use crate::random::{Random, content, digest};

/// The kind of server under test, and the transport of its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Serve,
    ServeTls,
    Proxy,
    ProxyTls,
}

impl Mode {
    pub(crate) const fn is_proxy(self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyTls)
    }

    pub(crate) const fn is_tls(self) -> bool {
        matches!(self, Self::ServeTls | Self::ProxyTls)
    }
}

/// The upstream's behaviour for a request. The target of the request holds its index in [`Reply::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    // Complete responses.
    Sized,
    Chunked,
    UntilClose,
    Pieces,
    Interim,
    NoContent,
    /// Closes a kept connection after the response, without announcing it.
    ClosesAfter,
    SaysClose,
    /// Answers before it has read the body, and reads the body after that.
    Early,
    /// A transfer coding beside a length; the coding takes precedence.
    ChunkedAndSized,
    // Truncated responses.
    Cut,
    CutChunks,
    ResetWithin,
    StallsWithin,
    BrokenChunk,
    // No response.
    Silent,
    ClosesAtOnce,
    ResetsAtOnce,
    Garbage,
    GiantHead,
    EndlessHead,
    Unasked101,
    TwoLengths,
    Nul,
    // Responses that need care.
    Folded,
    InterimFlood,
    /// More bytes than the length says: they would answer the next request on the connection, if the proxy kept it.
    Behind,
    NoContentWithLength,
    NoContentWithBody,
}

impl Reply {
    pub(crate) const ALL: [Self; 29] = [
        Self::Sized,
        Self::Chunked,
        Self::UntilClose,
        Self::Pieces,
        Self::Interim,
        Self::NoContent,
        Self::ClosesAfter,
        Self::SaysClose,
        Self::Early,
        Self::ChunkedAndSized,
        Self::Cut,
        Self::CutChunks,
        Self::ResetWithin,
        Self::StallsWithin,
        Self::BrokenChunk,
        Self::Silent,
        Self::ClosesAtOnce,
        Self::ResetsAtOnce,
        Self::Garbage,
        Self::GiantHead,
        Self::EndlessHead,
        Self::Unasked101,
        Self::TwoLengths,
        Self::Nul,
        Self::Folded,
        Self::InterimFlood,
        Self::Behind,
        Self::NoContentWithLength,
        Self::NoContentWithBody,
    ];

    /// The number of complete responses, at the start of [`ALL`](Self::ALL).
    const GOOD: usize = 10;

    fn choose(random: &mut Random) -> Self {
        let good = random.chance(70);
        let reply = random.pick(if good {
            &Self::ALL[..Self::GOOD]
        } else {
            &Self::ALL[Self::GOOD..]
        });
        match reply {
            Self::NoContentWithLength | Self::NoContentWithBody if is_without("no-content") => {
                Self::NoContent
            }
            reply => reply,
        }
    }

    const fn is_good(self) -> bool {
        (self as usize) < Self::GOOD
    }

    const fn is_empty(self) -> bool {
        matches!(
            self,
            Self::NoContent | Self::NoContentWithLength | Self::NoContentWithBody
        )
    }

    /// A response with this status begins, but cannot be completed.
    pub(crate) const fn breaks_off(self) -> bool {
        matches!(
            self,
            Self::Cut
                | Self::CutChunks
                | Self::ResetWithin
                | Self::StallsWithin
                | Self::BrokenChunk
        )
    }

    /// No part of it may reach a client.
    const fn is_none(self) -> bool {
        (self as usize) >= Self::Silent as usize && (self as usize) <= Self::Nul as usize
    }
}

/// A complete and well-formed request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The id of the file, or in a proxy an id of this request alone.
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) method: &'static str,
    pub(crate) reply: Reply,
    pub(crate) upload: Option<usize>,
    pub(crate) range: Option<(usize, usize)>,
}

/// The answer that a client received.
#[derive(Default, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) has_length: bool,
    /// The upstream's digest of the body that it received.
    pub(crate) upload: Option<String>,
    pub(crate) body: Vec<u8>,
    /// It came to the end that its framing promises.
    pub(crate) is_complete: bool,
}

impl Asked {
    /// A random request; `own` is its number, unique in the run.
    pub(crate) fn choose(mode: Mode, own: u64, random: &mut Random) -> Self {
        let (id, len) = match mode.is_proxy() {
            true => (own, random.pick(&LENGTHS)),
            false => random.pick(&FILES),
        };
        let method = match random.weighted(&[70, 10, 10, 5, 5]) {
            0 => "GET",
            1 => "HEAD",
            2 => "POST",
            3 => "PUT",
            _ => "DELETE",
        };
        let has_upload = match method {
            "POST" | "PUT" => true,
            _ => random.chance(4),
        };
        let range =
            (method == "GET" && !mode.is_proxy() && len > 1 && random.chance(20)).then(|| {
                let first = random.within(0..=len - 1);
                (first, random.within(first..=len - 1))
            });
        Self {
            id,
            len,
            method,
            reply: Reply::choose(random),
            upload: has_upload.then(|| random.pick(&[0, 1, 10, 3_000, 40_000])),
            range,
        }
    }

    pub(crate) fn target(&self, mode: Mode) -> String {
        match mode.is_proxy() {
            true => format!("/{}/{}/{}", self.reply as usize, self.id, self.len),
            false => file_name(self.id, self.len),
        }
    }

    /// The request that a target names, as an upstream reads it.
    pub(crate) fn from_target(target: &str) -> Option<(Reply, u64, usize)> {
        let mut parts = target.strip_prefix('/')?.split('/');
        let reply: usize = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        let len = parts.next()?.parse().ok()?;
        let reply = *Reply::ALL.get(reply)?;
        (parts.next().is_none() && len <= LARGEST).then_some((reply, id, len))
    }

    /// The bytes of the request's body, which would form a request if a server parsed them as one.
    pub(crate) fn upload(&self) -> Vec<u8> {
        let len = self.upload.unwrap_or(0);
        let mut bytes = SMUGGLED.repeat(len / SMUGGLED.len() + 1);
        bytes.truncate(len);
        bytes
    }

    /// Whether the server may close the connection after this answer, although neither side announced it.
    pub(crate) const fn may_end_connection(&self) -> bool {
        self.upload.is_some()
    }

    /// Whether `answer` is permitted for this request; an error gives the reason.
    pub(crate) fn judge(&self, mode: Mode, answer: &Answer) -> Result<(), String> {
        if answer.status == 204 && answer.has_length {
            return Err("a 204 has Content-Length".into());
        }
        let result = match mode.is_proxy() {
            true => self.judge_passed(answer),
            false => self.judge_file(answer),
        };
        result.map_err(|fault| {
            format!(
                "{fault}, status {}, {} bytes",
                answer.status,
                answer.body.len()
            )
        })
    }

    /// Like [`judge`](Self::judge), for an answer that was cut off.
    pub(crate) fn judge_start(&self, mode: Mode, answer: &Answer) -> Result<(), String> {
        let first = self.range.map_or(0, |(first, _)| first);
        let is_content = content(self.id, self.len)[first..].starts_with(&answer.body);
        // The proxy's own answers, and refusals.
        let is_other = answer.status >= if mode.is_proxy() { 500 } else { 400 };
        expect(is_content || is_other, "the start of another body")
    }

    fn judge_file(&self, answer: &Answer) -> Result<(), String> {
        if !matches!(self.method, "GET" | "HEAD") {
            return expect(
                answer.status == 405,
                "a method that files do not have is not refused",
            );
        }
        let (status, expected) = match self.range {
            Some((first, last)) => (206, content(self.id, self.len)[first..=last].to_vec()),
            None => (200, content(self.id, self.len)),
        };
        expect(answer.status == status, "a file is not served")?;
        expect(answer.is_complete, "a file is cut short")?;
        self.judge_body(&expected, answer)
    }

    fn judge_passed(&self, answer: &Answer) -> Result<(), String> {
        if matches!(answer.status, 502..=504) {
            return expect(answer.is_complete, "the proxy's own answer is cut short");
        }
        expect(!self.reply.is_none(), "what is no response was passed on")?;
        let status = if self.reply.is_empty() { 204 } else { 200 };
        expect(
            answer.status == status,
            "another status than the upstream's",
        )?;
        if let Some(upload) = &answer.upload {
            let expected = digest(&self.upload());
            expect(*upload == expected, "the upstream got another body")?;
        }
        let expected = match self.reply.is_empty() {
            true => Vec::new(),
            false => content(self.id, self.len),
        };
        if answer.is_complete && self.method != "HEAD" {
            expect(
                !self.reply.breaks_off(),
                "a response that broke off looks complete",
            )?;
            return self.judge_body(&expected, answer);
        }
        expect(
            expected.starts_with(&answer.body),
            "the start of another body",
        )?;
        let may_end = self.method == "HEAD" || !self.reply.is_good() || self.upload.is_some();
        expect(may_end, "a complete response is cut short")
    }

    fn judge_body(&self, expected: &[u8], answer: &Answer) -> Result<(), String> {
        let expected = if self.method == "HEAD" { &[] } else { expected };
        expect(answer.body == expected, "another body")
    }

    /// Whether a healthy upstream would have answered it.
    pub(crate) const fn is_good(&self) -> bool {
        self.reply.is_good()
    }

    /// Whether the answer only comes when the upstream's timeout expires.
    pub(crate) const fn is_slow(&self) -> bool {
        matches!(self.reply, Reply::Silent | Reply::StallsWithin)
    }
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

pub(crate) fn file_name(id: u64, len: usize) -> String {
    format!("/f{id}-{len}")
}

/// The files of the site: ids and lengths.
pub(crate) const FILES: [(u64, usize); 12] = [
    (1, 0),
    (2, 1),
    (3, 20),
    (4, 100),
    (5, 1_000),
    (6, 5_000),
    (7, 16_384),
    (8, 16_385),
    (9, 70_000),
    (10, 70_000),
    (11, 300_000),
    (12, 1_000_000),
];

/// Lengths of responses in a proxy.
const LENGTHS: [usize; 9] = [0, 1, 20, 100, 1_000, 5_000, 16_385, 70_000, 300_000];

const LARGEST: usize = 1_000_000;

/// The target of randomly changed requests in a proxy.
pub(crate) const MUTANT: &str = "/mutant/mutant/mutant/mutant";

/// Bytes that no server may parse as a request.
pub(crate) const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: fuzz\r\n\r\n";
