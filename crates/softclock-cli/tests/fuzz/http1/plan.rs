//! The bytes that a session of HTTP/1 sends, and the answers that it may expect.

use crate::asked::{Asked, MUTANT, Mode};
use crate::limits::is_without;
use crate::random::Random;
use crate::target::Target;

use super::malformed;

/// A plan, which the session's seed determines.
pub(crate) struct Plan {
    /// Bytes, each followed by a pause in milliseconds.
    pub(crate) pieces: Vec<(Vec<u8>, u64)>,
    /// The complete and well-formed requests at the start.
    pub(crate) asked: Vec<Asked>,
    /// The bytes that follow the requests.
    pub(crate) tail: Tail,
    pub(crate) reading: Reading,
    pub(crate) end: End,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    Nothing,
    /// A request that asks for the end of the connection; it is the last that was asked.
    SaysClose,
    /// A request that must be refused, and some more that must not be answered.
    Refused,
    /// An incomplete request.
    Incomplete,
    /// A randomly changed request.
    Mutant,
    /// An upgrade, and these bytes for the tunnel.
    Tunnel(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    Eager,
    /// Reads in small pieces with pauses.
    Slow,
    /// Waits this many milliseconds first.
    Late(u64),
}

/// The client's action when it has sent everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Closes once the answers are there.
    Close,
    /// Closes its sending side at once.
    HalfClose,
    /// Resets the connection after this many milliseconds.
    Reset(u64),
    /// Closes without reading after this many milliseconds.
    Leave(u64),
    /// Waits for the server to close.
    Stay,
}

impl Plan {
    /// `session` is the number of the session: its requests have ids from a thousand times that.
    pub(crate) fn choose(target: &Target, session: u64, random: &mut Random) -> Self {
        let mode = target.mode;
        let mut bytes = Vec::new();
        let count = random.pick(&[0, 1, 1, 1, 2, 3, 5, 8]);
        let asked: Vec<_> = (0..count)
            .map(|number| Asked::choose(mode, session * 1_000 + number, random))
            .collect();
        for asked in &asked {
            bytes.extend(encode(asked, mode, &[], random));
        }
        let mut plan = Self {
            pieces: Vec::new(),
            asked,
            tail: Tail::Nothing,
            reading: if is_without("slow") {
                Reading::Eager
            } else {
                choose_reading(random)
            },
            end: choose_end(random),
        };
        if mode.is_tls() && plan.end == End::HalfClose {
            // futures-rustls returns no more received bytes once its own side is closed and the other side has ended.
            plan.end = End::Close;
        }
        plan.add_tail(mode, session * 1_000 + count, &mut bytes, random);
        if target.is_patient
            && plan.is_patient()
            && bytes.windows(SILENT.len()).any(|part| part == SILENT)
        {
            // The proxy would keep this connection for longer than this program waits.
            plan.end = End::Leave(random.next() % 100);
        }
        let most = random.pick(&[1, 1, 2, 4, 12]);
        let pause = random.pick(&[0, 1, 10, 30]);
        let pieces = random.split(&bytes, most).into_iter();
        plan.pieces = pieces
            .map(|piece| (piece, random.next() % (pause + 1)))
            .collect();
        plan
    }

    fn add_tail(&mut self, mode: Mode, own: u64, bytes: &mut Vec<u8>, random: &mut Random) {
        let tunnels = if mode == Mode::Proxy && !is_without("tunnel") {
            4
        } else {
            0
        };
        match random.weighted(&[46, 10, 20, 10, 10, tunnels]) {
            0 => {}
            1 => {
                let last = Asked::choose(mode, own, random);
                bytes.extend(encode(&last, mode, &["Connection: close"], random));
                self.asked.push(last);
                self.tail = Tail::SaysClose;
            }
            2 => {
                bytes.extend(malformed::head(random));
                bytes.extend(crate::asked::SMUGGLED);
                self.tail = Tail::Refused;
            }
            3 => {
                let asked = Asked::choose(mode, own, random);
                let whole = encode(&asked, mode, &[], random);
                bytes.extend(&whole[..random.within(1..=whole.len() - 1)]);
                self.tail = Tail::Incomplete;
            }
            4 => {
                let mut asked = Asked::choose(mode, own, random);
                asked.upload = None;
                let whole = encode(&asked, mode, &[], random);
                bytes.extend(malformed::mutate(as_mutant(whole, &asked, mode), random));
                self.tail = Tail::Mutant;
            }
            _ => self.add_tunnel(bytes, random),
        }
    }

