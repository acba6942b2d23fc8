//! The upstream: it answers as each request's target says, and reports every malformed request as the proxy's fault.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use softclock::net::{TcpListener, TcpStream};
use softclock::{sleep, spawn_local, timeout};

use crate::asked::{Asked, Reply};
use crate::own_stack::host;
use crate::random::{Random, content, derive, digest};
use crate::recorder::{Recorder, printable};

/// Accepts connections until the runtime ends.
pub(crate) fn start(recorder: &Rc<Recorder>, seed: u64) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((host(), 0))?;
    let address = listener.local_addr()?;
    let recorder = Rc::clone(recorder);
    spawn_local(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let connection = Connection {
                stream,
                buffer: Vec::new(),
                recorder: Rc::clone(&recorder),
                random: Random::new(derive(seed, number)),
            };
            // Ignore errors: the proxy may reset the connection at any time.
            spawn_local(async move { drop(timeout(LONGEST, connection.serve()).await) });
        }
    });
    Ok(address)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    recorder: Rc<Recorder>,
    random: Random,
}

/// A request's head.
struct Head {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
}

/// The state of the connection after a request.
#[derive(PartialEq, Eq)]
enum Then {
    Keep,
    Close,
    /// Reads until the proxy closes.
    Drain,
    Reset,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        while let Some(text) = self.head().await? {
            let head = match Head::parse(&text) {
                Ok(head) => head,
                Err(fault) => {
                    self.violation(&fault, &text);
                    return Ok(());
                }
            };
            if head.field("upgrade") == Some("echo") {
                return self.tunnel().await;
            }
            let Some(asked) = head.asked() else {
                if !head.is_of_mutant() {
                    self.violation("a request that no client made as such", &text);
                    return Ok(());
                }
                self.body(&head).await?;
                let unknown = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                self.stream.write_all(unknown).await?;
                continue;
            };
            match self.answer(&head, asked).await? {
                Then::Keep => {}
                Then::Close => return Ok(()),
                Then::Drain => return self.drain().await,
                Then::Reset => return self.stream.set_linger(Some(Duration::ZERO)),
            }
        }
        Ok(())
    }

    fn violation(&self, fault: &str, head: &[u8]) {
        let details = printable(&[head, b"--\n", &self.buffer].concat());
        self.recorder
            .violation(None, &format!("the upstream got {fault}"), &details);
    }

    async fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        let n = self.stream.read(&mut chunk).await?;
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(n > 0)
    }

    /// The next head with its empty line; `None` at the end.
    async fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                return Ok(Some(self.buffer.drain(..end + 4).collect()));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    async fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < len {
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..len).collect())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2).await?;
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        if let Some(length) = head.field("content-length") {
            let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            return self.take(length).await;
        }
        let mut body = Vec::new();
        if head.field("transfer-encoding").is_none() {
            return Ok(body);
        }
        loop {
            let line = self.line().await?;
            let Ok(size) = usize::from_str_radix(&line, 16) else {
                self.violation("a chunk without a size", line.as_bytes());
                return Err(io::ErrorKind::InvalidData.into());
            };
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            self.line().await?;
        }
    }

    async fn drain(&mut self) -> io::Result<()> {
        while self.fill().await? {
            self.buffer.clear();
        }
        Ok(())
    }

    async fn tunnel(&mut self) -> io::Result<()> {
        let switch =
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n";
        self.stream.write_all(switch).await?;
        loop {
            let bytes = std::mem::take(&mut self.buffer);
            self.stream.write_all(&bytes).await?;
            if !self.fill().await? {
                return Ok(());
            }
        }
    }

    async fn answer(&mut self, head: &Head, asked: (Reply, u64, usize)) -> io::Result<Then> {
        let (reply, id, len) = asked;
        if reply == Reply::ResetsAtOnce {
            return Ok(Then::Reset);
        }
        let upload = match reply {
            Reply::Early => None,
            _ => Some(digest(&self.body(head).await?)),
        };
        let upload = upload.map_or_else(String::new, |upload| format!("X-Upload: {upload}\r\n"));
        let has_body = head.method != "HEAD";
        let body = content(id, if has_body { len } else { 0 });
        let replied = match reply {
            reply if (reply as usize) <= Reply::ChunkedAndSized as usize => {
                self.good(reply, &upload, &body, len, has_body).await?
            }
            // Complete without a body: the connection would be kept, and the next request on it stall.
            Reply::StallsWithin if !has_body => Then::Close,
            reply if (reply as usize) <= Reply::BrokenChunk as usize => {
                self.broken_off(reply, &upload, &body, len).await?
            }
            reply => self.hostile(reply, &upload, &body, len).await?,
        };
        if reply == Reply::Early {
            self.body(head).await?;
        }
        Ok(replied)
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let most = self.random.pick(&[1, 1, 1, 2, 5]);
        for piece in self.random.split(bytes, most) {
            self.stream.write_all(&piece).await?;
            if most > 1 {
                sleep(Duration::from_millis(self.random.next() % 3)).await;
            }
        }
        Ok(())
    }

    /// Complete responses.
    async fn good(
        &mut self,
        reply: Reply,
        fields: &str,
        body: &[u8],
        len: usize,
        has_body: bool,
    ) -> io::Result<Then> {
        let (sized, chunked) = (
            sized(fields, len),
            format!("{OK}{fields}Transfer-Encoding: chunked\r\n\r\n"),
        );
        match reply {
            Reply::Chunked | Reply::ChunkedAndSized => {
                let length = if reply == Reply::Chunked {
                    ""
                } else {
                    "Content-Length: 5\r\n"
                };
                let mut bytes = chunked.replace(OK, &format!("{OK}{length}")).into_bytes();
                if has_body {
                    bytes.extend(self.chunks(body));
                    bytes.extend(b"0\r\n");
                    let trailer: &[u8] = self.random.pick(&[b"", b"X-Sum: 5\r\n"]);
                    bytes.extend([trailer, b"\r\n"].concat());
                }
                self.send(&bytes).await?;
            }
            Reply::UntilClose => {
                self.send(&[format!("{OK}{fields}\r\n").as_bytes(), body].concat())
                    .await?
            }
            Reply::Interim => {
                let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
                    .repeat(self.random.within(1..=3));
                self.send(&[interim.as_bytes(), sized.as_bytes(), body].concat())
                    .await?;
            }
            Reply::NoContent => {
                self.send(format!("HTTP/1.1 204 No Content\r\n{fields}\r\n").as_bytes())
                    .await?
            }
            Reply::SaysClose => {
                let head = sized.replace(OK, &format!("{OK}Connection: close\r\n"));
                self.send(&[head.as_bytes(), body].concat()).await?;
            }
            Reply::Pieces => {
                for piece in self.random.split(&[sized.as_bytes(), body].concat(), 6) {
                    self.stream.write_all(&piece).await?;
                    sleep(Duration::from_millis(self.random.next() % 10)).await;
                }
            }
            _ => self.send(&[sized.as_bytes(), body].concat()).await?,
        }
        Ok(match reply {
            Reply::UntilClose | Reply::ClosesAfter | Reply::SaysClose => Then::Close,
            _ => Then::Keep,
        })
    }

    fn chunks(&mut self, body: &[u8]) -> Vec<u8> {
        let pieces = self.random.split(body, 5);
        let chunk = |piece: &Vec<u8>| {
            [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
        };
        pieces
            .iter()
            .filter(|piece| !piece.is_empty())
            .flat_map(chunk)
            .collect()
    }

    /// Responses that begin and are never complete.
    async fn broken_off(
        &mut self,
        reply: Reply,
        fields: &str,
        body: &[u8],
        len: usize,
    ) -> io::Result<Then> {
        let chunked = format!("{OK}{fields}Transfer-Encoding: chunked\r\n\r\n");
        let half = &body[..body.len() / 2];
        match reply {
            Reply::CutChunks => {
                let chunks = self.chunks(half);
                self.send(&[chunked.as_bytes(), &chunks].concat()).await?;
            }
            Reply::BrokenChunk => {
                let broken: &[u8] = self.random.pick(&[
                    b"zz\r\n",
                    b"-1\r\n",
                    b"\r\n",
                    b"fffffffffffffffff\r\n",
                    b"5\nhello\n",
                ]);
                let chunks = self.chunks(half);
                self.send(&[chunked.as_bytes(), &chunks, broken].concat())
                    .await?;
            }
            _ => {
                let head = sized(fields, len + 10);
                self.send(&[head.as_bytes(), half].concat()).await?;
            }
        }
        Ok(match reply {
            Reply::ResetWithin => Then::Reset,
            Reply::StallsWithin => Then::Drain,
            _ => Then::Close,
        })
    }

    /// Sends responses that only a malicious server would send.
    async fn hostile(
        &mut self,
        reply: Reply,
        fields: &str,
        body: &[u8],
        len: usize,
    ) -> io::Result<Then> {
        let sized = sized(fields, len);
        match reply {
            Reply::Silent => return Ok(Then::Drain),
            Reply::ClosesAtOnce => return Ok(Then::Close),
            Reply::Garbage => {
                let len = self.random.within(1..=3_000);
                let bytes = [b"\x16\x03", &*self.random.bytes(len)].concat();
                self.send(&bytes).await?;
                return Ok(Then::Close);
            }
            Reply::GiantHead => {
                let giant = format!("{OK}{}{sized}", "X-Giant: 0123456789\r\n".repeat(20_000));
                self.send(giant.as_bytes()).await?;
            }
            Reply::EndlessHead => return self.endless().await,
            Reply::Unasked101 => {
                let switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
                self.send(switch).await?;
            }
            Reply::TwoLengths => {
                let two = sized.replace(OK, &format!("{OK}Content-Length: {}\r\n", len + 1));
                self.send(&[two.as_bytes(), body].concat()).await?;
            }
            Reply::Nul => {
                self.send(
                    &[
                        sized.replace(OK, &format!("{OK}X: a\0b\r\n")).as_bytes(),
                        body,
                    ]
                    .concat(),
                )
                .await?
            }
            Reply::Folded => {
                let folded = sized.replace(OK, &format!("{OK}X-Folded: a\r\n b\r\n"));
                self.send(&[folded.as_bytes(), body].concat()).await?;
            }
            Reply::InterimFlood => {
                let flood = "HTTP/1.1 102 Processing\r\n\r\n"
                    .repeat(self.random.pick(&[50, 1_000, 20_000]));
                self.send(&[flood.as_bytes(), sized.as_bytes(), body].concat())
                    .await?;
            }
            Reply::NoContentWithLength | Reply::NoContentWithBody => {
                let text = format!("HTTP/1.1 204 No Content\r\n{fields}Content-Length: 5\r\n\r\n");
                let body: &[u8] = if reply == Reply::NoContentWithBody {
                    b"hello"
                } else {
                    b""
                };
                self.send(&[text.as_bytes(), body].concat()).await?;
            }
            _ => {
                // Send it at once: after the next request it would be a valid answer to that.
                let forged = match body.len() {
                    ..20_000 => "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
                    _ => "",
                };
                let all = [sized.as_bytes(), body, forged.as_bytes()].concat();
                self.stream.write_all(&all).await?;
            }
        }
        Ok(Then::Keep)
    }

    async fn endless(&mut self) -> io::Result<Then> {
        let piece = [b'x'; 16 << 10];
        self.stream
            .write_all(format!("{OK}X-Endless: ").as_bytes())
            .await?;
        for _ in 0..1 << 10 {
            self.stream.write_all(&piece).await?;
        }
        let (recorder, what) = (&self.recorder, "an upstream's head of 16 MB was read on");
        recorder.violation(None, what, "");
        Ok(Then::Close)
    }
}

