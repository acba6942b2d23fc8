//! Connections whose handshake is complete and that wait to be accepted.

use alloc::collections::VecDeque;

/// A bounded queue of handles of connections, the longest complete first.
#[derive(Debug)]
pub(super) struct AcceptQueue<T> {
    waiting: VecDeque<T>,
    most: usize,
}

impl<T: PartialEq> AcceptQueue<T> {
    /// Creates an empty queue for this many connections, at least one.
    pub(super) fn new(backlog: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            most: backlog.max(1),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.most
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a connection. Returns it if there is no room.
    pub(super) fn push(&mut self, connection: T) -> Result<(), T> {
        if self.is_full() {
            return Err(connection);
        }
        self.waiting.push_back(connection);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front()
    }

    /// Removes a connection from among the others. Takes time in proportion to the backlog.
    pub(super) fn remove(&mut self, connection: &T) -> bool {
        let place = self
            .waiting
            .iter()
            .position(|waiting| waiting == connection);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }
}
