//! The files that clients request.

use std::fs;
use std::io;
use std::path::Path;

use crate::servers::readable_by_all;

/// A file that clients request.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The name in tables.
    pub name: &'static str,
    /// The path on the server.
    pub path: &'static str,
    /// The length.
    pub bytes: usize,
}

/// Writes files into a directory that all users can read.
///
/// # Errors
/// Those of the file system.
pub fn write_files(directory: &Path, files: &[File]) -> io::Result<()> {
    readable_by_all(directory)?;
    files.iter().try_for_each(|file| {
        let path = directory.join(file.path.trim_start_matches('/'));
        fs::write(path, vec![b'x'; file.bytes])
    })
}

/// A file of 1 KB.
pub const SMALL: File = File {
    name: "1 KB",
    path: "/small.html",
    bytes: 1 << 10,
};

/// A file of the size in *Soft Timers*.
pub const PAPERS: File = File {
    name: "6 KB",
    path: "/papers.html",
    bytes: 6 << 10,
};
