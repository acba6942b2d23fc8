//! Bodies that are read from a file as fast as the client takes them.

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

/// A part of a file as a body. At most [`CHUNK_BYTES`] of it are in memory; none if the connection sends the file
/// without a copy.
///
/// If the file shrinks while it is sent, the body ends with an error, which closes the connection: the promised length
/// cannot be kept, and the client must not take padding for content.
pub struct FileBody {
    file: OpenFile,
    /// The reopening of the file in progress.
    opening: Option<Opening>,
    position: u64,
    remaining: u64,
    /// The slot for a read that must wait for the disk.
    turn: Option<Turn>,
    /// The read that waits for the disk.
    reading: Option<Reading>,
    /// The lane for parts that need not be read.
    lane: Option<Entrance>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>;

impl FileBody {
    /// Creates a body of the bytes `range` of `file`, or of all its bytes.
    pub fn new(file: File, range: Option<ByteRange>) -> Self {
        Self::of(OpenFile::staying_open(file), range)
    }

    /// Like [`new`](Self::new), for a file that may be closed between reads.
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

    /// Returns the number of bytes still to come.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Sends cached parts of the file through `lane`, without a copy. Small bodies are still copied, as the lane costs
    /// more.
    pub(crate) fn pass_along(&mut self, lane: &Rc<FileLane>) {
        if self.remaining >= UNCOPIED_MIN {
            self.lane = Some(Entrance::new(Rc::clone(lane)));
        }
    }

    /// Ready with the next bytes; `None` at the end. `max` limits the bytes that are read, not those sent without
    /// reading.
    pub(crate) fn poll_chunk(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.remaining == 0 {
            return Poll::Ready(Ok(None));
        }
        if let Some(uncopied) = ready!(self.poll_uncopied(cx))? {
            // The bytes have come into memory during the wait for a slot, which goes to another read.
            self.turn = None;
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
                        // The page cache does not have the bytes: read them on a helper thread, in turn with other such
                        // reads.
                        ready!(self.turn.get_or_insert_with(Turn::ask).poll(cx));
                        self.read_from_disk(&file, max);
                        return self.poll_chunk(max, cx);
                    }
                    result => {
                        // The bytes are in memory, so a slot that was taken goes to another read.
                        self.turn = None;
                        result?
                    }
                }
            }
        };
        self.advance(chunk.len() as u64)?;
        // These bytes are written by hyper itself; the lane can open for the part after them.
        if let Some(lane) = &self.lane {
            lane.pass_by();
        }
        Poll::Ready(Ok(Some(Pooled::new(chunk).into_bytes())))
    }

    /// Gives the slot for a read that waits for the disk to another body, until [`poll_chunk`](Self::poll_chunk) asks for
    /// one again. Call it when the body is not read because its client takes nothing.
    pub(crate) fn release_turn(&mut self) {
        self.turn = None;
    }

    /// Ready with the placeholder of the next part if it can be sent without reading; `None` if it must be read.
    fn poll_uncopied(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Some(lane) = self.lane.as_mut().filter(|_| self.reading.is_none()) else {
            return Poll::Ready(Ok(None));
        };
        // The socket sends no files, so the rest of the body is read.
        if !ready!(lane.poll_open(cx)) {
            self.lane = None;
            return Poll::Ready(Ok(None));
        }
        let file = ready!(self.file.poll_file(&mut self.opening, cx))?;
        let len = self.remaining.min(PART_BYTES as u64);
        // `sendfile` would block the thread on the disk; a read can wait on a helper thread.
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

    /// Starts a read from the disk. It runs to its end even if the body is dropped, and keeps its file open until then,
    /// so it also keeps the slot.
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

/// For smaller bodies the extra flush, and a head sent separately, cost as much as copying.
const UNCOPIED_MIN: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::task::Waker;

    use softclock::fs::Root;

    use super::*;
    use crate::site::disk_reads::{self, READS};

    /// The content comes into memory while the body waits for its turn to read it.
    #[test]
    fn a_body_that_need_not_read_any_more_leaves_its_turn_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![b'f'; PART_BYTES]).unwrap();
        let evicted = std::fs::File::open(&path).unwrap();
        evicted.sync_all().unwrap();
        rustix::fs::fadvise(&evicted, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            let root = Root::open(directory.path()).unwrap();
            let file = root.open_file(Path::new("f")).await.unwrap();
            let mut underway: Vec<_> = (0..READS).map(|_| Turn::ask()).collect();
            let (mut body, lane) = (FileBody::new(file, None), Rc::default());
            body.pass_along(&lane);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(body.poll_chunk(usize::MAX, &mut cx).is_pending());
            lane.on_flush(|| true).unwrap();
            let is_read = body.poll_chunk(usize::MAX, &mut cx).is_ready();
            if is_read || disk_reads::waiting() == 0 {
                softclock_testing::in_part!("files cannot be evicted from the page cache");
                return;
            }
            std::fs::read(&path).unwrap();
            underway.pop();
            assert!(body.poll_chunk(usize::MAX, &mut cx).is_ready());
            assert!(Turn::ask().poll(&cx).is_ready());
        });
    }
}
