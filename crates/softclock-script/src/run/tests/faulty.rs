//! A host that takes each change of an option and makes none, and whose peeks return wrong bytes.

use std::net::SocketAddr;

use softclock_core::Instant;

use crate::errno::Errno;
use crate::host::{Host, Listed, Network, Refusal, SocketId, SocketOptions, State};
use crate::settings::Setting;
use crate::stack_host::StackHost;

pub(super) struct FaultyHost(StackHost);

impl FaultyHost {
    pub(super) fn new(network: &Network) -> Result<Self, Refusal> {
        StackHost::new(network).map(Self)
    }
}

impl Host for FaultyHost {
    fn change(&mut self, _: Instant, _: SocketId, _: &SocketOptions) -> Result<(), Refusal> {
        Ok(())
    }

    fn set(&mut self, setting: &Setting) -> Result<(), Refusal> {
        self.0.set(setting)
    }

    fn listen(
        &mut self,
        now: Instant,
        local: SocketAddr,
        backlog: usize,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal> {
        self.0.listen(now, local, backlog, options)
    }

    fn accept(&mut self, now: Instant, listener: SocketId) -> Option<(SocketId, SocketAddr)> {
        self.0.accept(now, listener)
    }

    fn close_listener(&mut self, now: Instant, listener: SocketId) {
        self.0.close_listener(now, listener);
    }

    fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal> {
        self.0.connect(now, local, remote, options)
    }

    fn state(&self, connection: SocketId) -> State {
        self.0.state(connection)
    }

    fn take_error(&mut self, connection: SocketId) -> Option<Errno> {
        self.0.take_error(connection)
    }

    fn readable(&mut self, now: Instant, connection: SocketId) -> Result<usize, Refusal> {
        self.0.readable(now, connection)
    }

    fn read(
        &mut self,
        now: Instant,
        connection: SocketId,
        most: usize,
    ) -> Result<Vec<u8>, Refusal> {
        self.0.read(now, connection, most)
    }

    fn peek(
        &mut self,
        now: Instant,
        connection: SocketId,
        most: usize,
    ) -> Result<Vec<u8>, Refusal> {
        let bytes = self.0.peek(now, connection, most)?;
        Ok(bytes.into_iter().map(|byte| byte ^ 1).collect())
    }

    fn write(
        &mut self,
        now: Instant,
        connection: SocketId,
        bytes: &[u8],
    ) -> Result<usize, Refusal> {
        self.0.write(now, connection, bytes)
    }

    fn shutdown_write(&mut self, now: Instant, connection: SocketId) -> Result<(), Refusal> {
        self.0.shutdown_write(now, connection)
    }

    fn close(&mut self, now: Instant, connection: SocketId) {
        self.0.close(now, connection);
    }

    fn options(&self, socket: SocketId) -> SocketOptions {
        self.0.options(socket)
    }

    fn connections(&self) -> Vec<Listed> {
        self.0.connections()
    }

    fn drop_all(&mut self, now: Instant, state: State) -> Result<(), Refusal> {
        self.0.drop_all(now, state)
    }

    fn on_packet(&mut self, now: Instant, packet: &[u8]) {
        self.0.on_packet(now, packet);
    }

    fn visit(&mut self, now: Instant) {
        self.0.visit(now);
    }

    fn next_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.0.next_packet(now)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }

    fn on_timer(&mut self, now: Instant) {
        self.0.on_timer(now);
    }
}
