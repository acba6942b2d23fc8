//! Sets of descriptors to wait for: some hot, most cold, as in *Event Delivery* (section 7.2).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use softclock::events::{EventQueue, Mechanism, Readiness, Source, SourceEvent};

/// A queue with interest in the reading of cold sockets, and some hot ones.
pub struct EventSet {
    /// The queue.
    pub queue: EventQueue,
    hot: Vec<(Source<UnixStream>, UnixStream)>,
    _cold: Vec<Source<UnixStream>>,
}

impl EventSet {
    /// `cold` sockets on which nothing happens, and `hot` ones.
    ///
    /// # Errors
    /// The mechanism does not work, or not with so many descriptors.
    pub fn new(mechanism: Mechanism, hot: usize, cold: usize) -> io::Result<Self> {
        let queue = EventQueue::with_mechanism(mechanism)?;
        let watch = |stream: UnixStream| -> io::Result<Source<UnixStream>> {
            stream.set_nonblocking(true)?;
            let source = queue.add(stream);
            queue.declare_interest(&source, Readiness::READABLE, None)?;
            Ok(source)
        };
        // First, so that their numbers are small enough for `select`.
        let hot = (0..hot)
            .map(|_| {
                let (here, there) = UnixStream::pair()?;
                Ok((watch(here)?, there))
            })
            .collect::<io::Result<_>>()?;
        let mut both = Vec::with_capacity(cold);
        while both.len() < cold {
            let (one, other) = UnixStream::pair()?;
            both.push(watch(one)?);
            if both.len() < cold {
                both.push(watch(other)?);
            }
        }
        let mut set = Self {
            queue,
            hot,
            _cold: both,
        };
        // What the adding itself brought.
        set.drain()?;
        Ok(set)
    }

    /// Makes every hot socket readable.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn heat(&mut self) -> io::Result<()> {
        let mut there = self.hot.iter_mut();
        there.try_for_each(|(_, there)| there.write_all(b"x"))
    }

    /// Takes all events, `array_max` at a time at most; gives their number.
    ///
    /// # Errors
    /// Those of the mechanism.
    pub fn take_all(&mut self, array_max: usize) -> io::Result<usize> {
        let mut events = [SourceEvent::NONE; 256];
        let mut found = 0;
        while found < self.hot.len() {
            found += self.queue.get_next_event(&mut events[..array_max], None)?;
        }
        Ok(found)
    }

    /// Reads what [`heat`](Self::heat) wrote.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn cool(&mut self) -> io::Result<()> {
        for (here, _) in &self.hot {
            let mut stream = &**here;
            while stream.read(&mut [0; 8]).is_ok_and(|read| read > 0) {}
            here.consumed(Readiness::READABLE);
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        let mut events = [SourceEvent::NONE; 64];
        let now = Some(std::time::Duration::ZERO);
        while self.queue.get_next_event(&mut events, now)? > 0 {}
        self.cool()
    }
}

/// So many cold sockets there are in the figures of the paper, and as many as a process may have.
pub fn cold_counts(smoke: bool) -> &'static [usize] {
    if smoke {
        &[0, 200]
    } else {
        &[0, 750, 2_000, 6_000, 9_000, 18_000]
    }
}
