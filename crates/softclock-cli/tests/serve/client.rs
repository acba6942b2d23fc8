//! A client that sends given bytes exactly, and checks every part of the responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection to the server.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The reason phrase of the status line.
    pub(crate) reason: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The only header field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(
            values.next().is_none(),
            "{name} is repeated: {:?}",
            self.headers
        );
        value
    }

    /// All fields but Date, which ticks.
    pub(crate) fn undated_headers(&self) -> Vec<(String, String)> {
        self.headers
            .iter()
            .filter(|(name, _)| name != "date")
            .cloned()
            .collect()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a listening server");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a time-out");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream
            .get_mut()
            .write_all(bytes)
            .expect("a connection that takes requests");
    }

    /// Clones the connection, for writes by another thread.
    pub(crate) fn another(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a descriptor")
    }

    /// Like [`send`](Self::send), to a server that may have closed the connection; false if it has.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends a request for `target` with these header lines, and reads the response.
    pub(crate) fn request(&mut self, method: &str, target: &str, headers: &[&str]) -> Response {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n");
        for line in headers {
            request += line;
            request += "\r\n";
        }
        request += "\r\n";
        self.send(request.as_bytes());
        self.response(method)
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[])
    }

    /// Reads the answer to a request of this method.
    pub(crate) fn response(&mut self, method: &str) -> Response {
        let mut response = self.head();
        if method != "HEAD" && !matches!(response.status, 204 | 304) {
            let length = response
                .header("content-length")
                .expect("every answer has a length");
            response.body = vec![0; length.parse().expect("a number")];
            self.stream
                .read_exact(&mut response.body)
                .expect("the whole body");
        }
        response
    }

    /// Reads a status line and header fields.
    pub(crate) fn head(&mut self) -> Response {
        let line = self.line();
        let mut words = line.splitn(3, ' ').skip(1);
        let status = words.next().and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        let reason = words.next().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return Response {
                    status,
                    reason,
                    headers,
                    body: Vec::new(),
                };
            }
            let (name, value) = line.split_once(": ").expect("a field");
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.strip_suffix("\r\n")
            .unwrap_or_else(|| panic!("no end of line: {line:?}"))
            .to_owned()
    }

    /// Reads available bytes of a body.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }

    /// Reads exactly as many bytes of a body as the buffer holds.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) {
        self.stream.read_exact(buffer).expect("so many bytes");
    }

    /// Reads to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset counts as an end.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        let stream = self.stream.get_ref();
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("a socket");
    }

    pub(crate) fn close_sending(&mut self) {
        self.stream
            .get_ref()
            .shutdown(std::net::Shutdown::Write)
            .expect("a connection");
    }
}
