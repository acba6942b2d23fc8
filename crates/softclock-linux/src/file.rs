//! Opens and reads files below one directory, in two forms: one never waits for the disk, the other may.
//!
//! The first form ([`Wait::Never`]) fails with `EAGAIN` ([`io::ErrorKind::WouldBlock`]) as soon as anything is missing
//! from the kernel's caches; use it on an event loop. The second ([`Wait::Allowed`]) belongs on a helper thread.
//! *Flash* (USENIX 1999) did the same with `mincore` and helper processes, but had to guess whether a read would wait;
//! here the kernel reports it.
//!
//! Needs Linux 5.12 (`openat2` came with 5.6, its `RESOLVE_CACHED` with 5.12).
//!
//! # Example
//! ```
//! use std::os::fd::AsFd;
//! use std::path::Path;
//!
//! use softclock_linux::file::{Metadata, Wait, open_beneath, open_root, read_at};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("page.html"), "hello, world")?;
//!
//! let root = open_root(directory.path())?;
//! let file = open_beneath(root.as_fd(), Path::new("page.html"), Wait::Allowed)?;
//! assert_eq!(Metadata::of(&file)?.len(), 12);
//!
//! let mut buffer = Vec::new();
//! read_at(file.as_fd(), &mut buffer, 100, 7, Wait::Allowed)?;
//! assert_eq!(buffer, b"world");
//!
//! // The kernel refuses paths that lead out of the root.
//! assert!(open_beneath(root.as_fd(), Path::new("../x"), Wait::Allowed).is_err());
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether an operation may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The operation uses the kernel's caches only, and fails with [`io::ErrorKind::WouldBlock`] if they do not
    /// suffice.
    Never,
    /// The operation may wait for the disk. For helper threads.
    Allowed,
}

/// The metadata of a file: its type, length, identity and times.
///
/// Two equal values mean the same file in the same state, unless the file was changed twice within one tick of the file
/// system's clock (at most 10 ms; 4 ms on common kernels).
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
    /// Reads the metadata of an open file. One system call, which does not wait for the disk on local file systems:
    /// they keep the metadata of open files in memory.
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

    /// Returns whether this is a regular file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileType::RegularFile)
    }

    /// Returns whether this is a symbolic link. Never true for an open file.
    pub(crate) const fn is_symlink(&self) -> bool {
        matches!(self.kind, FileType::Symlink)
    }

    /// Returns whether this is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, FileType::Directory)
    }

    /// The length in bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length of a file, not of a collection"
    )]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The inode number, unique on its file system while the file exists.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// The time of the last change of the content. Programs can set it to any value.
    pub fn modified(&self) -> SystemTime {
        system_time(self.modified_s, self.modified_subsec_ns)
    }

    /// The time of the last change of content, name or permissions, by the kernel's clock. Programs cannot set it.
    pub fn changed(&self) -> SystemTime {
        system_time(self.changed_s, self.changed_subsec_ns)
    }

    /// Nanoseconds from the Unix epoch to [`modified`](Self::modified); negative before 1970.
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

/// Opens a directory as a root for [`open_beneath`], and checks that the kernel supports the calls that this needs.
///
/// # Errors
/// Returns [`io::ErrorKind::Unsupported`] if the kernel or a sandbox lacks `openat2` with `RESOLVE_CACHED`, and the
/// errors of `openat(2)`.
pub fn open_root(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, directory, flags, Mode::empty())?;
    match open_beneath(root.as_fd(), Path::new("."), Wait::Never) {
        Ok(_) => Ok(root),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(root),
        Err(error) => Err(explain_missing_openat2(error)),
    }
}

/// Opens `path`, relative to `root`, for reading. Follows symbolic links that stay beneath the root.
///
/// Opening a FIFO does not wait for a writer, and a terminal does not become the controlling terminal. The caller must
/// check the type of the opened file with [`Metadata::of`].
///
/// # Errors
/// Returns `EXDEV` if the path leads out of `root`: by `..`, as an absolute path, or through a symbolic link that is
/// absolute or climbs above the root. With [`Wait::Never`], returns [`io::ErrorKind::WouldBlock`] if a name on the path
/// is not cached. Otherwise returns the errors of `openat2(2)`; see [`Failure::of`].
pub fn open_beneath(root: BorrowedFd<'_>, path: &Path, wait: Wait) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match wait {
        Wait::Never => {
            let resolve = beneath | ResolveFlags::CACHED;
            Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
        }
        Wait::Allowed => {
            // Without RESOLVE_CACHED, `EAGAIN` means that a concurrent rename or mount made the check of a `..`
            // inconclusive (openat2(2)), so another attempt is likely to succeed.
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

/// Reads up to `max` bytes at `offset` and appends them to `buffer`. Returns the number of bytes read, 0 at the end of
/// the file.
///
/// May read less than the file has; with [`Wait::Never`], reads up to the first byte that is not in the page cache.
///
/// # Errors
/// With [`Wait::Never`], returns [`io::ErrorKind::WouldBlock`] if the first byte is not cached, or if the file system
/// does not support reads that never wait. Otherwise returns the errors of `preadv2(2)`.
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
            // SAFETY: the kernel has initialised `read <= max` bytes after `len`, within the capacity.
            unsafe { buffer.set_len(buffer.len() + read) };
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // The file system does not support RWF_NOWAIT, so the caller must read with `Wait::Allowed`.
            Some(libc::EOPNOTSUPP) if wait == Wait::Never => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            _ => return Err(error),
        }
    }
}

