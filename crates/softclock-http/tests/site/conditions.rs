//! Single ranges, and preconditions.

use softclock_http::Site;

use crate::visitor::{Visitor, directory};

#[test]
fn ranges() {
    let directory = directory(&[("digits", b"0123456789")]);
    let client = Visitor::of(Site::directory(directory.path()).unwrap());
    for (range, part, content_range) in [
        ("0-3", "0123", "bytes 0-3/10"),
        ("8-", "89", "bytes 8-9/10"),
        ("-3", "789", "bytes 7-9/10"),
        ("5-99", "56789", "bytes 5-9/10"),
    ] {
        let response = client.request("GET", "/digits", &[&format!("Range: bytes={range}")]);
        assert_eq!((response.status, response.text()), (206, part), "{range}");
        assert_eq!(
            response.header("content-range"),
            Some(content_range),
            "{range}"
        );
        assert_eq!(response.header("accept-ranges"), Some("bytes"));
    }
    for range in ["10-", "-0"] {
        let response = client.request("GET", "/digits", &[&format!("Range: bytes={range}")]);
        assert_eq!(
            (response.status, response.header("content-range")),
            (416, Some("bytes */10"))
        );
    }
    for whole in ["bytes=3-1", "bytes=x", "lines=1-2", "bytes=0-1,3-4"] {
        let response = client.request("GET", "/digits", &[&format!("Range: {whole}")]);
        assert_eq!(
            (response.status, response.text()),
            (200, "0123456789"),
            "{whole}"
        );
    }
    assert_eq!(
        client
            .request("HEAD", "/digits", &["Range: bytes=0-1"])
            .status,
        200
    );
}

#[test]
fn conditions() {
    let directory = directory(&[("f", b"content")]);
    let client = Visitor::of(Site::directory(directory.path()).unwrap());
    let first = client.get("/f");
    let tag = first.header("etag").unwrap();
    let date = first.header("last-modified").unwrap();
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (fields, status) in [
        (vec![format!("If-None-Match: {tag}")], 304),
        (vec![format!("If-None-Match: \"x\", W/{tag}")], 304),
        (vec!["If-None-Match: \"x\"".into()], 200),
        (vec![format!("If-Modified-Since: {date}")], 304),
        (vec![format!("If-Modified-Since: {past}")], 200),
        (vec![format!("If-Match: {tag}")], 200),
        (vec!["If-Match: *".into()], 200),
        (vec!["If-Match: \"x\"".into()], 412),
        (vec![format!("If-Unmodified-Since: {past}")], 412),
        (vec![format!("If-Unmodified-Since: {date}")], 200),
        (
            vec![
                "If-None-Match: \"x\"".into(),
                format!("If-Modified-Since: {date}"),
            ],
            200,
        ),
        (
            vec![format!("If-Match: {tag}"), format!("If-None-Match: {tag}")],
            304,
        ),
        (
            vec!["Range: bytes=0-0".into(), format!("If-Range: {tag}")],
            206,
        ),
        (
            vec!["Range: bytes=0-0".into(), "If-Range: \"x\"".into()],
            200,
        ),
        (
            vec!["Range: bytes=0-0".into(), format!("If-Range: {past}")],
            200,
        ),
        (
            vec!["Range: bytes=0-0".into(), format!("If-None-Match: {tag}")],
            304,
        ),
        (
            vec!["Range: bytes=99-".into(), "If-Match: \"x\"".into()],
            412,
        ),
    ] {
        let lines: Vec<_> = fields.iter().map(String::as_str).collect();
        let response = client.request("GET", "/f", &lines);
        assert_eq!(response.status, status, "{fields:?}");
        if status == 304 {
            assert_eq!(response.header("etag"), Some(tag));
            assert_eq!(response.header("content-type"), None);
        }
    }
    assert_eq!(client.request("GET", "/none", &["If-Match: *"]).status, 404);
}
