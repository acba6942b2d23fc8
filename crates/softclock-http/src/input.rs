//! Reads the files that configure a server (configurations, certificates, keys) whole, up to a size limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The kinds of file that [`read_input`] accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Any file, including pipes and devices, which can block the reader. For the start of a program, where a shell may
    /// pass the output of a command as a pipe.
    Any,
    /// Regular files only. For a running server, which must not block on a pipe that has no writer.
    Regular,
}

/// Reads a whole file of at most 1 MiB. Blocks the thread while it reads.
///
/// # Errors
/// The system's errors, and an error for a file that is larger or of a kind that `kind` excludes.
///
/// ```
/// use softclock_http::{InputKind, read_input};
/// use std::path::Path;
///
/// assert!(read_input(Path::new("/dev/null"), InputKind::Any)?.is_empty());
/// assert!(read_input(Path::new("/dev/null"), InputKind::Regular).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_input(path: &Path, kind: InputKind) -> io::Result<Vec<u8>> {
    // Checked before the file is opened, as opening a pipe waits for a writer.
    if kind == InputKind::Regular && !fs::metadata(path)?.is_file() {
        return Err(io::Error::other(
            "a running server reads regular files only",
        ));
    }
    let mut content = Vec::new();
    let mut file = File::open(path)?.take(MAX_BYTES + 1);
    if file.read_to_end(&mut content)? as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(content)
}

/// The largest file accepted: far more than a configuration or a certificate chain needs.
const MAX_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (bytes, is_read) in [(0, true), (1 << 20, true), ((1 << 20) + 1, false)] {
            fs::write(&path, vec![b'#'; bytes]).unwrap();
            for kind in [InputKind::Any, InputKind::Regular] {
                let read = read_input(&path, kind);
                assert_eq!(read.is_ok_and(|read| read.len() == bytes), is_read);
            }
        }
        let zeros = Path::new("/dev/zero");
        let error = |kind| read_input(zeros, kind).unwrap_err().to_string();
        assert!(error(InputKind::Any).contains("1 MiB"));
        assert!(error(InputKind::Regular).contains("regular"));
    }
}
