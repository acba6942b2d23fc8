//! The end with the kernel's stack, behind a TAP device. The calling thread is in a network namespace of its own.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use softclock_core::Instant;
use softclock_linux::link::Tap;
use softclock_model::host::Version;
use softclock_wire::packet::{Headers, Offload, complete_checksum, segments};

use crate::world::{End, Read, client_port, server_port};

pub(crate) struct Kernel {
    tap: Tap,
    listeners: Vec<TcpListener>,
    streams: Vec<Option<Stream>>,
    /// Whether it opens the connections.
    opens: bool,
}

struct Stream {
    stream: TcpStream,
    /// Whether the handshake has been complete.
    was_connected: bool,
}

impl Kernel {
    pub(crate) fn new(tap: Tap, version: Version, number: usize, opens: bool) -> Self {
        let mut listeners = Vec::new();
        if !opens {
            for connection in 0..number {
                let listener = TcpListener::bind(version.socket(2, server_port(connection)));
                let listener = listener.expect("a new namespace");
                listener.set_nonblocking(true).expect("a setting");
                listeners.push(listener);
            }
        }
        Self {
            tap,
            listeners,
            streams: (0..number)
                .map(|connection| opens.then(|| Stream::open(version, connection)))
                .collect(),
            opens,
        }
    }

    fn stream(&mut self, connection: usize) -> &mut Stream {
        self.streams[connection].as_mut().expect("it is open")
    }
}

impl Stream {
    fn open(version: Version, connection: usize) -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let family = match version {
            Version::V4 => AddressFamily::INET,
            Version::V6 => AddressFamily::INET6,
        };
        let fd = socket_with(family, SocketType::STREAM, flags, None);
        let fd = fd.expect("a socket");
        let local: SocketAddr = version.socket(2, client_port(connection));
        bind(&fd, &local).expect("a new namespace");
        let connected = connect(&fd, &version.socket(1, server_port(connection)));
        assert_eq!(connected, Err(Errno::INPROGRESS));
        Self::of(fd.into())
    }

    /// A peer that is reset while all is acknowledged would never learn of it without keep-alive.
    fn of(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).expect("a setting");
        sockopt::set_socket_keepalive(&stream, true).expect("a setting");
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(1)).expect("a setting");
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1)).expect("a setting");
        sockopt::set_tcp_keepcnt(&stream, 30).expect("a setting");
        Self {
            stream,
            was_connected: false,
        }
    }

    fn is_connected(&mut self) -> bool {
        self.was_connected |= self.stream.peer_addr().is_ok();
        self.was_connected
    }
}

impl End for Kernel {
    fn on_frame(&mut self, _now: Instant, frame: Vec<u8>) {
        // A full queue is a loss like others.
        let _ = self.tap.send([(&frame[..], &Offload::default())]);
    }

    fn work(&mut self, _now: Instant) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let received = self.tap.receive(|frame| {
                let frame = frame.expect("a frame that fits");
                frames.extend(on_the_wire(&frame.bytes, &frame.offload));
            });
            match received {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return frames,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        Some(now + Duration::from_millis(1))
    }

    fn accept(&mut self, _now: Instant) {
        for (connection, listener) in self.listeners.iter().enumerate() {
            if let Ok((stream, _)) = listener.accept() {
                assert!(self.streams[connection].is_none(), "accepted twice");
                self.streams[connection] = Some(Stream::of(stream));
            }
        }
    }

    fn is_open(&self, connection: usize) -> bool {
        self.opens || self.streams[connection].is_some()
    }

    fn read(&mut self, _now: Instant, connection: usize, into: &mut [u8]) -> Read {
        let stream = self.stream(connection);
        stream.is_connected();
        match stream.stream.read(into) {
            Ok(0) => Read::End,
            Ok(read) => Read::Bytes(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Read::Nothing,
            Err(error) => failed(&error),
        }
    }

    fn write(&mut self, _now: Instant, connection: usize, bytes: &[u8]) -> Option<usize> {
        let stream = self.stream(connection);
        stream.is_connected();
        match stream.stream.write(bytes) {
            Ok(written) => Some(written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            Err(error) => {
                failed(&error);
                None
            }
        }
    }

    fn shut(&mut self, _now: Instant, connection: usize) -> bool {
        let stream = self.stream(connection);
        // In SYN-SENT it would end the connection.
        let may_shut = stream.is_connected();
        if may_shut {
            // Fails if the connection is over: the next read says why.
            let _ = stream.stream.shutdown(Shutdown::Write);
        }
        may_shut
    }

    fn leave(&mut self, _now: Instant, connection: usize) {
        self.streams[connection] = None;
    }

    fn abort(&mut self, _now: Instant, connection: usize) {
        if let Some(stream) = self.streams[connection].take() {
            let linger = Some(Duration::ZERO);
            sockopt::set_socket_linger(&stream.stream, linger).expect("a setting");
        }
    }

    fn left(&self) -> Option<String> {
        let tables = ["tcp", "tcp6"].map(|name| {
            fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("proc(5)")
        });
        let states: Vec<&str> = tables
            .iter()
            .flat_map(|table| table.lines().skip(1))
            .filter_map(|line| line.split_whitespace().nth(3))
            .filter(|state| !CLOSED.contains(state))
            .collect();
        (!states.is_empty()).then(|| format!("the kernel: {states:?}"))
    }
}

/// What a device would put on the wire for a frame: its segments, with their checksums.
fn on_the_wire(frame: &[u8], offload: &Offload) -> Vec<Vec<u8>> {
    let complete = |mut bytes: Vec<u8>| {
        if let Some(checksum) = offload.checksum {
            assert!(
                complete_checksum(&mut bytes, checksum),
                "it is in the frame"
            );
        }
        bytes
    };
    if offload.segmentation.is_none() {
        return vec![complete(frame.to_vec())];
    }
    let headers = Headers::of_frame(frame);
    let cut = segments(frame, &headers, offload).expect("it fits the frame");
    cut.map(complete).collect()
}

/// Only a reset may end a connection.
fn failed(error: &io::Error) -> Read {
    let kinds = [
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionRefused,
        ErrorKind::BrokenPipe,
    ];
    assert!(kinds.contains(&error.kind()), "{error}");
    Read::Reset
}

/// TIME-WAIT and LISTEN (`include/net/tcp_states.h`).
const CLOSED: [&str; 2] = ["06", "0A"];
