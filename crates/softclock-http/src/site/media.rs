//! Media types by file name.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::header::HeaderValue;

/// Returns the Content-Type for a file of this name; text types get `charset=utf-8`.
///
/// A search of the table takes about 0.3 us, so each thread caches the results by extension.
pub(crate) fn type_of(name: &Path) -> HeaderValue {
    let Some(extension) = extension(name) else {
        return UNKNOWN;
    };
    KNOWN.with_borrow_mut(|known| {
        if let Some((_, value)) = known.iter().find(|(known, _)| known == extension) {
            return value.clone();
        }
        let value = look_up(name);
        if known.len() < KNOWN_MAX {
            known.push((extension.to_owned(), value.clone()));
        }
        value
    })
}

/// Like `Path::extension`, without parsing the whole path.
fn extension(name: &Path) -> Option<&OsStr> {
    let name = name.as_os_str().as_bytes();
    let separator = name.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    let in_name = separator > 0 && name[separator - 1] != b'/';
    (in_name && name[separator] == b'.').then(|| OsStr::from_bytes(&name[separator + 1..]))
}

fn look_up(name: &Path) -> HeaderValue {
    match mime_guess::from_path(name).first_raw() {
        None => UNKNOWN,
        // RFC 9239 makes `text/javascript` the type to use.
        Some("application/javascript") => {
            HeaderValue::from_static("text/javascript; charset=utf-8")
        }
        Some(text) if text.starts_with("text/") => {
            HeaderValue::from_str(&format!("{text}; charset=utf-8")).expect("a table of ASCII")
        }
        Some(other) => HeaderValue::from_static(other),
    }
}

const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The most cached extensions. A site usually has a handful; a client that requests many others only causes searches.
const KNOWN_MAX: usize = 16;

thread_local! {
    static KNOWN: RefCell<Vec<(OsString, HeaderValue)>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        for (name, expected) in [
            ("a/index.html", "text/html; charset=utf-8"),
            ("x.CSS", "text/css; charset=utf-8"),
            ("x.js", "text/javascript; charset=utf-8"),
            ("x.mjs", "text/javascript; charset=utf-8"),
            ("x.csv", "text/csv; charset=utf-8"),
            ("x.json", "application/json"),
            ("x.svg", "image/svg+xml"),
            ("x.woff2", "font/woff2"),
            ("x.wasm", "application/wasm"),
            ("x.tar.gz", "application/gzip"),
            (".html", "application/octet-stream"),
            ("a.b/.html", "application/octet-stream"),
            ("a.html/x", "application/octet-stream"),
            ("x.", "application/octet-stream"),
            ("x.html", "text/html; charset=utf-8"),
            ("README", "application/octet-stream"),
            ("x.unheard-of", "application/octet-stream"),
        ] {
            for _ in 0..2 {
                assert_eq!(type_of(Path::new(name)), expected, "{name}");
            }
        }
    }
}
