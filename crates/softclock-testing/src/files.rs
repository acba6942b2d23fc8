//! Files for the servers under test.

use std::fs;

use tempfile::TempDir;

/// Creates a temporary directory with these files, given as relative path and content. Deleted on drop.
pub fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("inside")).expect("a directory");
        fs::write(path, content).expect("a file");
    }
    directory
}

/// Pseudorandom bytes, always the same for a length. A displaced or repeated part shows, as it would not in a pattern.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
