//! The site that `softclock serve` shows when it is given no directory.

use std::path::Path;

/// A file that is part of the program.
pub(crate) struct BundledFile {
    pub(crate) name: &'static str,
    pub(crate) content: &'static [u8],
}

impl BundledFile {
    /// FNV-1a of the content, for its entity tag.
    pub(crate) const fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut at = 0;
        while at < self.content.len() {
            hash = (hash ^ self.content[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        hash
    }
}

/// The file of this name.
pub(crate) fn find(name: &Path) -> Option<&'static BundledFile> {
    FILES.iter().find(|file| Path::new(file.name) == name)
}

static FILES: [BundledFile; 3] = [
    BundledFile {
        name: "index.html",
        content: include_bytes!("../site/index.html"),
    },
    BundledFile {
        name: "style.css",
        content: include_bytes!("../site/style.css"),
    },
    BundledFile {
        name: "clock.svg",
        content: include_bytes!("../site/clock.svg"),
    },
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
        assert_ne!(FILES[0].hash(), FILES[1].hash());
    }
}
