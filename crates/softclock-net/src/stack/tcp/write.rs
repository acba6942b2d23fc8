//! The calls by which owners write, and end what they write.

use core::ops::Deref;

use bytes::Bytes;
use softclock_core::Instant;

use super::{TcpError, TcpId};
use crate::stack::{Interest, Stack};
use crate::tcp::connection::Connection;
use crate::tcp::state::State;

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Appends bytes to those to send, as far as there is room, and returns their number.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn tcp_write(
        &mut self,
        now: Instant,
        id: TcpId,
        mut bytes: Bytes,
    ) -> Result<usize, TcpError> {
        let room = self.tcp_room(now, id)?;
        if room == 0 && !bytes.is_empty() {
            return Err(TcpError::WouldBlock);
        }
        bytes.truncate(room);
        self.tcp_append(id, bytes)
    }

    /// Appends the pieces that `give` returns, and returns the number of bytes taken. `give` is called with the room
    /// that there is, at least one byte, so that a writer copies few bytes in vain. Each piece counts for at least 128
    /// bytes: after a short one there is less room than `give` was told. Bytes beyond the room are dropped, and are not
    /// in the returned number.
    ///
    /// # Errors
    /// [`TcpError`]. `give` is not called then.
    pub fn tcp_write_with<I: IntoIterator<Item = Bytes>>(
        &mut self,
        now: Instant,
        id: TcpId,
        give: impl FnOnce(usize) -> I,
    ) -> Result<usize, TcpError> {
        let mut left = self.tcp_room(now, id)?;
        if left == 0 {
            return Err(TcpError::WouldBlock);
        }
        let pieces = give(left);
        let endpoint = self.tcp.connections.get_mut(id.0);
        let connection = &mut endpoint.ok_or(TcpError::Closed)?.connection;
        let mut written = 0;
        for mut bytes in pieces {
            let offered = bytes.len();
            bytes.truncate(left.min(connection.room()));
            let taken = bytes.len();
            if connection.write(bytes).is_err() {
                break;
            }
            written += taken;
            left -= taken;
            if taken < offered {
                break;
            }
        }
        self.tcp.mark_ready(id.0);
        self.tcp.account(id.0);
        Ok(written)
    }

    /// The bytes that a write takes now: acknowledgments that have arrived make room. 0 if the owner must wait.
    ///
    /// # Errors
    /// [`TcpError`]: `WouldBlock` while the connection is being opened.
    pub fn tcp_room(&mut self, now: Instant, id: TcpId) -> Result<usize, TcpError> {
        self.tcp_process(now, id);
        let endpoint = self.tcp.connections.get(id.0);
        let room = endpoint.map_or(0, |endpoint| self.tcp.room(endpoint));
        let endpoint = self.tcp.connections.get_mut(id.0);
        let connection = &mut endpoint.ok_or(TcpError::Closed)?.connection;
        if let Some(error) = connection.take_error() {
            return Err(TcpError::Failed(error));
        }
        match connection.state() {
            State::SynSent | State::SynReceived => Err(TcpError::WouldBlock),
            state if !state.may_write() => Err(TcpError::Closed),
            _ => Ok(room),
        }
    }

    /// Closes this end's half: FIN follows all bytes that were written. Reading goes on.
    ///
    /// # Errors
    /// [`TcpError::Closed`] if the number is not that of a connection, [`TcpError::Failed`].
    pub fn tcp_shutdown_write(&mut self, now: Instant, id: TcpId) -> Result<(), TcpError> {
        self.tcp_process(now, id);
        let endpoint = self.tcp.connections.get_mut(id.0);
        let connection = &mut endpoint.ok_or(TcpError::Closed)?.connection;
        if let Some(error) = connection.take_error() {
            return Err(TcpError::Failed(error));
        }
        let tally = &mut self.tcp.tally;
        tally.observe(connection, Connection::shutdown_write);
        self.tcp.mark_ready(id.0);
        // A writer that waits for room learns that there will be none.
        self.tcp.wake(id.0, Interest::WRITABLE);
        Ok(())
    }

    /// Appends bytes for which there is room.
    fn tcp_append(&mut self, id: TcpId, bytes: Bytes) -> Result<usize, TcpError> {
        let endpoint = self.tcp.connections.get_mut(id.0);
        let connection = &mut endpoint.ok_or(TcpError::Closed)?.connection;
        let written = bytes.len();
        if connection.write(bytes).is_err() {
            return Err(TcpError::WouldBlock);
        }
        self.tcp.mark_ready(id.0);
        self.tcp.account(id.0);
        Ok(written)
    }
}
