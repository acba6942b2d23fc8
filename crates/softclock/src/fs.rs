//! Files below one directory, read without blocking the loop.
//!
//! Each operation is first tried on the loop in its nonblocking form, which the kernel answers from its caches. Only
//! if that fails, a helper thread performs it (*Flash*, USENIX 1999). Each attempt is a system call, and so a trigger
//! state. Files work on any executor, also outside a runtime.
//!
//! # Example
//! ```
//! use std::path::Path;
//!
//! use softclock::fs::Root;
//!
//! # fn main() -> std::io::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! # std::fs::write(directory.join("index.html"), "<p>hello")?;
//! let root = Root::open(directory)?;
//! softclock::Runtime::new()?.block_on(async {
//!     let file = root.open_file(Path::new("index.html")).await?;
//!     let text = file.read_at(Vec::new(), 64 << 10, 0).await?;
//!     assert_eq!(text, b"<p>hello");
//!     assert!(root.open_file(Path::new("../outside")).await.is_err());
//!     Ok(())
//! })
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use softclock_linux::directory;
use softclock_linux::file::{self, Wait};
use softclock_linux::page_cache;

use crate::runtime::inner::{allowance, is_entered};

pub use softclock_linux::directory::{Entries, Entry};
pub use softclock_linux::file::{Failure, Metadata, raise_descriptor_limit};

/// A directory for opening files below it. No path can leave it, neither by `..` nor by a symbolic link.
#[derive(Clone, Debug)]
pub struct Root {
    directory: Arc<OwnedFd>,
}

impl Root {
    /// Opens the directory. It may block on the disk, so call it before the loop starts.
    ///
    /// # Errors
    /// Those of `open(2)`, and [`io::ErrorKind::Unsupported`] with an explanation if the kernel (before Linux 5.12)
    /// or a seccomp profile does not provide `openat2`.
    pub fn open(directory: impl AsRef<Path>) -> io::Result<Self> {
        let directory = Arc::new(file::open_root(directory.as_ref())?);
        Ok(Self { directory })
    }

    /// Opens a file or directory for reading; `path` is relative to the root.
    ///
    /// # Errors
    /// Those of `openat2(2)`; `EXDEV` ([`io::ErrorKind::CrossesDevices`]) for a path that leads out of the root.
    ///
    /// # Cancel safety
    /// If the future is dropped, a file that a helper thread opens for it is closed.
    pub async fn open_file(&self, path: &Path) -> io::Result<File> {
        allowance().await;
        match self.try_open_file(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (root, path) = (self.clone(), path.to_path_buf());
                crate::spawn_blocking(move || root.open_file_waiting(&path)).await
            }
            result => result,
        }
    }

    /// Like [`open_file`](Self::open_file), but only if this does not block. It would block if the kernel has neither
    /// the existence nor the absence of the name in its cache.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where [`open_file`](Self::open_file) would use a helper thread.
    pub fn try_open_file(&self, path: &Path) -> io::Result<File> {
        open(&self.directory, path, Wait::Never)
    }

    /// Like [`open_file`](Self::open_file), but may block: for use within
    /// [`spawn_blocking`](fn@crate::spawn_blocking).
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file).
    pub fn open_file_waiting(&self, path: &Path) -> io::Result<File> {
        open(&self.directory, path, Wait::Allowed)
    }
}

impl Root {
    /// Lists a directory below the root: at most `max` regular files and directories whose names `keep` accepts, in
    /// no particular order. May block: for use within [`spawn_blocking`](fn@crate::spawn_blocking).
    ///
    /// # Errors
    /// Those of `openat2(2)` and `getdents64(2)`.
    pub fn read_directory(
        &self,
        path: &Path,
        max: usize,
        keep: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Entries> {
        directory::read(self.directory.as_fd(), path, max, keep)
    }
}

/// An open file. Clones share the descriptor, which is closed with the last of them.
#[derive(Clone, Debug)]
pub struct File {
    descriptor: Arc<OwnedFd>,
    metadata: Metadata,
}

impl File {
    /// Returns the metadata as of the opening of the file.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns whether a clone or a read in progress shares the descriptor, so that it stays open when this is
    /// dropped.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.descriptor) > 1
    }

