//! Upstreams made of raw sockets, with the behaviour that a test needs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::own_stack::host;
use crate::server::{Server, softclock};

/// A listener that serves each connection by a closure, in a thread.
pub(crate) struct Upstream {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// A connection from the proxy.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// The index of the connection among all of this upstream, from 0.
    pub(crate) number: usize,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) line: String,
    /// Header lines, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Upstream {
    pub(crate) fn start(serve: impl Fn(&mut Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((host(), 0)).expect("a free port");
        let upstream = Self {
            address: listener.local_addr().expect("its address"),
            connections: Arc::default(),
            seen: Arc::default(),
        };
        let (connections, seen) = (upstream.connections.clone(), upstream.seen.clone());
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let time_out = stream.set_read_timeout(Some(Duration::from_secs(20)));
                time_out.expect("a time-out");
                let mut connection = Connection {
                    stream: BufReader::new(stream),
                    number: connections.fetch_add(1, Ordering::SeqCst),
                    seen: seen.clone(),
                };
                let serve = serve.clone();
                thread::spawn(move || serve(&mut connection));
            }
        });
        upstream
    }

    /// Answers each request with these bytes.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |connection| {
            while connection.request().is_some() {
                connection.send(&bytes);
            }
        })
    }

    /// Answers each request with this text.
    pub(crate) fn saying(text: &str) -> Self {
        Self::answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Connection {
    /// Reads a request to its end; `None` at the end of the connection.
    pub(crate) fn request(&mut self) -> Option<Request> {
        let mut request = self.head()?;
        if let Some(length) = request.header("content-length") {
            request.body = self.body(length.parse().expect("a length"))?;
        } else if request.header("transfer-encoding").is_some() {
            loop {
                let line = self.line()?;
                let size = usize::from_str_radix(&line, 16).expect("a chunk's size");
                if size == 0 {
                    break;
                }
                let start = request.body.len();
                request.body.resize(start + size, 0);
                self.stream.read_exact(&mut request.body[start..]).ok()?;
                assert_eq!(self.line()?, "");
            }
            request.trailers = self.fields()?;
        }
        self.seen.lock().expect("no panic").push(request.clone());
        Some(request)
    }

    /// Reads a request's head.
    pub(crate) fn head(&mut self) -> Option<Request> {
        Some(Request {
            line: self.line()?,
            headers: self.fields()?,
            ..Request::default()
        })
    }

    /// Reads a body of `length` bytes.
    pub(crate) fn body(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(": ").expect("a field");
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    }

    /// Sends bytes; ignores that the proxy may have closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes);
    }

    /// Like [`send`](Self::send); returns false if the proxy has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.stream.read(buffer).unwrap_or(0)
    }

    /// Reads until the proxy closes its side.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    pub(crate) fn close_sending(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }
}

impl Request {
    /// The only field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(own, _)| own == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is repeated: {self:?}");
        value
    }
}

/// A proxy to these upstreams.
pub(crate) fn proxy(upstreams: &[&str], options: &[&str]) -> Server {
    let mut command = softclock();
    command
        .args(["proxy", "--listen", "127.0.0.1:0"])
        .args(options);
    for upstream in upstreams {
        command.args(["--upstream", upstream]);
    }
    Server::spawn(&mut command)
}

/// Outside the range from which the kernel assigns ports, so that no other socket gets them while an upstream is down.
pub(crate) fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let salt = RandomState::new().build_hasher().finish();
    let mut listeners = (0..1000).filter_map(|step| {
        let port = 20_000 + (salt.wrapping_add(7 * step) % 10_000) as u16;
        TcpListener::bind((host(), port)).ok()
    });
    // The ports stay taken until all are found.
    let found = [(); N].map(|()| listeners.next().expect("a free port"));
    found.map(|listener| listener.local_addr().expect("its address"))
}
