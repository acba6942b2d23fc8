//! The replay of a sequence of steps.

use core::time::Duration;
use std::collections::VecDeque;
use std::fmt::Write;

use bytes::Bytes;
use softclock_core::Instant;
use softclock_net::checksum::Verify;
use softclock_net::ip;
use softclock_net::link::Header as LinkHeader;
use softclock_net::stack::{Architecture, TcpError, TcpId, TcpListenSettings, TcpListenerId};
use softclock_net::tcp::connection::Error;
use softclock_net::tcp::segment;
use softclock_net::tcp::state::State;

use super::{Bounds, ConnectionModel, Facts, Opening, Step};
use crate::host::{Host, Version, host};

/// Two stacks and the network between them after some steps.
pub(super) struct Run {
    now: Instant,
    hosts: [Host; 2],
    owners: [Owner; 2],
    listener: Option<TcpListenerId>,
    /// Segments on their way to each end.
    network: [VecDeque<Vec<u8>>; 2],
    left: Bounds,
    /// No owner has reset the connection or left before the end of the other's stream.
    is_graceful: bool,
}

/// The owner of an end.
#[derive(Clone, Debug, Default)]
struct Owner {
    id: Option<TcpId>,
    is_gone: bool,
    has_shut: bool,
    writes: usize,
    read: usize,
    has_end: bool,
    error: Option<TcpError>,
}

impl Owner {
    fn may_read(&self) -> bool {
        !self.is_gone && !self.has_end && self.error.is_none()
    }
}

impl Run {
    /// Replays the steps.
    pub(super) fn after(model: &ConnectionModel, steps: &[Step]) -> Self {
        let mut run = Self::new(model);
        for &step in steps {
            run.take(step);
        }
        run
    }

    fn new(model: &ConnectionModel) -> Self {
        let hosts = [1, 2].map(|number| {
            host(number, 7, |settings| {
                settings.architecture = Architecture::Bsd;
                let connection = &mut settings.tcp.connection;
                connection.keep_alive.is_on = true;
                connection.keep_alive.idle = Duration::from_secs(1000);
                connection.send.has_nagle = false;
            })
        });
        let mut run = Self {
            now: START,
            hosts,
            owners: Default::default(),
            listener: None,
            network: Default::default(),
            left: model.bounds,
            is_graceful: true,
        };
        run.resolve();
        if model.opening == Opening::Passive {
            let settings = TcpListenSettings::with_backlog(10);
            let listener = run.hosts[1].tcp_listen(Version::V4.socket(2, PORT), settings);
            run.listener = Some(listener.expect("a free port"));
        }
        run
    }

    /// Makes the link addresses known, which are not the subject.
    fn resolve(&mut self) {
        for number in 0..2 {
            let id = self.hosts[number].bind(Version::V4.socket(number as u8 + 1, 9));
            let to = Version::V4.socket(2 - number as u8, 9);
            let sent = self.hosts[number].send_to(self.now, id.expect("a free port"), to, b"hello");
            sent.expect("a route");
        }
        for _ in 0..4 {
            for number in 0..2 {
                while let Some(frame) = self.hosts[number].next_frame() {
                    self.hosts[1 - number].on_frame(self.now, self.now, frame, Verify::Yes);
                }
                self.hosts[1 - number].process(self.now, 100);
            }
        }
    }

    /// The steps that are possible now.
    pub(super) fn possible(&self, model: &ConnectionModel) -> Vec<Step> {
        let mut steps = Vec::new();
        for end in 0..2 {
            let owner = &self.owners[end];
            let waiting = self.network[end].len();
            steps.extend(
                (0..waiting.min(model.bounds.reordering + 1)).map(|at| Step::Deliver(end, at)),
            );
            if waiting > 0 && self.left.losses > 0 {
                steps.push(Step::Lose(end));
            }
            if waiting > 0 && self.left.repetitions > 0 {
                steps.push(Step::Repeat(end));
            }
            let opens = end == 0 || model.opening == Opening::Simultaneous;
            let Some(id) = owner.id else {
                if opens {
                    steps.push(Step::Connect(end));
                }
                continue;
            };
            if owner.is_gone {
                continue;
            }
            let state = self.hosts[end].tcp_state(id);
            let may_write = state.is_some_and(|state| state.may_write());
            if may_write && !owner.has_shut && owner.writes < model.bounds.writes {
                steps.push(Step::Write(end));
            }
            if !owner.has_shut {
                steps.push(Step::Shutdown(end));
            }
            if model.bounds.has_aborts {
                steps.extend([Step::Close(end), Step::Abort(end)]);
            }
        }
        let is_due = self.hosts.iter().any(|host| host.next_timeout().is_some());
        if self.left.times > 0 && is_due {
            steps.push(Step::Time);
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Connect(end) => {
                let local = Version::V4.socket(end as u8 + 1, PORT);
                let remote = Version::V4.socket(2 - end as u8, PORT);
                let id = self.hosts[end].tcp_connect(self.now, Some(local), remote, None);
                self.owners[end].id = Some(id.expect("a free flow"));
            }
            Step::Deliver(end, at) => {
                let frame = self.network[end].remove(at).expect("a possible step");
                self.hosts[end].on_frame(self.now, self.now, frame, Verify::Yes);
            }
            Step::Lose(end) => {
                self.left.losses -= 1;
                self.network[end].pop_front();
            }
            Step::Repeat(end) => {
                self.left.repetitions -= 1;
                let copy = self.network[end].front().cloned();
                self.network[end].extend(copy);
            }
            Step::Time => {
                self.left.times -= 1;
                self.pass();
            }
            Step::Write(end) => {
                let place = self.owners[end].writes * PIECE;
                let bytes: Vec<u8> = (place..place + PIECE).map(|at| byte_at(end, at)).collect();
                let id = self.owners[end].id.expect("a connection");
                let written = self.hosts[end].tcp_write(self.now, id, Bytes::from(bytes));
                assert_eq!(written, Ok(PIECE));
                self.owners[end].writes += 1;
            }
            Step::Shutdown(end) => self.shutdown(end),
            Step::Close(end) => {
                self.is_graceful &= self.owners[end].has_end && self.owners[end].has_shut;
                self.leave(end);
            }
            Step::Abort(end) => {
                self.is_graceful = false;
                let id = self.owners[end].id.expect("a connection");
                self.hosts[end].tcp_abort(self.now, id);
                self.owners[end].is_gone = true;
            }
        }
        self.settle();
    }

