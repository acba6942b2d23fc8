//! Files that are written completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces `path` by `contents` atomically: a reader sees the old file or the new one, and a failure leaves the old
/// one. A path that is not a regular file (a pipe, a device) is written to directly.
///
/// # Errors
/// Those of creating, writing or renaming the file.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let target = resolve(path)?;
    if is_special(&target) {
        return File::options()
            .write(true)
            .open(&target)?
            .write_all(contents);
    }
    let temporary = temporary_name(&target)?;
    let written = fill(&temporary, contents).and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // Report the first error, not that of the removal.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Checks that [`write()`] can succeed, to report an error before minutes of measuring.
///
/// # Errors
/// If no file can be created beside `path`, or `path` is a directory.
pub fn probe(path: &Path) -> io::Result<()> {
    let target = resolve(path)?;
    if is_special(&target) {
        return File::options().write(true).open(&target).map(drop);
    }
    let temporary = temporary_name(&target)?;
    File::create(&temporary)?;
    fs::remove_file(&temporary)
}

/// Follows symbolic links, so that a link is kept and its target replaced.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(target) if target.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(target) => Ok(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// A name in the same directory, since a rename cannot cross file systems.
fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn fill(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    // Before the rename, or a crash could leave an empty file under the final name.
    file.sync_all()
}
