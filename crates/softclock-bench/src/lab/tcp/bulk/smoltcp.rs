//! smoltcp, driven by one thread that has nothing else to do, as in its examples.

use std::io;
use std::os::fd::AsRawFd;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Medium, TunTapInterface};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr};

use super::plan::{LINK_ADDRESS, LOOK_UP, Plan, RECEIVE_PORT, Ready, SEND_PORT, SUBJECT, TAP};
use crate::lab::lrp::Stop;

/// Serves transfers until `stop`.
pub(super) fn run(plan: Plan, stop: &Stop, ready: Ready<'_>) -> io::Result<()> {
    let mut device = TunTapInterface::new(TAP, Medium::Ethernet)?;
    let config = Config::new(EthernetAddress(LINK_ADDRESS).into());
    let mut interface = Interface::new(config, &mut device, Instant::now());
    interface.update_ip_addrs(|addresses| {
        // The list is empty and has room.
        let _ = addresses.push(IpCidr::new(SUBJECT.into(), 24));
    });
    let mut sockets = SocketSet::new(Vec::new());
    let bytes = plan.buffers.bytes().unwrap_or(DEFAULT_BUFFER);
    let mut add = || {
        let buffer = || SocketBuffer::new(vec![0; bytes]);
        sockets.add(Socket::new(buffer(), buffer()))
    };
    let (mut sender, receiver) = (
        Sender {
            handle: add(),
            left: 0,
        },
        add(),
    );
    // Both listen.
    sender.serve(&mut sockets, plan.bytes);
    receive(&mut sockets, receiver);
    ready();
    while stop.goes_on() {
        let now = Instant::now();
        interface.poll(now, &mut device, &mut sockets);
        let sent = sender.serve(&mut sockets, plan.bytes);
        let received = receive(&mut sockets, receiver);
        if !sent && !received {
            let most = Duration::from_micros(LOOK_UP.as_micros() as u64);
            let delay = interface.poll_delay(now, &sockets).unwrap_or(most);
            phy::wait(device.as_raw_fd(), Some(delay.min(most)))?;
        }
    }
    Ok(())
}

struct Sender {
    handle: SocketHandle,
    /// Bytes of the transfer that are not written.
    left: u64,
}

impl Sender {
    /// Writes as much as there is room for; returns whether it has written something.
    fn serve(&mut self, sockets: &mut SocketSet<'_>, bytes: u64) -> bool {
        let socket = sockets.get_mut::<Socket<'_>>(self.handle);
        // TIME-WAIT holds the only socket of this port.
        if socket.state() == State::TimeWait {
            socket.abort();
        }
        if !socket.is_open() {
            self.left = bytes;
            // Cannot fail: the socket is closed and the port is not 0.
            let _ = socket.listen(SEND_PORT);
            return false;
        }
        let mut has_written = false;
        while socket.state() == State::Established && self.left > 0 && socket.can_send() {
            let some = self.left.min(BLOCK.len() as u64) as usize;
            let written = socket.send_slice(&BLOCK[..some]).unwrap_or(0);
            self.left -= written as u64;
            has_written |= written > 0;
        }
        if self.left == 0 && matches!(socket.state(), State::Established | State::CloseWait) {
            socket.close();
            has_written = true;
        }
        has_written
    }
}

/// Reads all that has arrived; returns whether that was something.
fn receive(sockets: &mut SocketSet<'_>, handle: SocketHandle) -> bool {
    let socket = sockets.get_mut::<Socket<'_>>(handle);
    if !socket.is_open() {
        let _ = socket.listen(RECEIVE_PORT);
        return false;
    }
    let mut has_read = false;
    while socket.can_recv() {
        let read = socket.recv(|bytes| (bytes.len(), bytes.len()));
        has_read |= read.is_ok_and(|read| read > 0);
    }
    if socket.state() == State::CloseWait {
        socket.close();
        has_read = true;
    }
    has_read
}

/// smoltcp has no default.
const DEFAULT_BUFFER: usize = 4 << 20;
static BLOCK: [u8; 64 << 10] = [0; 64 << 10];
