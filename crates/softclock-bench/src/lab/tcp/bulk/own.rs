//! This project's stack, driven by one thread that has nothing else to do.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{BATCH, Buffer, Device};
use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Routes;
use softclock_net::stack::{
    Frame, Interest, Settings, Stack, TcpError, TcpId, TcpListenSettings, TcpListenerId,
};

use super::plan::{LINK_ADDRESS, LOOK_UP, Plan, RECEIVE_PORT, Ready, SEND_PORT, SUBJECT, TAP};
use crate::lab::lrp::Stop;

/// Serves transfers until `stop`.
pub(super) fn run(plan: Plan, stop: &Stop, ready: Ready<'_>) -> io::Result<()> {
    let mut host = Host::open(plan)?;
    ready();
    while stop.goes_on() {
        host.turn()?;
    }
    Ok(())
}

struct Host {
    stack: Stack<Buffer>,
    device: Device,
    /// Frames for which the device had no room.
    leaving: VecDeque<Frame>,
    listeners: [TcpListenerId; 2],
    transfers: Vec<Transfer>,
    bytes: u64,
}

/// A connection, and the bytes that it has to send; `None` if it receives.
struct Transfer {
    id: TcpId,
    left: Option<u64>,
}

impl Host {
    fn open(plan: Plan) -> io::Result<Self> {
        let (_, device) = Device::create_tap(TAP).map_err(io::Error::other)?;
        let mut settings = Settings::new(LinkAddress(LINK_ADDRESS), 1500);
        settings.offloads_tcp = plan.joins && device.takes_offloads();
        if let Some(bytes) = plan.buffers.bytes() {
            let of = &mut settings.tcp.connection;
            let bytes = bytes as u32;
            (of.receive.buffer_bytes, of.receive.most_buffer_bytes) = (bytes, bytes);
            (of.send.buffer, of.send.most_buffer) = (bytes, bytes);
        }
        let prefix = format!("{SUBJECT}/24").parse().map_err(io::Error::other)?;
        let routes = Routes::new(vec![prefix], Vec::new()).map_err(io::Error::other)?;
        let mut stack = Stack::new(settings, routes, HashKey([0x6275, 0x6c6b]));
        let mut listen = |port| {
            let local = (SUBJECT, port).into();
            let listening = stack.tcp_listen(local, TcpListenSettings::with_backlog(16));
            listening.map_err(io::Error::other)
        };
        let listeners = [listen(SEND_PORT)?, listen(RECEIVE_PORT)?];
        Ok(Self {
            stack,
            device,
            leaving: VecDeque::new(),
            listeners,
            transfers: Vec::new(),
            bytes: plan.bytes,
        })
    }

    /// Does all work that there is; waits if there is none.
    fn turn(&mut self) -> io::Result<()> {
        let now = Instant::from_ns(monotonic_ns());
        let received = self.receive(now)?;
        self.stack.on_timer(now);
        self.stack.process(now, QUOTA);
        self.accept(now);
        self.serve(now);
        let sent = self.send()?;
        if received + sent == 0 {
            self.wait(now);
        }
        Ok(())
    }

    fn receive(&mut self, now: Instant) -> io::Result<usize> {
        let mut all = 0;
        while all < QUOTA {
            let stack = &mut self.stack;
            let received = self.device.receive(|frame| {
                // The kernel sends no frames that a device refuses.
                if let Ok(frame) = frame {
                    let verify = match frame.offload.checksum {
                        Some(_) => Verify::Trusted,
                        None => Verify::Yes,
                    };
                    stack.on_frame(now, now - frame.age, frame.bytes, verify);
                }
            });
            match received {
                Ok(some) => all += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn accept(&mut self, now: Instant) {
        for (listener, sends) in self.listeners.into_iter().zip([true, false]) {
            while let Some((id, _)) = self.stack.tcp_accept(now, listener) {
                let left = sends.then_some(self.bytes);
                self.transfers.push(Transfer { id, left });
            }
        }
    }

    fn serve(&mut self, now: Instant) {
        let stack = &mut self.stack;
        self.transfers.retain_mut(|transfer| {
            let is_over = match transfer.left {
                Some(_) => transfer.write(stack, now),
                None => transfer.read(stack, now),
            };
            if is_over {
                stack.tcp_close(now, transfer.id);
            }
            !is_over
        });
        // The turn looks at all connections anyway.
        while stack.tcp_next_woken().is_some() {}
    }

    /// Sends what the stack has for the link.
    fn send(&mut self) -> io::Result<usize> {
        let mut all = 0;
        loop {
            while self.leaving.len() < BATCH {
                let Some(frame) = self.stack.next_link_frame() else {
                    break;
                };
                self.leaving.push_back(frame);
            }
            if self.leaving.is_empty() {
                return Ok(all);
            }
            let frames = self.leaving.iter();
            let frames = frames.map(|frame| (&frame.bytes[..], &frame.offload));
            match self.device.send_bytes(frames) {
                Ok(sent) => {
                    let sent_frames = self.leaving.drain(..sent);
                    sent_frames.for_each(|frame| self.stack.give_back(frame.bytes));
                    all += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(all),
                // The kernel's end is not up yet.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
                {
                    self.leaving.clear();
                    return Ok(all);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&mut self, now: Instant) {
        let until = self.stack.next_timeout();
        let left = until.map_or(LOOK_UP, |due| Duration::from_nanos(due.ns_since(now)));
        let wait = Timespec::try_from(left.min(LOOK_UP)).unwrap_or_default();
        let mut events = PollFlags::IN;
        if !self.leaving.is_empty() {
            events |= PollFlags::OUT;
        }
        let _ = poll(
            &mut [PollFd::from_borrowed_fd(self.device.as_fd(), events)],
            Some(&wait),
        );
    }
}

impl Transfer {
    /// Writes as much as there is room for; returns whether the transfer is over.
    fn write(&mut self, stack: &mut Stack<Buffer>, now: Instant) -> bool {
        while let Some(left) = self.left.filter(|&left| left > 0) {
            let some = left.min(BLOCK.len() as u64) as usize;
            match stack.tcp_write(now, self.id, Bytes::from_static(&BLOCK[..some])) {
                Ok(written) => self.left = Some(left - written as u64),
                Err(TcpError::WouldBlock) => return self.would_wait(stack, now),
                Err(_) => return true,
            }
        }
        true
    }

    /// Reads all that has arrived; returns whether the transfer is over.
    fn read(&self, stack: &mut Stack<Buffer>, now: Instant) -> bool {
        let mut block = [0; BLOCK.len()];
        loop {
            match stack.tcp_read(now, self.id, &mut block) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(TcpError::WouldBlock) => return self.would_wait(stack, now),
                Err(_) => return true,
            }
        }
    }

    /// Makes segments that arrive wait for this owner.
    fn would_wait(&self, stack: &mut Stack<Buffer>, now: Instant) -> bool {
        let interest = Interest {
            readable: self.left.is_none(),
            writable: self.left.is_some(),
        };
        stack.tcp_wait(now, self.id, interest);
        false
    }
}

/// Frames and packets of one turn.
const QUOTA: usize = 256;
static BLOCK: [u8; 64 << 10] = [0; 64 << 10];
