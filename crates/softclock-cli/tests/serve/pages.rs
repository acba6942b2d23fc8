//! Listings, error pages and header fields by rule.

use std::os::unix::fs::symlink;

use crate::server::{Server, directory, softclock};

const FILES: &[(&str, &[u8])] = &[
    ("errors/404.html", b"<p>custom</p>"),
    ("errors/big.html", &[b'b'; 300_000]),
    ("assets/app.js", b"js"),
    ("list/<a&b>.txt", b"12345"),
    ("list/.hidden", b""),
    ("list/sub/x", b""),
];

#[test]
fn listing() {
    let directory = directory(FILES);
    symlink("/etc", directory.path().join("list/outside")).unwrap();
    let off = Server::start(Some(directory.path()), &[]);
    assert_eq!(off.connect().get("/list/").status, 404);
    let server = Server::start(Some(directory.path()), &["--listing"]);
    let mut client = server.connect();
    let page = client.request("GET", "/list/", &["Range: bytes=0-1"]);
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("etag"), None);
    assert_eq!(page.header("accept-ranges"), None);
    let text = page.text();
    assert!(
        text.contains("<a href=\"./%3Ca%26b%3E.txt\">&lt;a&amp;b&gt;.txt</a>"),
        "{text}"
    );
    assert!(text.contains("<a href=\"./sub/\">sub/</a>") && text.contains("href=\"../\""));
    assert!(!text.contains("hidden") && !text.contains("outside"));
    assert_eq!(client.get("/list/%3Ca%26b%3E.txt").text(), "12345");
    let head = client.request("HEAD", "/list/", &[]);
    assert_eq!(head.header("content-length"), page.header("content-length"));
    assert!(!client.get("/").text().contains("href=\"../\""));
    assert_eq!(client.get("/list").status, 301);
    assert_eq!(client.get("/none/").status, 404);
    assert_eq!(client.get("/assets/app.js/").status, 404);
    assert_eq!(client.get("/list/../").status, 400);
    assert_eq!(client.get("/list/outside/").status, 403);
    assert_eq!(
        client
            .request("POST", "/list/", &["Content-Length: 0"])
            .status,
        405
    );
}

#[test]
fn error_pages() {
    let directory = directory(FILES);
    let options = [
        "--error-page=404=/errors/404.html",
        "--error-page=416=/errors/none.html",
        "--error-page=405=/errors/big.html",
    ];
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    for _ in 0..2 {
        for target in ["/none", "/.hidden", "/none/"] {
            let page = client.get(target);
            assert_eq!(
                (page.status, page.text()),
                (404, "<p>custom</p>"),
                "{target}"
            );
            assert_eq!(
                page.header("content-type"),
                Some("text/html; charset=utf-8")
            );
            assert_eq!(page.header("etag"), None);
            let head = client.request("HEAD", target, &[]);
            assert_eq!(head.undated_headers(), page.undated_headers());
        }
        let conditional = client.request("GET", "/none", &["If-None-Match: *", "Range: bytes=0-1"]);
        assert_eq!(
            (conditional.status, conditional.text()),
            (404, "<p>custom</p>")
        );
        let built_in = client.request("GET", "/assets/app.js", &["Range: bytes=9-"]);
        assert_eq!(built_in.status, 416);
        assert!(built_in.text().starts_with("416 ") && built_in.header("content-range").is_some());
        let big = client.request("DELETE", "/assets/app.js", &["Content-Length: 0"]);
        assert_eq!((big.status, big.body.len()), (405, 300_000));
        assert_eq!(big.header("allow"), Some("GET, HEAD, OPTIONS"));
    }
    assert_eq!(client.get("/errors/404.html").status, 200);
}

#[test]
fn header_fields_by_rule() {
    let directory = directory(FILES);
    let options = [
        "--header=*=X-Frame-Options: DENY",
        "--header=/assets/*=Cache-Control: max-age=31536000, immutable",
        "--header=/assets/*=X-A: 1",
        "--header=*.html=Server:",
    ];
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    for _ in 0..2 {
        let script = client.get("/assets/app.js");
        assert_eq!(script.header("x-frame-options"), Some("DENY"));
        assert_eq!(
            script.header("cache-control"),
            Some("max-age=31536000, immutable")
        );
        assert_eq!(script.header("server"), Some("softclock"));
        let tag = format!("If-None-Match: {}", script.header("etag").unwrap());
        let same = client.request("GET", "/assets/app.js", &[&tag]);
        assert_eq!(
            (same.status, same.header("x-frame-options")),
            (304, Some("DENY"))
        );
        assert!(same.header("cache-control").is_some());
        let missing = client.get("/assets/none");
        assert_eq!(
            (missing.status, missing.header("x-frame-options")),
            (404, Some("DENY"))
        );
        assert_eq!(
            missing.header("cache-control"),
            None,
            "a mistake is not kept"
        );
        let page = client.get("/errors/404.html");
        assert_eq!(
            (page.header("server"), page.header("cache-control")),
            (None, None)
        );
        for (target, field) in [("/assets/app.js", Some("1")), ("/errors/404.html", None)] {
            let options = client.request("OPTIONS", target, &[]);
            assert_eq!(options.header("x-a"), field, "{target}");
        }
    }
}

#[test]
fn rules_that_are_refused() {
    for (option, part) in [
        ("--header=*=Content-Length: 1", "only the server"),
        ("--header=*=Transfer-Encoding: chunked", "only the server"),
        ("--header=*=X: a\u{1}b", "control characters"),
        ("--header=nonsense", "PATTERN=Name: value"),
        ("--error-page=200=/x", "400 to 599"),
        ("--cache=many", "64M"),
    ] {
        let output = softclock().args(["serve", option]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.lines().count() == 1 && text.contains(part), "{text}");
    }
}
