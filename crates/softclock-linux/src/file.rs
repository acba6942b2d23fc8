//! Files below one directory, opened and read in two forms: one that never waits for the disk, and one that may.
//!
//! The first form answers `EAGAIN` ([`io::ErrorKind::WouldBlock`]) as soon as anything is missing from the kernel's
//! caches; it belongs on an event loop. The second belongs on a helper thread. Together they are what *Flash* (USENIX
//! 1999) did with `mincore` and helper processes, without its guess: the kernel itself says whether it would wait.
//!
//! Needs Linux 5.12 (`openat2` is of 5.6, its `RESOLVE_CACHED` of 5.12).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether an operation may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Answer from the kernel's caches or with [`io::ErrorKind::WouldBlock`].
    Never,
    /// Wait for the disk: for helper threads.
    Allowed,
}

/// What is known of an open file. Two that are equal mean the same file in the same state, unless it was changed twice
/// within one tick of the file system's clock (4 ms at most, on usual kernels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    kind: FileType,
    len: u64,
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_subsec_ns: u32,
    changed_s: i64,
    changed_subsec_ns: u32,
}

impl Metadata {
    /// Reads the metadata of an open file; local file systems hold it in memory while the file is open.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(file)?))
    }

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            modified_s: stat.st_mtime,
            modified_subsec_ns: stat.st_mtime_nsec as u32,
            changed_s: stat.st_ctime,
            changed_subsec_ns: stat.st_ctime_nsec as u32,
        }
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileType::RegularFile)
    }

    /// Whether it is a symbolic link, which an open file never is.
    pub(crate) const fn is_symlink(&self) -> bool {
        matches!(self.kind, FileType::Symlink)
    }

    /// Whether it is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, FileType::Directory)
    }

    /// Length in bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length of a file, not of a collection"
    )]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The inode's number, unique on its file system while the file exists.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Time of the last change of the content; programs may set it to anything.
    pub fn modified(&self) -> SystemTime {
        system_time(self.modified_s, self.modified_subsec_ns)
    }

    /// Time of the last change of content, name or permissions, by the kernel's own clock.
    pub fn changed(&self) -> SystemTime {
        system_time(self.changed_s, self.changed_subsec_ns)
    }

    /// Nanoseconds from the epoch to [`modified`](Self::modified).
    pub const fn modified_ns(&self) -> i128 {
        self.modified_s as i128 * 1_000_000_000 + self.modified_subsec_ns as i128
    }
}

fn system_time(seconds: i64, subsec_ns: u32) -> SystemTime {
    let subsec = Duration::from_nanos(u64::from(subsec_ns));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH - whole + subsec
    } else {
        SystemTime::UNIX_EPOCH + whole + subsec
    }
}

/// Opens a directory to be the root of [`open_beneath`], and proves that the kernel can do what that needs.
pub fn open_root(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, directory, flags, Mode::empty())?;
    match open_beneath(root.as_fd(), Path::new("."), Wait::Never) {
        Ok(_) => Ok(root),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(root),
        Err(error) => Err(explain_missing_openat2(error)),
    }
}

/// Opens `path` for reading. The kernel refuses (`EXDEV`) whatever leads out of `root`: `..`, an absolute path, or a
/// symbolic link that is absolute or climbs too high. Links that stay beneath the root are followed.
///
/// A FIFO does not wait for its writer and a terminal does not become ours; the caller checks what it got with
/// [`Metadata::of`].
pub fn open_beneath(root: BorrowedFd<'_>, path: &Path, wait: Wait) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match wait {
        Wait::Never => {
            let resolve = beneath | ResolveFlags::CACHED;
            Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
        }
        Wait::Allowed => {
            // Here `EAGAIN` means that a rename elsewhere made the check of a `..` inconclusive.
            for _ in 1..RENAME_RETRIES {
                match openat2(root, path, flags, Mode::empty(), beneath) {
                    Err(rustix::io::Errno::AGAIN) => {}
                    result => return Ok(result?),
                }
            }
            Ok(openat2(root, path, flags, Mode::empty(), beneath)?)
        }
    }
}

/// Reads up to `max` bytes at `offset` and appends them to `buffer`; 0 at the end of the file.
///
/// May read less than there is; with [`Wait::Never`] it does so where the page cache ends. A file system that can't
/// tell answers [`io::ErrorKind::WouldBlock`] too.
pub fn read_at(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    max: usize,
    offset: u64,
    wait: Wait,
) -> io::Result<usize> {
    buffer.reserve(max);
    let spare = &mut buffer.spare_capacity_mut()[..max];
    let vector = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: spare.len(),
    };
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let flags = match wait {
        Wait::Never => libc::RWF_NOWAIT,
        Wait::Allowed => 0,
    };
    loop {
        // SAFETY: `vector` describes `spare`, memory that `buffer` owns and that we hold exclusively; the kernel
        // writes at most `iov_len` bytes to it and keeps no reference.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, flags) };
        if let Ok(read) = usize::try_from(read) {
            // SAFETY: the kernel has initialised `read <= max` bytes behind `len`, inside the capacity.
            unsafe { buffer.set_len(buffer.len() + read) };
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) if wait == Wait::Never => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            _ => return Err(error),
        }
    }
}