/// Why a file could not be opened or read, divided into the cases that a server answers differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The file does not exist: a name is missing, too long or not valid in the file system, a parent is not a
    /// directory, or links form a loop.
    Missing,
    /// Permission is denied, or the path leads out of the root.
    Forbidden,
    /// Descriptors or memory ran out. A later attempt may succeed.
    Exhausted,
    /// Any other error, such as a failing disk.
    Broken,
}

impl Failure {
    /// Classifies an error that a function of this module returned.
    ///
    /// ```
    /// use softclock_linux::file::Failure;
    ///
    /// let missing = std::fs::File::open("/nonexistent").unwrap_err();
    /// assert_eq!(Failure::of(&missing), Failure::Missing);
    /// ```
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => Self::Missing,
            // From file systems that accept only some bytes in names, such as exFAT and ZFS with `utf8only`.
            Some(libc::EINVAL | libc::EILSEQ) => Self::Missing,
            Some(libc::EACCES | libc::EPERM | libc::EXDEV | libc::ENXIO) => Self::Forbidden,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => Self::Exhausted,
            _ => Self::Broken,
        }
    }
}

/// Raises this process's limit of open descriptors to its hard limit. Returns the limit that is then in effect.
///
/// Also makes the kernel allocate the process's table of descriptors at once, for up to 65 536 of them. Otherwise the
/// table grows when a descriptor does not fit, and in a process with several threads the call that needs it, such as
/// accept(2), then waits for all processors (5 to 13 ms were measured). The table takes 8 bytes for each descriptor.
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
    let limit = now.current.unwrap_or(u64::MAX);
    // Without the table a server only answers later at times.
    let _ = reserve_descriptors(limit.min(MOST_RESERVED));
    limit
}

/// Makes the kernel's table of descriptors large enough for `count` of them. The table never shrinks.
fn reserve_descriptors(count: u64) -> io::Result<()> {
    let last = RawFd::try_from(count.saturating_sub(1)).map_err(io::Error::other)?;
    let any = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    fcntl_dupfd_cloexec(any, last)?;
    Ok(())
}

fn explain_missing_openat2(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => {
            "the kernel is too old: openat2 with RESOLVE_CACHED came with Linux 5.12"
        }
        Some(libc::EPERM) => {
            "openat2 is forbidden here, perhaps by a container's seccomp profile from before Linux 5.6"
        }
        _ => return error,
    };
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// The most descriptors that a table is allocated for in advance: 512 KiB.
const MOST_RESERVED: u64 = 65_536;

/// How often `open_beneath` tries in all. So many lost races in a row suggest an attack, not an accident.
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
    fn a_raised_limit_has_its_table_at_once() {
        let limit = raise_descriptor_limit();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let size = status
            .lines()
            .find_map(|line| line.strip_prefix("FDSize:"))
            .map(|size| size.trim().parse::<u64>().unwrap());
        assert!(
            size >= Some(limit.min(MOST_RESERVED)),
            "{size:?} of {limit}"
        );
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
    fn errors_are_divided_by_what_they_mean() {
        for (failure, numbers) in [
            (
                Failure::Missing,
                &[libc::ENOENT, libc::EINVAL, libc::EILSEQ][..],
            ),
            (Failure::Forbidden, &[libc::EACCES, libc::EXDEV]),
            (Failure::Exhausted, &[libc::EMFILE, libc::ENOMEM]),
            (Failure::Broken, &[libc::EIO, libc::ESTALE]),
        ] {
            for &number in numbers {
                let error = io::Error::from_raw_os_error(number);
                assert_eq!(Failure::of(&error), failure, "{error}");
            }
        }
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