impl Head {
    /// Parses strictly: any text that a lenient reader could read differently is a fault.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(text);
        let lines: Vec<_> = text
            .strip_suffix("\r\n\r\n")
            .unwrap_or_default()
            .split("\r\n")
            .collect();
        let words: Vec<_> = lines[0].split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else {
            return Err("no request line".into());
        };
        let mut fields = Vec::new();
        for line in &lines[1..] {
            let (name, value) = line.split_once(':').ok_or("a line that is no field")?;
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\n', '\0'])
            {
                return Err(format!("a malformed field, {line:?}"));
            }
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let head = Self {
            method: method.into(),
            target: target.into(),
            fields,
        };
        let has_one = |name| head.count(name) <= 1;
        if !has_one("content-length") || !has_one("transfer-encoding") || head.count("host") != 1 {
            return Err("repeated fields that may not be".into());
        }
        if head.count("content-length") + head.count("transfer-encoding") > 1 {
            return Err("a length and a coding".into());
        }
        if head
            .field("transfer-encoding")
            .is_some_and(|coding| coding != "chunked")
        {
            return Err("an unknown coding".into());
        }
        Ok(head)
    }

    fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(own, _)| own == name).count()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find_map(|(own, value)| (own == name).then_some(value.as_str()))
    }

    /// The behaviour that the target requests, if the field beside it agrees.
    fn asked(&self) -> Option<(Reply, u64, usize)> {
        let asked = Asked::from_target(&self.target)?;
        (self.field("x-fuzz") == Some(&asked.1.to_string())).then_some(asked)
    }

    /// Random changes leave some of the target.
    fn is_of_mutant(&self) -> bool {
        // Each of the names may be hit, but hardly all their halves.
        self.target.contains("mut") || self.target.contains("ant")
    }
}

fn sized(fields: &str, len: usize) -> String {
    format!("{OK}{fields}Content-Length: {len}\r\n\r\n")
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// Longer than the proxy lets any exchange or idle connection take.
const LONGEST: Duration = Duration::from_secs(60);
