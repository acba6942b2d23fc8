//! Writes to files, pipes and terminals without blocking, except in the calls that take a time limit.
//!
//! A write to a full pipe that no program reads blocks forever. `O_NONBLOCK` prevents this, but it can only be set on
//! files that this process opened: standard output and error share their open file descriptions with other processes,
//! such as the shell, which would become nonblocking too. So a write to a pipe or socket is made with `RWF_NOWAIT`.
//! Terminals, and pipes of Linux before 6.4, do not know that: there, a write polls for room first, and then writes at most
//! `PIPE_BUF` bytes, which a pipe that polls as writable accepts unless another program has filled it meanwhile.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

/// A file, pipe, socket or terminal that is open for writing.
///
/// # Example
/// ```
/// use softclock_linux::output::Output;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("log");
/// let log = Output::append(&path)?;
/// assert_eq!(log.write(b"a line\n")?, 7);
/// assert_eq!(std::fs::read(&path)?, b"a line\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Output {
    fd: OwnedFd,
    /// Whether this is a regular file. Writes to one succeed or fail at once, so it needs no poll for room.
    is_file: bool,
    /// Whether a single write can be told not to wait, as far as is known.
    takes_nowait: AtomicBool,
}

impl Output {
    /// Opens a file for appending, and creates it if it does not exist. Does not wait for the reader of a named pipe.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotConnected`] for a named pipe that no program reads, and the errors of `open(2)`.
    pub fn append(path: &Path) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(0o666);
        match retry_on_intr(|| rustix::fs::open(path, flags, mode)) {
            Ok(fd) => Ok(Self::of(fd)),
            Err(Errno::NXIO) if is_pipe(path) => Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "no program reads this pipe",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens standard output through a duplicate of its descriptor.
    ///
    /// # Errors
    /// Returns the errors of `dup(2)`.
    pub fn stdout() -> io::Result<Self> {
        Ok(Self::of(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Opens standard error through a duplicate of its descriptor.
    ///
    /// # Errors
    /// Returns the errors of `dup(2)`.
    pub fn stderr() -> io::Result<Self> {
        Ok(Self::of(io::stderr().as_fd().try_clone_to_owned()?))
    }

    fn of(fd: OwnedFd) -> Self {
        let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        Self {
            fd,
            is_file: kind == Ok(FileType::RegularFile),
            takes_nowait: AtomicBool::new(true),
        }
    }

    /// Writes a first part of `bytes`, at least one byte, and returns its length. Does not block.
    ///
    /// Lines of up to `PIPE_BUF` bytes (4096) are written to a pipe whole, so they never mix with lines of other
    /// writers. Costs one system call, or two for a terminal.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there is no room, and the errors of `write(2)`.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.is_file {
            true => retry_on_intr(|| rustix::io::write(&self.fd, bytes))?,
            false => self.write_now(piece(bytes))?,
        };
        match written {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    /// Writes to what is not a regular file, if there is room.
    fn write_now(&self, piece: &[u8]) -> io::Result<usize> {
        if self.takes_nowait.load(Ordering::Relaxed) {
            let piece = [IoSlice::new(piece)];
            let write =
                || rustix::io::pwritev2(&self.fd, &piece, NO_POSITION, ReadWriteFlags::NOWAIT);
            match retry_on_intr(write) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.takes_nowait.store(false, Ordering::Relaxed);
                }
                written => return Ok(written?),
            }
        }
        match self.poll(None, Some(Duration::ZERO))? {
            true => Ok(retry_on_intr(|| rustix::io::write(&self.fd, piece))?),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes all of `bytes`, waiting for room for at most `limit` altogether. Returns the number of bytes written,
    /// which is less than all if the time ran out.
    ///
    /// # Errors
    /// Returns the errors of `write(2)`. Some bytes may have been written before.
    pub fn write_within(&self, bytes: &[u8], limit: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + limit;
        let mut written = 0;
        while written < bytes.len() {
            match self.write(&bytes[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.poll(None, Some(left))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Blocks until there is room, an error, a raised `interrupt`, a signal, or until `limit` has passed. Then clears
    /// `interrupt`. Does not return the cause: the next [`write`](Self::write) finds out.
    ///
    /// # Errors
    /// Returns the errors of `poll(2)`.
    pub fn wait_for_room(&self, interrupt: &Interrupt, limit: Option<Duration>) -> io::Result<()> {
        self.poll(Some(interrupt), limit)?;
        interrupt.clear();
        Ok(())
    }

    /// Returns whether there is room or an error, after waiting up to `limit` for either, for `interrupt` or a signal.
    fn poll(&self, interrupt: Option<&Interrupt>, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let own = PollFd::new(&self.fd, PollFlags::OUT);
        let mut all = vec![own];
        all.extend(interrupt.map(|interrupt| PollFd::new(&interrupt.0, PollFlags::IN)));
        match poll(&mut all, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!all[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Ends a wait in [`Output::wait_for_room`] from another thread. If no wait is under way, the next one returns at once.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// Creates an interrupt that is not raised.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Ends the wait that is under way, or else the next one.
    pub fn raise(&self) {
        // EAGAIN means that the counter is full, which ends the wait too. A valid eventfd has no other errors.
        let _ = retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes()));
    }

    fn clear(&self) {
        let _ = retry_on_intr(|| rustix::io::read(&self.0, &mut [0; 8]));
    }
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// Returns the first lines that fit into [`PIECE`] bytes together, or the first bytes of a line that is longer.
fn piece(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= PIECE {
        return bytes;
    }
    let first = &bytes[..PIECE];
    let end = first.iter().rposition(|&byte| byte == b'\n');
    &first[..end.map_or(PIECE, |end| end + 1)]
}

/// Stands for the place where the file is, as write(2) uses it.
const NO_POSITION: u64 = u64::MAX;

/// `PIPE_BUF`: a pipe that polls as writable accepts this many bytes without blocking, and atomically (pipe(7)).
const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;

    /// Creates a named pipe in a new directory.
    fn pipe() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        (directory, path)
    }

    fn reader(path: &Path) -> File {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).unwrap().into()
    }

    #[test]
    fn a_pipe_is_opened_and_filled_without_waiting() {
        let (_directory, path) = pipe();
        let error = Output::append(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        let mut reader = reader(&path);
        let output = Output::append(&path).unwrap();
        let lines = b"0123456\n".repeat(1 << 20);
        let written = output.write_within(&lines, Duration::ZERO).unwrap();
        assert!((4096..1 << 20).contains(&written) && written.is_multiple_of(8));
        assert_eq!(
            output.write(b"x").unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        let mut part = vec![0; 4096];
        reader.read_exact(&mut part).unwrap();
        assert_eq!(output.write(&lines).unwrap(), 4096);
        drop(reader);
        assert_eq!(
            output.write(b"x").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    /// Standard error can be such a pipe: it blocks, because other processes share its open file description.
    #[test]
    fn a_blocking_pipe_is_filled_without_waiting() {
        let (mut reader, writer) = io::pipe().unwrap();
        let output = Output::of(writer.into());
        let lines = b"0123456\n".repeat(1 << 20);
        let written = output.write_within(&lines, Duration::ZERO).unwrap();
        assert!(written >= 4096 && written < lines.len());
        let read = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        let rest = output.write_within(&lines[written..], Duration::from_secs(60));
        assert_eq!(rest.unwrap(), lines.len() - written);
        drop(output);
        assert!(read.join().unwrap() == lines);
    }

    /// Two programs may find the same room in a pipe that they share. The one that writes second does not wait for more.
    #[test]
    fn writers_of_one_pipe_do_not_wait_for_each_other() {
        const ROUNDS: usize = 10_000;
        let (mut reader, writer) = io::pipe().unwrap();
        let first = Output::of(writer.try_clone().unwrap().into());
        first.write_within(&[0; 1 << 21], Duration::ZERO).unwrap();
        let (ends, ended) = mpsc::channel();
        let step = Arc::new(Barrier::new(2));
        for output in [first, Output::of(writer.into())] {
            let (ends, step, mut reader) =
                (ends.clone(), step.clone(), reader.try_clone().unwrap());
            thread::spawn(move || {
                let mut written = 0;
                for _ in 0..ROUNDS {
                    // One of them makes room for one piece.
                    if step.wait().is_leader() {
                        reader.read_exact(&mut [0; PIECE]).unwrap();
                    }
                    step.wait();
                    written += usize::from(output.write(&[0; PIECE]).is_ok());
                }
                ends.send(written).unwrap();
            });
        }
        let written = [(); 2].map(|()| {
            let written = ended.recv_timeout(Duration::from_secs(60));
            written.expect("a writer waits")
        });
        assert_eq!(written.iter().sum::<usize>(), ROUNDS);
        reader.read_exact(&mut [0; PIECE]).unwrap();
    }

    #[test]
    fn a_wait_for_room_is_interrupted() {
        let (_reader, writer) = io::pipe().unwrap();
        let output = Output::of(writer.into());
        output.write_within(&[0; 1 << 21], Duration::ZERO).unwrap();
        let interrupt = Interrupt::new().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| output.wait_for_room(&interrupt, None));
            interrupt.raise();
            waiting.join().unwrap().unwrap();
        });
        let begun = Instant::now();
        let limit = Duration::from_millis(20);
        output.wait_for_room(&interrupt, Some(limit)).unwrap();
        assert!(begun.elapsed() >= limit);
    }

    #[test]
    fn pieces_end_with_lines_where_they_can() {
        assert_eq!(piece(b"a\nb"), b"a\nb");
        let long = [vec![b'x'; 4000], b"\n".to_vec(), vec![b'y'; 8000]].concat();
        assert_eq!(piece(&long).len(), 4001);
        assert_eq!(piece(&long[4001..]).len(), PIECE);
    }
}
