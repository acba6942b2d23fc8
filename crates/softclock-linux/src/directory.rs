//! Lists the files and directories in a directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, statat};

use crate::file::{Metadata, Wait, open_beneath};

/// A regular file or a directory, as an entry of its parent directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes except slash and NUL.
    pub name: Vec<u8>,
    /// The metadata of the entry, or of its target if it is a symbolic link.
    pub metadata: Metadata,
}

/// The entries of a directory, possibly not all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The entries, in the file system's order.
    pub entries: Vec<Entry>,
    /// Whether the directory has more entries than were returned.
    pub truncated: bool,
}

/// Reads the directory `path` beneath `root`, and returns at most `max` regular files and directories whose names
/// `keep` accepts.
///
/// Resolves symbolic links, and leaves out those whose target is missing or not beneath `root`. Waits for the disk, so
/// call it on a helper thread. Costs one or two system calls for each entry.
///
/// # Errors
/// Returns the errors of [`open_beneath`] and `getdents64(2)`.
///
/// # Example
/// ```
/// use std::os::fd::AsFd;
/// use std::path::Path;
///
/// use softclock_linux::{directory, file};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let parent = tempfile::tempdir()?;
/// std::fs::write(parent.path().join("visible"), "12345")?;
/// std::fs::write(parent.path().join(".hidden"), "")?;
///
/// let root = file::open_root(parent.path())?;
/// let visible = |name: &[u8]| !name.starts_with(b".");
/// let found = directory::read(root.as_fd(), Path::new("."), 100, visible)?;
/// assert_eq!(found.entries.len(), 1);
/// assert_eq!(found.entries[0].name, b"visible");
/// assert_eq!(found.entries[0].metadata.len(), 5);
/// assert!(!found.truncated);
/// # Ok(())
/// # }
/// ```
pub fn read(
    root: BorrowedFd<'_>,
    path: &Path,
    max: usize,
    keep: impl Fn(&[u8]) -> bool,
) -> io::Result<Entries> {
    let directory = open_beneath(root, path, Wait::Allowed)?;
    let mut found = Entries::default();
    for item in Dir::read_from(&directory)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if matches!(name, b"." | b"..") || !keep(name) {
            continue;
        }
        if found.entries.len() == max {
            found.truncated = true;
            break;
        }
        if let Some(metadata) = metadata(root, path, directory.as_fd(), name) {
            found.entries.push(Entry {
                name: name.to_owned(),
                metadata,
            });
        }
    }
    Ok(found)
}

/// Reads the metadata of one entry, or of its target if it is a symbolic link. Returns `None` if the entry was removed
/// in the meantime, or is neither a regular file nor a directory.
fn metadata(
    root: BorrowedFd<'_>,
    path: &Path,
    directory: BorrowedFd<'_>,
    name: &[u8],
) -> Option<Metadata> {
    let name = OsStr::from_bytes(name);
    let own = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let mut metadata = Metadata::from_stat(&own);
    if metadata.is_symlink() {
        let target = open_beneath(root, &path.join(name), Wait::Allowed).ok()?;
        metadata = Metadata::of(target).ok()?;
    }
    (metadata.is_file() || metadata.is_dir()).then_some(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::open_root;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_directories_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("d/sub")).unwrap();
        fs::write(path("d/file"), "12345").unwrap();
        fs::write(path("d/.hidden"), "").unwrap();
        fs::write(path("top"), "1").unwrap();
        symlink("../top", path("d/up")).unwrap();
        symlink("/etc/passwd", path("d/outside")).unwrap();
        symlink("nothing", path("d/broken")).unwrap();
        let root = open_root(directory.path()).unwrap();
        let visible = |name: &[u8]| !name.starts_with(b".");
        let read = |path, max| read(root.as_fd(), Path::new(path), max, visible);
        let found = read("d", 10).unwrap();
        let mut entries: Vec<_> = found
            .entries
            .iter()
            .map(|entry| {
                (
                    entry.name.as_slice(),
                    entry.metadata.is_dir(),
                    entry.metadata.len(),
                )
            })
            .map(|(name, dir, len)| (name, dir, if dir { 0 } else { len }))
            .collect();
        entries.sort_unstable();
        let expected: [(&[u8], _, _); 3] =
            [(b"file", false, 5), (b"sub", true, 0), (b"up", false, 1)];
        assert_eq!(entries, expected);
        assert!(!found.truncated);
        assert_eq!(read("d", 1).unwrap().entries.len(), 1);
        assert!(read("d", 1).unwrap().truncated);
        assert!(read("d/file", 1).is_err());
        assert!(read("../x", 1).is_err());
    }
}
