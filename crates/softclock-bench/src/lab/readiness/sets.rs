//! Sets of descriptors to wait for: some hot, most cold, as in *Event Delivery* (section 7.2).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use softclock::events::{EventQueue, Mechanism, Readiness, Source, SourceEvent};

/// An event queue with interest in the readability of cold and hot sockets.
pub struct EventSet {
    /// The queue.
    pub queue: EventQueue,
    hot: Vec<(Source<UnixStream>, UnixStream)>,
    _cold: Vec<Source<UnixStream>>,
}

impl EventSet {
    /// Creates `hot` sockets that become readable, and `cold` ones that never do.
    ///
    /// # Errors
    /// The mechanism does not work, or not with this many descriptors.
    pub fn new(mechanism: Mechanism, hot: usize, cold: usize) -> io::Result<Self> {
        let queue = EventQueue::with_mechanism(mechanism)?;
        let watch = |stream: UnixStream| -> io::Result<Source<UnixStream>> {
            stream.set_nonblocking(true)?;
            let source = queue.add(stream);
            queue.declare_interest(&source, Readiness::READABLE, None)?;
            Ok(source)
        };
        // Hot sockets first, so that their numbers are below the limit of `select`.
        let hot = (0..hot)
            .map(|_| {
                let (here, there) = UnixStream::pair()?;
                Ok((watch(here)?, there))
            })
            .collect::<io::Result<_>>()?;
        let mut both = Vec::with_capacity(cold);
        // Both ends of a cold pair count, which halves the descriptors.
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
        // Discard events of the registration itself.
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

    /// Takes all events, at most `array_max` at a time; returns their number.
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

    /// Reads the bytes that [`heat`](Self::heat) wrote.
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

/// Returns the numbers of cold sockets: those of the paper's figures, and larger ones up to the limit of a process.
pub fn cold_counts(smoke: bool) -> &'static [usize] {
    if smoke {
        &[0, 200]
    } else {
        &[0, 750, 2_000, 6_000, 9_000, 18_000]
    }
}
