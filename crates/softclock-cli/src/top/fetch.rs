//! Fetches metrics from a server.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

use softclock_linux::socket::unix;

/// The address of a page of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    authority: String,
    path: String,
}

impl Target {
    /// Fetches the page, within five seconds.
    ///
    /// # Errors
    /// Those of the connection, an answer that is no page, and one that is longer than 64 MiB or not whole.
    pub(super) fn fetch(&self) -> io::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        match self.authority.strip_prefix("unix:") {
            Some(path) => {
                // A connection is not waited for: the queue of a stopped server may be full.
                let stream = UnixStream::from(unix::connect(path.as_ref())?);
                stream.set_nonblocking(false)?;
                self.ask(&stream, deadline, |left| {
                    stream.set_write_timeout(left)?;
                    stream.set_read_timeout(left)
                })
            }
            None => {
                let stream = self.connect()?;
                self.ask(&stream, deadline, |left| {
                    stream.set_write_timeout(left)?;
                    stream.set_read_timeout(left)
                })
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends the request, and reads until the end of the answer. `limit` sets the longest time of each call.
    fn ask(
        &self,
        mut stream: impl Read + Write,
        deadline: Instant,
        limit: impl Fn(Option<Duration>) -> io::Result<()>,
    ) -> io::Result<String> {
        let left = || match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => limit(Some(left)),
        };
        left()?;
        write!(
            stream,
            "GET {} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.path, self.authority
        )?;
        let mut answer = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            left()?;
            match stream.read(&mut part) {
                Ok(0) => return page(&answer),
                Ok(_) if answer.len() > MOST_BYTES => {
                    return Err(io::Error::other("its page is longer than 64 MiB"));
                }
                Ok(length) => answer.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // By its own limit.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The content of an answer of HTTP/1.
fn page(answer: &[u8]) -> io::Result<String> {
    let answer = str::from_utf8(answer).map_err(io::Error::other)?;
    let (head, page) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        let line = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("it answers {line:?}")));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        value.trim().parse::<usize>().ok().filter(|_| is_length)
    });
    match length {
        Some(length) if page.len() < length => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(page.to_owned()),
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err("metrics are served without TLS; write http://".into());
        }
        if text.starts_with("unix:") {
            return Ok(Self {
                authority: text.into(),
                path: "/metrics".into(),
            });
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = match authority.strip_prefix(':') {
            Some(port) => format!("127.0.0.1:{port}"),
            None => authority.to_owned(),
        };
        let port = authority
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("write IP:PORT, unix:PATH or http://HOST:PORT/metrics".into());
        }
        let path = if path.is_empty() { "metrics" } else { path };
        Ok(Self {
            authority,
            path: format!("/{path}"),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

/// Limit of a page's size: some 6 KB for each upstream.
const MOST_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one answer in a thread; returns its address.
    fn answering(answer: impl FnOnce(std::net::TcpStream) + Send + 'static) -> Target {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // What is unread would reset the connection.
            let request = b"GET /metrics HTTP/1.0\r\nHost: ";
            let rest = address.to_string().len() + b"\r\n\r\n".len();
            stream
                .read_exact(&mut vec![0; request.len() + rest])
                .unwrap();
            answer(stream);
        });
        address.to_string().parse().unwrap()
    }

    #[test]
    fn pages_are_whole() {
        let long = "a 1\n".repeat(2 << 20);
        let sent = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}",
            long.len()
        );
        let target = answering(move |mut stream| stream.write_all(sent.as_bytes()).unwrap());
        assert!(target.fetch().unwrap() == long);
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na 1";
        assert_eq!(page(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(page(b"HTTP/1.1 200 OK\r\n\r\na 1").unwrap(), "a 1");
        assert!(page(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
    }

    /// A server that sends now and then keeps `top` no longer than one that sends nothing.
    #[test]
    fn a_page_that_comes_slowly_is_given_up() {
        let target = answering(|mut stream| {
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(PATIENCE / 10);
            }
        });
        assert_eq!(target.fetch().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn targets() {
        for (text, authority, path) in [
            ("127.0.0.1:1", "127.0.0.1:1", "/metrics"),
            (":1", "127.0.0.1:1", "/metrics"),
            ("http://[::1]:1/x/y", "[::1]:1", "/x/y"),
            ("localhost:1/", "localhost:1", "/metrics"),
            ("unix:/run/m", "unix:/run/m", "/metrics"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                (target.authority.as_str(), target.path.as_str()),
                (authority, path)
            );
        }
        for wrong in ["", "x", "https://x:1", "http://x", "a b:1", "x:1/\r\n"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