/// Why a file could not be opened or read, as far as a server's answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No such file: a name missing, too long, below something that is no directory, or a loop of links.
    Missing,
    /// Permission denied, or outside the root.
    Forbidden,
    /// Descriptors or memory ran out; it may work later.
    Exhausted,
    /// Anything else, such as a failing disk.
    Broken,
}

impl Failure {
    /// Sorts an error of this module.
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => Self::Missing,
            Some(libc::EACCES | libc::EPERM | libc::EXDEV | libc::ENXIO) => Self::Forbidden,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => Self::Exhausted,
            _ => Self::Broken,
        }
    }
}

/// Raises the limit of open descriptors as far as this process may, and says what it is now.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() {
        raised
    } else {
        limit
    };
    now.current.unwrap_or(u64::MAX)
}

fn explain_missing_openat2(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => {
            "the kernel is too old: openat2 with RESOLVE_CACHED came with Linux 5.12"
        }
        Some(libc::EPERM) => {
            "openat2 is forbidden here: a container's seccomp profile older than Linux 5.6?"
        }
        _ => return error,
    };
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// More lost races than that in a row are no accident.
const RENAME_RETRIES: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn root() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let root = open_root(directory.path()).unwrap();
        (directory, root)
    }

    fn open(root: &OwnedFd, path: &str) -> Result<OwnedFd, Option<i32>> {
        open_beneath(root.as_fd(), Path::new(path), Wait::Allowed).map_err(|e| e.raw_os_error())
    }

    #[test]
    fn only_what_lies_beneath_is_opened() {
        let (directory, root) = root();
        fs::create_dir(directory.path().join("sub")).unwrap();
        fs::write(directory.path().join("sub/file"), "x").unwrap();
        symlink("sub/file", directory.path().join("inside")).unwrap();
        symlink("../file", directory.path().join("sub/outside-by-dots")).unwrap();
        symlink("../../etc/passwd", directory.path().join("sub/outside")).unwrap();
        symlink("/etc/passwd", directory.path().join("absolute")).unwrap();
        symlink("loop", directory.path().join("loop")).unwrap();
        assert!(open(&root, "sub/file").is_ok());
        assert!(open(&root, "inside").is_ok());
        assert_eq!(
            open(&root, "sub/outside-by-dots").unwrap_err(),
            Some(libc::ENOENT)
        );
        for refused in [
            "sub/outside",
            "absolute",
            "..",
            "sub/../../x",
            "/etc/passwd",
        ] {
            assert_eq!(
                open(&root, refused).unwrap_err(),
                Some(libc::EXDEV),
                "{refused}"
            );
        }
        assert_eq!(open(&root, "loop").unwrap_err(), Some(libc::ELOOP));
    }

    #[test]
    fn cached_files_need_no_waiting() {
        let (directory, root) = root();
        fs::write(directory.path().join("file"), "0123456789").unwrap();
        let file = open_beneath(root.as_fd(), Path::new("file"), Wait::Never).unwrap();
        let metadata = Metadata::of(&file).unwrap();
        assert!(metadata.is_file() && !metadata.is_dir());
        assert_eq!(metadata.len(), 10);
        let mut buffer = b"read: ".to_vec();
        let read = read_at(file.as_fd(), &mut buffer, 4, 3, Wait::Allowed).unwrap();
        assert_eq!((read, buffer.as_slice()), (4, b"read: 3456".as_slice()));
        assert_eq!(
            read_at(file.as_fd(), &mut buffer, 4, 10, Wait::Allowed).unwrap(),
            0
        );
    }

    #[test]
    fn a_fifo_does_not_wait_for_its_writer() {
        let (directory, root) = root();
        let path = directory.path().join("fifo");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let file = open(&root, "fifo").unwrap();
        let metadata = Metadata::of(&file).unwrap();
        assert!(!metadata.is_file() && !metadata.is_dir());
    }

    #[test]
    fn times_before_the_epoch_are_kept() {
        let metadata = Metadata {
            kind: FileType::RegularFile,
            len: 0,
            inode: 1,
            modified_s: -2,
            modified_subsec_ns: 250_000_000,
            device: 1,
            changed_s: 0,
            changed_subsec_ns: 0,
        };
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1_750);
        assert_eq!(metadata.modified(), before);
        assert_eq!(metadata.modified_ns(), -1_750_000_000);
    }

    #[test]
    fn a_missing_directory_is_not_found() {
        let error = open_root(Path::new("/nonexistent/softclock")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
