//! Parses responses strictly.

use std::io;
use std::time::Duration;

use futures_lite::AsyncReadExt;
use softclock::{sleep, timeout};

use crate::asked::Answer;
use crate::limits::ANSWER;
use crate::transport::Reader;

use super::plan::Reading;

/// The server's side of a connection.
pub(crate) struct Incoming {
    reader: Reader,
    reading: Reading,
    buffer: Vec<u8>,
    /// The start of all received bytes, for reports.
    pub(crate) all: Vec<u8>,
}

/// The reason why no response follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The connection ended, or was reset, before the first byte of a response.
    End,
    /// The connection ended within a response.
    Within,
    /// No byte arrived for longer than any limit.
    Late,
    /// The bytes are not a valid response.
    Fault(String),
}

/// A response's head.
struct Head {
    status: u16,
    fields: Vec<(String, String)>,
}

/// A response, and whether it is the connection's last.
pub(crate) struct Response {
    pub(crate) answer: Answer,
    pub(crate) is_last: bool,
}

impl Incoming {
    pub(crate) fn new(reader: Reader, reading: Reading) -> Self {
        Self {
            reader,
            reading,
            buffer: Vec::new(),
            all: Vec::new(),
        }
    }

    /// Waits for more; false at the end.
    async fn fill(&mut self) -> Result<bool, Stop> {
        let most = match self.reading {
            Reading::Eager => 64 << 10,
            Reading::Slow => {
                sleep(Duration::from_millis(2)).await;
                2_000
            }
            Reading::Late(pause) => {
                self.reading = Reading::Eager;
                sleep(Duration::from_millis(pause)).await;
                64 << 10
            }
        };
        let mut chunk = vec![0; most];
        let read: io::Result<usize> = match timeout(ANSWER, self.reader.read(&mut chunk)).await {
            Ok(read) => read,
            Err(_) => return Err(Stop::Late),
        };
        // A reset counts as an end.
        let n = read.unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..n]);
        let room = KEPT.saturating_sub(self.all.len()).min(n);
        self.all.extend_from_slice(&chunk[..room]);
        Ok(n > 0)
    }

    /// The next final response to a request of this method; `upgrade` if it may be 101.
    pub(crate) async fn response(&mut self, method: &str) -> Result<Response, Stop> {
        loop {
            let head = self.head().await?;
            if (100..200).contains(&head.status) && head.status != 101 {
                continue;
            }
            return self.behind(head, method).await;
        }
    }

    async fn behind(&mut self, head: Head, method: &str) -> Result<Response, Stop> {
        let mut answer = Answer {
            status: head.status,
            has_length: head.field("content-length").is_some(),
            upload: head.field("x-upload").map(str::to_owned),
            body: Vec::new(),
            is_complete: true,
        };
        let mut is_last = head
            .field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if method == "HEAD" || matches!(head.status, 101 | 204 | 304) {
            return Ok(Response { answer, is_last });
        }
        if let Some(length) = head.field("content-length") {
            let length = length
                .parse()
                .map_err(|_| Stop::Fault("no length".into()))?;
            answer.is_complete = self.take(length, &mut answer.body).await?;
        } else if head.field("transfer-encoding").is_some() {
            answer.is_complete = self.chunks(&mut answer.body).await?;
        } else {
            while self.fill().await? {}
            answer.body = std::mem::take(&mut self.buffer);
            is_last = true;
        }
        Ok(Response { answer, is_last })
    }

    /// Reads to the end of the connection, and returns the bytes, which should be none.
    pub(crate) async fn end(&mut self) -> Result<Vec<u8>, Stop> {
        while self.fill().await? {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Appends up to `len` bytes; false if the end came before.
    pub(crate) async fn take(&mut self, len: usize, body: &mut Vec<u8>) -> Result<bool, Stop> {
        while self.buffer.len() < len {
            if !self.fill().await? {
                body.append(&mut self.buffer);
                return Ok(false);
            }
        }
        body.extend(self.buffer.drain(..len));
        Ok(true)
    }

    async fn line(&mut self) -> Result<Option<String>, Stop> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line).into_owned();
                let line = text.strip_suffix("\r\n");
                return line
                    .map(|line| Some(line.to_owned()))
                    .ok_or(Stop::Fault(format!("a bare LF, {text:?}")));
            }
            if self.buffer.len() > 1 << 20 {
                return Err(Stop::Fault("a line without end".into()));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    async fn head(&mut self) -> Result<Head, Stop> {
        while self.buffer.is_empty() {
            if !self.fill().await? {
                return Err(Stop::End);
            }
        }
        let line = self.line().await?.ok_or(Stop::Within)?;
        let status = line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| Stop::Fault(format!("no status line, {line:?}")))?;
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?.ok_or(Stop::Within)?;
            if line.is_empty() {
                break;
            }
            let field = line
                .split_once(": ")
                .or(line.strip_suffix(':').map(|name| (name, "")));
            let (name, value) = field.ok_or_else(|| Stop::Fault(format!("no field, {line:?}")))?;
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let head = Head { status, fields };
        match head.fault() {
            Some(fault) => Err(Stop::Fault(fault.into())),
            None => Ok(head),
        }
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> Result<bool, Stop> {
        loop {
            let Some(line) = self.line().await? else {
                return Ok(false);
            };
            let size = usize::from_str_radix(&line, 16)
                .map_err(|_| Stop::Fault(format!("no size, {line:?}")))?;
            if size == 0 {
                break;
            }
            if !self.take(size, body).await? {
                return Ok(false);
            }
            match self.line().await? {
                None => return Ok(false),
                Some(line) if line.is_empty() => {}
                Some(line) => return Err(Stop::Fault(format!("{line:?} behind a chunk"))),
            }
        }
        loop {
            match self.line().await? {
                None => return Ok(false),
                Some(line) if line.is_empty() => return Ok(true),
                Some(_) => {}
            }
        }
    }
}

impl Head {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find_map(|(own, value)| (own == name).then_some(value.as_str()))
    }

    fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(own, _)| own == name).count()
    }

    /// A violation of the format that readers could resolve in different ways.
    fn fault(&self) -> Option<&'static str> {
        let (lengths, codings) = (
            self.count("content-length"),
            self.count("transfer-encoding"),
        );
        if lengths + codings > 1 {
            return Some("several framings");
        }
        let has_none = (100..200).contains(&self.status) || self.status == 204;
        if has_none && lengths + codings > 0 {
            return Some("a framing of what has no body");
        }
        if self.count("date") > 1 || self.count("server") > 1 {
            return Some("repeated fields");
        }
        None
    }
}

/// Received bytes to keep for reports.
const KEPT: usize = 8 << 10;
