//! Writes to files, pipes and terminals without waiting, unless asked to wait.
//!
//! A full pipe that no program reads blocks its writers for ever. `O_NONBLOCK` prevents that only for files that this
//! process has opened itself: standard output and error share their open file descriptions with other processes, such
//! as the shell. So they are polled for room before each write, and get no more than a writable pipe is sure to take
//! (`PIPE_BUF`).

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::{Errno, retry_on_intr};

/// A file, pipe, socket or terminal to be written to.
#[derive(Debug)]
pub struct Output {
    fd: OwnedFd,
    /// A regular file always has room, or an error.
    is_file: bool,
}

impl Output {
    /// Opens a file for appending, and creates it if there is none. Does not wait for the reader of a named pipe.
    ///
    /// # Errors
    /// Those of `open(2)`; [`io::ErrorKind::NotConnected`] for a named pipe that no program reads.
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

    /// Standard output, by a descriptor of its own.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn stdout() -> io::Result<Self> {
        Ok(Self::of(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Standard error, by a descriptor of its own.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn stderr() -> io::Result<Self> {
        Ok(Self::of(io::stderr().as_fd().try_clone_to_owned()?))
    }

    fn of(fd: OwnedFd) -> Self {
        let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        Self {
            fd,
            is_file: kind == Ok(FileType::RegularFile),
        }
    }

    /// Writes at least one of `bytes`, and returns how many. Lines of up to `PIPE_BUF` bytes go to a pipe whole, never
    /// mixed with those of other writers.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; those of `write(2)`.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = if self.is_file { bytes } else { piece(bytes) };
        if !self.is_file && !self.poll(None, Some(Duration::ZERO))? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match retry_on_intr(|| rustix::io::write(&self.fd, piece))? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    /// Writes all of `bytes`, but waits no longer than `limit` for room; returns how many were written.
    ///
    /// # Errors
    /// Those of `write(2)`.
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

    /// Waits until there is room or an error, `interrupt` is raised, or `limit` has passed. Clears `interrupt`.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    pub fn wait_for_room(&self, interrupt: &Interrupt, limit: Option<Duration>) -> io::Result<()> {
        self.poll(Some(interrupt), limit)?;
        interrupt.clear();
        Ok(())
    }

    /// Whether there is room.
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

/// Ends a wait of [`Output::wait_for_room`], also one that begins later.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// Makes an interrupt that is not raised.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Ends the wait.
    pub fn raise(&self) {
        // With a full counter (EAGAIN) the wait ends as well; an eventfd has no other errors.
        let _ = retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes()));
    }

    fn clear(&self) {
        let _ = retry_on_intr(|| rustix::io::read(&self.0, &mut [0; 8]));
    }
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// The first lines that fit into one piece, or the first bytes of a longer line.
fn piece(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= PIECE {
        return bytes;
    }
    let first = &bytes[..PIECE];
    let end = first.iter().rposition(|&byte| byte == b'\n');
    &first[..end.map_or(PIECE, |end| end + 1)]
}

/// `PIPE_BUF`: a pipe that polls as writable takes this much without waiting, and in one piece.
const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::thread;

    /// A named pipe in a directory of its own.
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

    /// As standard error is where it is a pipe: its description is not this process's alone.
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
