//! Precompressed siblings.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use softclock_http::{DEFAULT_CACHE_BYTES, Site};

use crate::visitor::{Visitor, directory};

const FILES: &[(&str, &[u8])] = &[
    ("a.css", b"plain"),
    ("a.css.gz", b"gzipped."),
    ("a.css.br", b"brotli"),
    ("index.html", b"index"),
    ("index.html.zst", b"zstd!"),
    ("alone.txt", b"alone"),
];

#[test]
fn chosen_by_what_the_client_accepts() {
    let directory = directory(FILES);
    for cache in [0, DEFAULT_CACHE_BYTES] {
        let site = Site::directory(directory.path()).unwrap();
        let client = Visitor::of(site.with_cache(cache));
        for _ in 0..3 {
            for (target, accept, encoding, text) in [
                ("/a.css", "gzip, br, zstd", Some("br"), "brotli"),
                ("/a.css", "gzip, zstd", Some("gzip"), "gzipped."),
                ("/a.css", "gzip;q=0.5, br;q=0.4", Some("gzip"), "gzipped."),
                ("/a.css", "identity, *;q=0", None, "plain"),
                ("/a.css", "deflate", None, "plain"),
                ("/a.css", "identity;q=0, *", Some("br"), "brotli"),
                ("/", "zstd", Some("zstd"), "zstd!"),
                ("/index.html", "gzip", None, "index"),
            ] {
                let field = format!("Accept-Encoding: {accept}");
                let response = client.request("GET", target, &[&field]);
                let what = format!("{target} {accept}");
                assert_eq!((response.status, response.text()), (200, text), "{what}");
                assert_eq!(response.header("content-encoding"), encoding, "{what}");
                assert_eq!(response.header("vary"), Some("accept-encoding"), "{what}");
                let kind = response.header("content-type").unwrap();
                assert!(kind.starts_with("text/") && !kind.contains("gzip"));
                let head = client.request("HEAD", target, &[&field]);
                assert_eq!(head.headers, response.headers, "{what}");
            }
        }
        assert_eq!(client.get("/a.css").text(), "plain");
        assert_eq!(client.get("/a.css").header("vary"), Some("accept-encoding"));
        let alone = client.request(
            "GET",
            "/alone.txt",
            &["Accept-Encoding: identity;q=0, gzip"],
        );
        assert_eq!((alone.status, alone.header("vary")), (200, None));
        let refused = client.request("GET", "/a.css", &["Accept-Encoding: *;q=0"]);
        assert_eq!(
            (refused.status, refused.header("vary")),
            (406, Some("accept-encoding"))
        );
        assert_eq!(
            client.get("/a.css.gz").header("content-type"),
            Some("application/gzip")
        );
    }
}

#[test]
fn validators_and_ranges_belong_to_the_encoded_form() {
    let directory = directory(FILES);
    let client = Visitor::of(Site::directory(directory.path()).unwrap());
    let gzip = "Accept-Encoding: gzip";
    let encoded = client.request("GET", "/a.css", &[gzip]);
    let plain = client.get("/a.css");
    let tag = encoded.header("etag").unwrap();
    assert!(tag.ends_with("-gz\"") && plain.header("etag") != Some(tag));
    let condition = format!("If-None-Match: {tag}");
    let same = client.request("GET", "/a.css", &[gzip, &condition]);
    assert_eq!(
        (same.status, same.header("vary")),
        (304, Some("accept-encoding"))
    );
    assert_eq!(same.header("content-encoding"), None);
    assert_eq!(client.request("GET", "/a.css", &[&condition]).status, 200);
    let part = client.request("GET", "/a.css", &[gzip, "Range: bytes=-4"]);
    assert_eq!((part.status, part.text()), (206, "ped."));
    assert_eq!(part.header("content-range"), Some("bytes 4-7/8"));
    assert_eq!(part.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_sibling_older_than_its_original_is_ignored() {
    let directory = directory(FILES);
    for name in ["a.css.gz", "a.css.br"] {
        let file = File::options()
            .write(true)
            .open(directory.path().join(name))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
    }
    let site = Site::directory(directory.path()).unwrap();
    let client = Visitor::of(site.with_cache_revalidate(Duration::ZERO));
    let accept = "Accept-Encoding: gzip, br";
    let old = client.request("GET", "/a.css", &[accept]);
    assert_eq!((old.text(), old.header("vary")), ("plain", None));
    fs::write(directory.path().join("a.css.br"), "newer").unwrap();
    let new = client.request("GET", "/a.css", &[accept]);
    assert_eq!(
        (new.text(), new.header("vary")),
        ("newer", Some("accept-encoding"))
    );
    fs::remove_file(directory.path().join("a.css.br")).unwrap();
    assert_eq!(client.request("GET", "/a.css", &[accept]).text(), "plain");
}

#[test]
fn turned_off() {
    let directory = directory(FILES);
    let site = Site::directory(directory.path()).unwrap();
    let client = Visitor::of(site.with_precompressed(false));
    let response = client.request("GET", "/a.css", &["Accept-Encoding: br"]);
    assert_eq!((response.text(), response.header("vary")), ("plain", None));
}
