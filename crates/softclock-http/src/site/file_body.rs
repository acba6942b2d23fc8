//! Bodies read from a file as fast as the client takes them.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use softclock::fs::File;

use crate::net::buffers::{self, CHUNK_BYTES, Pooled};
use crate::net::file_lane::{Entrance, FileLane, PART_BYTES, shrunk};
use crate::site::disk_reads::Turn;
use crate::site::open_files::{OpenFile, Opening};
use crate::syntax::range::ByteRange;

/// A part of a file on its way to a client, at most [`CHUNK_BYTES`] of it in memory; none where the connection sends it
/// without a copy.
///
/// If the file shrinks meanwhile the body ends with an error, which closes the connection: the length promised can't
/// be kept, and filling up would be a lie.
pub struct FileBody {
    file: OpenFile,
    /// The reopening of the file, while it is in progress.
    opening: Option<Opening>,
    position: u64,
    remaining: u64,
    /// The turn of a read that is to wait for the disk.
    turn: Option<Turn>,
    /// A read that waits for the disk.
    reading: Option<Reading>,
    /// The way of parts that need not be read.
    lane: Option<Entrance>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>;

impl FileBody {
    /// Bytes `range` of `file`, or all of it.
    pub fn new(file: File, range: Option<ByteRange>) -> Self {
        Self::of(OpenFile::staying_open(file), range)
    }

    /// As [`new`](Self::new), of a file that may be closed between reads.
    pub(crate) fn of(file: OpenFile, range: Option<ByteRange>) -> Self {
        let (position, remaining) = range.map_or((0, file.metadata().len()), |range| {
            (range.first(), range.len())
        });
        Self {
            file,
            opening: None,
            position,
            remaining,
            turn: None,
            reading: None,
            lane: None,
        }
    }

    /// Bytes still to come.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Has the connection send what is in the page cache without a copy, which pays for large parts.
    pub(crate) fn pass_along(&mut self, lane: &Rc<FileLane>) {
        if self.remaining >= UNCOPIED_MIN {
            self.lane = Some(Entrance::new(Rc::clone(lane)));
        }
    }

    /// Ready with the next bytes; `None` at the end. `max` limits what is read, not what goes to the socket unread.
    pub(crate) fn poll_chunk(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.remaining == 0 {
            return Poll::Ready(Ok(None));
        }
        if let Some(uncopied) = ready!(self.poll_uncopied(cx))? {
            return Poll::Ready(Ok(Some(uncopied)));
        }
        let chunk = match &mut self.reading {
            Some(reading) => {
                let result = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                result?
            }
            None => {
                let file = ready!(self.file.poll_file(&mut self.opening, cx))?;
                match self.read_cached(&file, max) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(self.turn.get_or_insert_with(Turn::ask).poll(cx));
                        self.read_from_disk(&file, max);
                        return self.poll_chunk(max, cx);
                    }
                    result => {
                        self.turn = None;
                        result?
                    }
                }
            }
        };
        self.advance(chunk.len() as u64)?;
        if let Some(lane) = &self.lane {
            lane.pass_by();
        }
        Poll::Ready(Ok(Some(Pooled::new(chunk).into_bytes())))
    }

    /// Bytes that stand for the next part of the file, if it need not be read.
    fn poll_uncopied(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Some(lane) = self.lane.as_mut().filter(|_| self.reading.is_none()) else {
            return Poll::Ready(Ok(None));
        };
        if !ready!(lane.poll_open(cx)) {
            self.lane = None;
            return Poll::Ready(Ok(None));
        }
        let file = ready!(self.file.poll_file(&mut self.opening, cx))?;
        let len = self.remaining.min(PART_BYTES as u64);
        if !file.is_cached(self.position, len) {
            return Poll::Ready(Ok(None));
        }
        let bytes = lane.load(&file, self.position, len as usize);
        self.position += len;
        self.remaining -= len;
        Poll::Ready(Ok(Some(bytes)))
    }

    fn read_cached(&self, file: &File, max: usize) -> io::Result<Vec<u8>> {
        let max = self.chunk_len(max);
        let mut chunk = buffers::buffer(max);
        file.try_read_at(&mut chunk, max, self.position)?;
        Ok(chunk)
    }

    /// Begins a read that goes on to its end, and has the turn until then, though the body may be dropped before: its file
    /// is open until then, too.
    fn read_from_disk(&mut self, file: &File, max: usize) {
        let max = self.chunk_len(max);
        let read = file.read_at_on_helper(buffers::buffer(max), max, self.position);
        let turn = self.turn.take();
        self.reading = Some(Box::pin(softclock::spawn_local(async move {
            let result = read.await;
            drop(turn);
            result
        })));
    }

    fn chunk_len(&self, max: usize) -> usize {
        usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(CHUNK_BYTES.min(max))
    }

    fn advance(&mut self, read: u64) -> io::Result<()> {
        if read == 0 {
            return Err(shrunk());
        }
        self.position += read;
        self.remaining -= read;
        Ok(())
    }
}

/// Below this, asking first and a head that goes out by itself cost as much as the copies do.
const UNCOPIED_MIN: u64 = 128 << 10;