    /// Reads the current metadata. Local file systems hold it in memory while the file is open.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn current_metadata(&self) -> io::Result<Metadata> {
        passing(|| Metadata::of(&self.descriptor))
    }

    /// Returns whether `len` bytes at `offset` are in the page cache, judged by one probe per 64 KiB, so that sending
    /// them ([`TcpStream::send_file`](crate::net::TcpStream::send_file)) does not block. Makes a system call for each
    /// probe.
    pub fn is_cached(&self, offset: u64, len: u64) -> bool {
        passing(|| page_cache::is_cached(self.as_fd(), offset, len))
    }

    /// Appends up to `max` bytes at `offset` to `buffer`, if this does not block. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where [`read_at`](Self::read_at) would use a helper thread.
    pub fn try_read_at(&self, buffer: &mut Vec<u8>, max: usize, offset: u64) -> io::Result<usize> {
        let descriptor = self.descriptor.as_fd();
        passing(|| file::read_at(descriptor, buffer, max, offset, Wait::Never))
    }

    /// Reads up to `max` bytes at `offset`, and returns `buffer` with them appended; none at the end of the file.
    ///
    /// # Errors
    /// Those of `preadv2(2)`.
    ///
    /// # Cancel safety
    /// If the future is dropped, `buffer` is lost. The file has no position that could have moved: read again.
    pub async fn read_at(
        &self,
        mut buffer: Vec<u8>,
        max: usize,
        offset: u64,
    ) -> io::Result<Vec<u8>> {
        allowance().await;
        match self.try_read_at(&mut buffer, max, offset) {
            Ok(_) => Ok(buffer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_at_on_helper(buffer, max, offset).await
            }
            Err(error) => Err(error),
        }
    }

    /// Like [`read_at`](Self::read_at), but uses a helper thread at once: for callers whose
    /// [`try_read_at`](Self::try_read_at) has just failed.
    ///
    /// # Errors
    /// Those of `preadv2(2)`.
    ///
    /// # Cancel safety
    /// As for [`read_at`](Self::read_at).
    pub fn read_at_on_helper(
        &self,
        mut buffer: Vec<u8>,
        max: usize,
        offset: u64,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + use<> {
        let descriptor = Arc::clone(&self.descriptor);
        crate::spawn_blocking(move || {
            file::read_at(descriptor.as_fd(), &mut buffer, max, offset, Wait::Allowed)?;
            Ok(buffer)
        })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn open(root: &OwnedFd, path: &Path, wait: Wait) -> io::Result<File> {
    let descriptor = system_call(wait, || file::open_beneath(root.as_fd(), path, wait))?;
    let metadata = system_call(wait, || Metadata::of(&descriptor))?;
    Ok(File {
        descriptor: Arc::new(descriptor),
        metadata,
    })
}

/// Makes a system call that is a trigger state unless it may wait, as on helper threads.
fn system_call<R>(wait: Wait, call: impl FnOnce() -> R) -> R {
    match wait {
        Wait::Never => passing(call),
        Wait::Allowed => call(),
    }
}

/// Makes a system call and passes a trigger state. Outside a runtime there are no timers to check.
fn passing<R>(call: impl FnOnce() -> R) -> R {
    match is_entered() {
        true => crate::system_call(call),
        false => call(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use std::fs;

    #[test]
    fn opened_and_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "0123456789").unwrap();
        let root = Root::open(directory.path()).unwrap();
        Runtime::new().unwrap().block_on(async {
            let file = root.open_file(Path::new("file")).await.unwrap();
            assert_eq!(file.metadata().len(), 10);
            assert_eq!(file.read_at(Vec::new(), 4, 2).await.unwrap(), b"2345");
            let on_helper = file.read_at_on_helper(b"89".to_vec(), 4, 0).await.unwrap();
            assert_eq!(on_helper, b"890123");
            assert!(file.read_at(Vec::new(), 4, 10).await.unwrap().is_empty());
            assert_eq!(file.current_metadata().unwrap(), *file.metadata());
            fs::write(directory.path().join("file"), "x").unwrap();
            assert_ne!(file.current_metadata().unwrap(), *file.metadata());
        });
    }

    #[test]
    fn nothing_outside() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        Runtime::new().unwrap().block_on(async {
            let outside = root.open_file(Path::new("../x")).await.unwrap_err();
            assert_eq!(Failure::of(&outside), Failure::Forbidden);
            let missing = root.open_file(Path::new("x")).await.unwrap_err();
            assert_eq!(Failure::of(&missing), Failure::Missing);
        });
    }
}
