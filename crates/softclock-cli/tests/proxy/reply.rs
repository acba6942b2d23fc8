//! Reads a proxy's response with any framing, and the way in which it ended.

use crate::client::Client;

/// A response, with the way in which it ended.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The response arrived to its announced end.
    pub(crate) is_complete: bool,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(own, _)| own == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is repeated: {self:?}");
        value
    }
}

impl Client {
    /// Sends a request without a body, and reads the response.
    pub(crate) fn ask(&mut self, method: &str, target: &str, headers: &[&str]) -> Reply {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{lines}\r\n").as_bytes());
        self.reply(method)
    }

    /// Reads the response to a request of this method.
    pub(crate) fn reply(&mut self, method: &str) -> Reply {
        let head = self.head();
        let mut reply = Reply {
            status: head.status,
            reason: head.reason,
            headers: head.headers,
            body: Vec::new(),
            trailers: Vec::new(),
            is_complete: true,
        };
        let has_body = method != "HEAD" && !matches!(reply.status, 101 | 204 | 304);
        if !has_body {
            return reply;
        }
        if let Some(length) = reply.header("content-length") {
            let length = length.parse().expect("a number");
            reply.body = self.up_to(length);
            reply.is_complete = reply.body.len() == length;
        } else if reply.header("transfer-encoding").is_some() {
            reply.is_complete = self.chunks(&mut reply).is_some();
        } else {
            reply.body = self.rest();
        }
        reply
    }

    fn chunks(&mut self, reply: &mut Reply) -> Option<()> {
        loop {
            let line = self.try_line()?;
            let size = usize::from_str_radix(&line, 16).expect("a chunk's size");
            if size == 0 {
                break;
            }
            let chunk = self.up_to(size);
            let is_whole = chunk.len() == size;
            reply.body.extend(chunk);
            if !is_whole || !self.try_line()?.is_empty() {
                return None;
            }
        }
        loop {
            let line = self.try_line()?;
            if line.is_empty() {
                return Some(());
            }
            let (name, value) = line.split_once(": ").expect("a field");
            reply.trailers.push((name.to_owned(), value.to_owned()));
        }
    }

    fn try_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let byte = self.up_to(1);
            line.push(*byte.first()?);
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).expect("ASCII"))
    }

    /// Reads `length` bytes, or fewer at the end of the connection.
    fn up_to(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.read(&mut bytes[filled..]) {
                Ok(n @ 1..) => filled += n,
                // A reset counts as an end.
                _ => break,
            }
        }
        bytes.truncate(filled);
        bytes
    }
}
