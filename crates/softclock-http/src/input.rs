//! Files that say how a server serves: read whole, up to a limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Which files may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Pipes and devices, too, which can keep the reader waiting: for the start, where a shell may give the output of a
    /// command.
    Any,
    /// Regular files only: for a running server, which must not wait for a pipe that has no writer.
    Regular,
}

/// Reads a whole file of at most 1 MiB.
///
/// # Errors
/// Those of the system; files of another kind, and larger ones.
pub fn read_input(path: &Path, kind: InputKind) -> io::Result<Vec<u8>> {
    // Before it is opened, as opening a pipe waits for its writer.
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

/// Far more than a configuration or a chain of certificates needs.
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