    fn shutdown(&mut self, end: usize) {
        if let Some(id) = self.owners[end].id {
            let _ = self.hosts[end].tcp_shutdown_write(self.now, id);
            self.owners[end].has_shut = true;
        }
    }

    fn leave(&mut self, end: usize) {
        if let Some(id) = self.owners[end].id {
            self.hosts[end].tcp_close(self.now, id);
            self.owners[end].is_gone = true;
        }
    }

    /// Moves to the next time at which a timer is due. Returns false if there is none.
    fn pass(&mut self) -> bool {
        let due = self.hosts.iter().filter_map(Host::next_timeout).min();
        let Some(due) = due else {
            return false;
        };
        self.now = self.now.max(due);
        self.settle();
        true
    }

    /// Does what is due at the present time, and lets the owners read.
    fn settle(&mut self) {
        for _ in 0..100 {
            let mut is_busy = false;
            for end in 0..2 {
                let host = &mut self.hosts[end];
                is_busy |= host.process(self.now, 100) > 0;
                if host.next_timeout().is_some_and(|due| due <= self.now) {
                    host.on_timer(self.now);
                    is_busy = true;
                }
                self.accept();
                self.read(end);
                while let Some(frame) = self.hosts[end].next_frame() {
                    is_busy = true;
                    self.network[1 - end].push_back(frame);
                }
            }
            if !is_busy {
                return;
            }
        }
        panic!("the stacks do not come to rest");
    }

    fn accept(&mut self) {
        let Some(listener) = self.listener else {
            return;
        };
        if let Some((id, _)) = self.hosts[1].tcp_accept(self.now, listener) {
            let owner = &mut self.owners[1];
            if owner.id.is_none() {
                owner.id = Some(id);
                return;
            }
            // A SYN that arrived twice, the first connection being over: the owner has no use for another.
            self.hosts[1].tcp_abort(self.now, id);
        }
    }

    fn read(&mut self, end: usize) {
        let owner = &mut self.owners[end];
        let Some(id) = owner.id.filter(|_| owner.may_read()) else {
            return;
        };
        let mut bytes = [0; 100];
        while !owner.has_end {
            match self.hosts[end].tcp_read(self.now, id, &mut bytes) {
                Ok(0) => owner.has_end = true,
                Ok(read) => {
                    for (at, &byte) in (owner.read..).zip(&bytes[..read]) {
                        assert_eq!(byte, byte_at(1 - end, at), "the byte at {at} of end {end}");
                    }
                    owner.read += read;
                }
                Err(TcpError::WouldBlock) => return,
                Err(error) => {
                    owner.error = Some(error);
                    return;
                }
            }
        }
    }

    /// All that can be seen.
    pub(super) fn view(&self) -> String {
        let mut view = String::new();
        for end in 0..2 {
            let (host, owner) = (&self.hosts[end], &self.owners[end]);
            let connection = owner.id.and_then(|id| host.tcp_connection(id));
            let due = host.next_timeout().map(|due| due.since(self.now));
            let states = host
                .tcp_states()
                .filter(|(_, count)| *count > 0)
                .collect::<Vec<_>>();
            let _ = write!(view, "{owner:?} {states:?} {due:?} ");
            if let Some(connection) = connection {
                let window = connection.stats().congestion_window;
                let due = connection.next_timeout().map(|due| due.since(self.now));
                let memory = connection.memory_bytes();
                let numbers = connection.numbers();
                let state = connection.state();
                let _ = write!(view, "{state:?} {numbers:?} {memory} {window} {due:?}");
            }
            for frame in &self.network[end] {
                let _ = write!(view, "\n  {}", describe(frame));
            }
            view.push('\n');
        }
        let left = (self.left.losses, self.left.repetitions, self.left.times);
        let _ = write!(view, "{left:?} {}", self.is_graceful);
        view
    }

