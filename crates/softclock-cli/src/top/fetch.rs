//! Fetches metrics from a server.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

/// The address of a page of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    authority: String,
    path: String,
}

impl Target {
    /// Fetches the page.
    pub(super) fn fetch(&self) -> io::Result<String> {
        match self.authority.strip_prefix("unix:") {
            Some(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                self.ask(stream)
            }
            None => {
                let stream = self.connect()?;
                stream.set_read_timeout(Some(PATIENCE))?;
                self.ask(stream)
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

    fn ask(&self, mut stream: impl Read + Write) -> io::Result<String> {
        write!(
            stream,
            "GET {} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.path, self.authority
        )?;
        let mut answer = String::new();
        stream.take(MOST_BYTES).read_to_string(&mut answer)?;
        let (head, page) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status != "200" {
            let line = head.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("it answers {line:?}")));
        }
        Ok(page.to_owned())
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

/// Limit of a page's size; the pages of softclock are smaller.
const MOST_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

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
