//! What a directory holds.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, statat};

use crate::file::{Metadata, Wait, open_beneath};

/// A file or directory in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; any bytes but slash and NUL.
    pub name: Vec<u8>,
    /// What is known of it, or of what it links to.
    pub metadata: Metadata,
}

/// The entries of a directory, or some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// In the file system's order.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// Reads the directory `path` beneath `root`: at most `max` regular files and directories whose names `keep` accepts.
///
/// A symbolic link counts as what it leads to, and not at all if that is missing or not beneath `root`. Waits for the
/// disk.
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

/// `None` for what has gone meanwhile and for what is neither file nor directory.
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