    pub(super) fn facts(&self) -> Facts {
        let both = |state| (0..2).all(|end| self.state(end) == Some(state));
        let owners = &self.owners;
        Facts {
            is_established: both(State::Established),
            is_time_wait: both(State::TimeWait),
            has_exchanged: (0..2).all(|end| {
                let written = owners[1 - end].writes * PIECE;
                written > 0 && owners[end].read == written
            }),
            ..Facts::default()
        }
    }

    fn state(&self, end: usize) -> Option<State> {
        self.hosts[end].tcp_state(self.owners[end].id?)
    }

    /// Delivers all that is on its way, and lets time pass, until `is_done` or the time is over.
    fn go_on(&mut self, most: Duration, mut step: impl FnMut(&mut Self)) {
        let end = self.now + most;
        for _ in 0..MOST_STEPS {
            step(self);
            self.settle();
            if let Some(end) = (0..2).find(|&end| !self.network[end].is_empty()) {
                self.take(Step::Deliver(end, 0));
                continue;
            }
            let due = self.hosts.iter().filter_map(Host::next_timeout).min();
            if due.is_none_or(|due| due > end) || !self.pass() {
                return;
            }
        }
        panic!("there is no end");
    }

    /// Lets the owners close. Returns why both ends are not gone at last.
    pub(super) fn close(mut self) -> Result<(), String> {
        self.go_on(LONG, |run| {
            for end in 0..2 {
                let owner = &run.owners[end];
                let is_open = owner.id.is_some() && !owner.is_gone;
                if is_open && !owner.has_shut {
                    run.shutdown(end);
                }
                let owner = &run.owners[end];
                if is_open && (owner.has_end || owner.error.is_some()) {
                    run.leave(end);
                }
            }
        });
        let left: usize = self
            .hosts
            .iter()
            .flat_map(Host::tcp_states)
            .map(|(_, count)| count)
            .sum();
        let memory: usize = self.hosts.iter().map(Host::tcp_memory).sum();
        let timers = self.hosts.iter().any(|host| host.next_timeout().is_some());
        if left > 0 || memory > 0 || timers {
            return Err(format!(
                "{left} left, {memory} bytes, timers {timers}: {}",
                self.view()
            ));
        }
        let both_opened = self.owners.iter().all(|owner| owner.id.is_some());
        // Without a listener, the end that opens first may find the other's port closed.
        let refused = Some(TcpError::Failed(Error::Refused));
        let is_refused =
            self.listener.is_none() && self.owners.iter().any(|owner| owner.error == refused);
        if !self.is_graceful || !both_opened || is_refused {
            return Ok(());
        }
        for end in 0..2 {
            let (owner, peer) = (&self.owners[end], &self.owners[1 - end]);
            if owner.read != peer.writes * PIECE || !owner.has_end || owner.error.is_some() {
                return Err(format!(
                    "end {end} has read {} and {:?}",
                    owner.read, owner.error
                ));
            }
        }
        Ok(())
    }

    /// Lets time pass without any step of the owners. Returns why one end is open while the other is closed.
    pub(super) fn wait(mut self) -> Result<(), String> {
        self.go_on(LONG, |_| {});
        let is_open = |end: usize| {
            let host = &self.hosts[end];
            let open = |(state, count): (State, usize)| state != State::Closed && count > 0;
            host.tcp_states().any(open)
        };
        match (is_open(0), is_open(1)) {
            (one, other) if one == other => Ok(()),
            _ => Err(self.view()),
        }
    }
}

/// A segment without what differs between equal states: checksums and the identification of the packet.
fn describe(frame: &[u8]) -> String {
    let packet = ip::parse(&frame[LinkHeader::BYTES..]);
    let segment =
        packet.and_then(|packet| segment::parse(packet.addresses, packet.payload, Verify::Yes));
    match segment {
        Ok(segment) => format!(
            "{:?} {:?} {:?}",
            segment.header, segment.options, segment.payload
        ),
        Err(_) => format!("{frame:?}"),
    }
}

fn byte_at(end: usize, place: usize) -> u8 {
    (100 * end + place) as u8
}

const START: Instant = Instant::from_ns(1_000_000_000);

/// The port of both ends.
const PORT: u16 = 80;

/// The bytes of one write.
const PIECE: usize = 3;

/// Longer than keep-alive, retransmissions, orphans and TIME-WAIT last.
const LONG: Duration = Duration::from_secs(20_000);

/// The steps after which an end is not expected any more.
const MOST_STEPS: usize = 20_000;
