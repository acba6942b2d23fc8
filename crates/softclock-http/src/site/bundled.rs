//! The site that `softclock serve` serves if no directory is given.

use std::path::Path;

/// A file that is compiled into the program.
pub(crate) struct BundledFile {
    pub(crate) name: &'static str,
    pub(crate) content: &'static [u8],
    /// The entity tag: a hash of the content, in quotes.
    pub(crate) tag: [u8; 18],
}

impl BundledFile {
    const fn new(name: &'static str, content: &'static [u8]) -> Self {
        Self {
            name,
            content,
            tag: quoted_hexadecimal(fnv1a(content)),
        }
    }
}

/// The 64-bit FNV-1a hash.
const fn fnv1a(content: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut at = 0;
    while at < content.len() {
        hash = (hash ^ content[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

const fn quoted_hexadecimal(number: u64) -> [u8; 18] {
    let mut text = [b'"'; 18];
    let mut place = 0;
    while place < 16 {
        text[16 - place] = b"0123456789abcdef"[(number >> (4 * place)) as usize & 15];
        place += 1;
    }
    text
}

/// Returns the file with this name.
pub(crate) fn find(name: &Path) -> Option<&'static BundledFile> {
    FILES.iter().find(|file| Path::new(file.name) == name)
}

static FILES: [BundledFile; 3] = [
    BundledFile::new("index.html", include_bytes!("../../site/index.html")),
    BundledFile::new("style.css", include_bytes!("../../site/style.css")),
    BundledFile::new("clock.svg", include_bytes!("../../site/clock.svg")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_link_only_to_what_is_there() {
        let page = std::str::from_utf8(FILES[0].content).unwrap();
        let links = page.split("href=\"").chain(page.split("src=\"")).skip(1);
        for link in links.filter_map(|rest| rest.split('"').next()) {
            if link.contains(['.', '/']) && !link.starts_with("http") && !link.contains('<') {
                assert!(find(Path::new(link)).is_some(), "{link}");
            }
        }
        assert!(
            FILES
                .iter()
                .all(|file| file.content.is_ascii() && file.content.len() < 8192)
        );
    }
    #[test]
    fn tags_are_quoted_hashes() {
        let tag = std::str::from_utf8(&FILES[0].tag).unwrap();
        assert_eq!(tag, format!("\"{:016x}\"", fnv1a(FILES[0].content)));
        assert_ne!(FILES[0].tag, FILES[1].tag);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
