//! Media types by a file's name.

use std::path::Path;

use http::header::HeaderValue;

/// The value of Content-Type for a file of this name; text is said to be UTF-8.
pub(crate) fn type_of(name: &Path) -> HeaderValue {
    match mime_guess::from_path(name).first_raw() {
        None => HeaderValue::from_static("application/octet-stream"),
        // These need no allocation.
        Some("text/html") => HeaderValue::from_static("text/html; charset=utf-8"),
        Some("text/css") => HeaderValue::from_static("text/css; charset=utf-8"),
        Some("text/plain") => HeaderValue::from_static("text/plain; charset=utf-8"),
        Some("text/javascript" | "application/javascript") => {
            HeaderValue::from_static("text/javascript; charset=utf-8")
        }
        Some(text) if text.starts_with("text/") => {
            HeaderValue::from_str(&format!("{text}; charset=utf-8")).expect("a table of ASCII")
        }
        Some(other) => HeaderValue::from_static(other),
    }
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
            ("README", "application/octet-stream"),
            ("x.unheard-of", "application/octet-stream"),
        ] {
            assert_eq!(type_of(Path::new(name)), expected, "{name}");
        }
    }
}