    fn add_tunnel(&mut self, bytes: &mut Vec<u8>, random: &mut Random) {
        let head =
            "GET /tunnel HTTP/1.1\r\nHost: fuzz\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
        let len = random.pick(&[0, 1, 60, 5_000, 40_000]);
        let through = random.bytes(len);
        // Requests before this one would be answered first; another test covers that.
        self.asked.clear();
        *bytes = [head.as_bytes(), &through].concat();
        self.tail = Tail::Tunnel(through);
        self.end = End::Close;
    }

    /// Whether the client waits until the server has sent all answers.
    pub(crate) fn is_patient(&self) -> bool {
        !matches!(self.end, End::Reset(_) | End::Leave(_))
    }

    /// Describes the plan for a report.
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
        let tail = match &self.tail {
            Tail::Tunnel(bytes) => format!("a tunnel for {} bytes", bytes.len()),
            tail => format!("{tail:?}"),
        };
        format!(
            "asked: {:#?}\ntail: {tail}, reading: {:?}, end: {:?}\npieces and pauses: {cuts:?}\nsent:\n{}",
            self.asked,
            self.reading,
            self.end,
            crate::recorder::printable(&sent)
        )
    }
}

/// The beginning of the targets for which the upstream is silent.
const SILENT: &[u8] = b" /15/";

/// The same request, through a proxy for a target that no other request has, so that its outcome is not blamed on the
/// proxy.
fn as_mutant(whole: Vec<u8>, asked: &Asked, mode: Mode) -> Vec<u8> {
    if !mode.is_proxy() {
        return whole;
    }
    let text = String::from_utf8(whole).expect("text, as it has no body");
    text.replacen(&asked.target(mode), MUTANT, 1).into_bytes()
}

fn choose_reading(random: &mut Random) -> Reading {
    match random.weighted(&[80, 10, 10]) {
        0 => Reading::Eager,
        1 => Reading::Slow,
        _ => Reading::Late(random.next() % 300),
    }
}

fn choose_end(random: &mut Random) -> End {
    match random.weighted(&[60, 12, 8, 8, 12]) {
        0 => End::Close,
        1 => End::HalfClose,
        2 => End::Reset(random.next() % 100),
        3 => End::Leave(random.next() % 100),
        _ => End::Stay,
    }
}

/// One of the many ways to write this request.
fn encode(asked: &Asked, mode: Mode, more: &[&str], random: &mut Random) -> Vec<u8> {
    let mut lines = vec!["Host: fuzz".to_owned(), format!("X-Fuzz: {}", asked.id)];
    lines.extend(more.iter().map(|&line| line.to_owned()));
    if let Some((first, last)) = asked.range {
        lines.push(format!("Range: bytes={first}-{last}"));
    }
    for number in 0..random.pick(&[0, 0, 1, 3, 20]) {
        let space = random.pick(&["", " ", "\t", "  "]);
        let value = "v".repeat(random.pick(&[0, 1, 10, 200]));
        lines.push(format!("X-More-{number}:{space}{value}{space}"));
    }
    let upload = asked.upload();
    let chunked = asked.upload.is_some() && random.chance(50);
    if chunked {
        lines.push(
            random
                .pick(&["Transfer-Encoding: chunked", "transfer-encoding:  Chunked "])
                .into(),
        );
    } else if asked.upload.is_some() {
        lines.push(format!("Content-Length: {}", upload.len()));
    }
    // The order of fields has no meaning here.
    for index in (1..lines.len()).rev() {
        lines.swap(index, random.within(0..=index));
    }
    let head = format!(
        "{} {} HTTP/1.1\r\n{}\r\n\r\n",
        asked.method,
        asked.target(mode),
        lines.join("\r\n")
    );
    let mut bytes = head.into_bytes();
    if !chunked {
        bytes.extend(upload);
        return bytes;
    }
    for piece in random.split(&upload, 4) {
        if !piece.is_empty() {
            let extension = random.pick(&["", "", ";x", ";x=y", ";x=\"y;z\""]);
            bytes.extend(format!("{:x}{extension}\r\n", piece.len()).bytes());
            bytes.extend(piece);
            bytes.extend(b"\r\n");
        }
    }
    bytes.extend(
        random
            .pick(&["0\r\n\r\n", "000\r\n\r\n", "0\r\nX-Sum: 1\r\n\r\n"])
            .bytes(),
    );
    bytes
}
