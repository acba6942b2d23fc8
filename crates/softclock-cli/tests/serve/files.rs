//! Responses of a site: contents and header fields.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::server::{Server, directory};

#[test]
fn bundled_site() {
    let server = Server::start(None, &[]);
    let mut client = server.connect();
    let page = client.get("/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("softclock is serving"));
    assert_eq!(
        client.get("/style.css").header("content-type"),
        Some("text/css; charset=utf-8")
    );
    assert_eq!(
        client.get("/clock.svg").header("content-type"),
        Some("image/svg+xml")
    );
    let etag = format!("If-None-Match: {}", page.header("etag").unwrap());
    assert_eq!(client.request("GET", "/index.html", &[&etag]).status, 304);
    assert_eq!(
        client.request("GET", "/", &["Range: bytes=0-14"]).text(),
        "<!doctype html>"
    );
    assert_eq!(client.get("/x").status, 404);
}

#[test]
fn header_fields_of_a_file() {
    let directory = directory(&[("a.html", b"<p>a</p>")]);
    let file = File::options()
        .write(true)
        .open(directory.path().join("a.html"))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
        .unwrap();
    let server = Server::start(Some(directory.path()), &[]);
    let response = server.connect().get("/a.html");
    assert_eq!((response.status, response.text()), (200, "<p>a</p>"));
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "8"),
        ("accept-ranges", "bytes"),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("server", "softclock"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    assert!(response.header("date").unwrap().ends_with(" GMT"));
    let etag = response.header("etag").unwrap();
    assert!(etag.starts_with("\"8-") && etag.ends_with('"'), "{etag}");
}

#[test]
fn head_differs_from_get_only_in_the_body() {
    let files: &[(&str, &[u8])] = &[
        ("a.txt", b"text"),
        ("big", &[1; 300_000]),
        ("d/index.html", b"d"),
    ];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    for target in [
        "/a.txt",
        "/big",
        "/d/",
        "/d",
        "/missing",
        "/%2e%2e/",
        "/d/missing/",
    ] {
        let get = client.get(target);
        let head = client.request("HEAD", target, &[]);
        assert_eq!(get.status, head.status, "{target}");
        assert_eq!(get.undated_headers(), head.undated_headers(), "{target}");
        assert!(!get.body.is_empty());
    }
}

#[test]
fn index_files_and_the_missing_slash() {
    let files: &[(&str, &[u8])] = &[
        ("start.htm", b"top"),
        ("sub/start.htm", b"sub"),
        ("a b/start.htm", b""),
        ("none/x", b""),
    ];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &["--index", "start.htm"]);
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "top");
    assert_eq!(client.get("/sub/").text(), "sub");
    assert_eq!(client.get("//sub//").text(), "sub");
    for (target, location) in [
        ("/sub", "./sub/"),
        ("/sub?a=b&c", "./sub/?a=b&c"),
        ("/a%20b", "./a%20b/"),
        ("//sub", "./sub/"),
    ] {
        let redirect = client.get(target);
        assert_eq!(
            (redirect.status, redirect.header("location")),
            (301, Some(location)),
            "{target}"
        );
    }
    assert_eq!(client.get("/none/").status, 404);
    assert_eq!(client.get("/start.htm/").status, 404);
}

#[test]
fn empty_files_and_odd_names() {
    let files: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("a%2e b?#\\é.txt", b"odd"),
        (".hidden", b"h"),
        (".well-known/x", b"w"),
    ];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let empty = client.get("/empty");
    assert_eq!(
        (empty.status, empty.header("content-length")),
        (200, Some("0"))
    );
    assert_eq!(
        client.request("GET", "/empty", &["Range: bytes=0-"]).status,
        416
    );
    assert_eq!(client.get("/a%252e%20b%3F%23%5C%C3%A9.txt").text(), "odd");
    assert_eq!(client.get("/.hidden").status, 404);
    assert_eq!(client.get("/.well-known/x").text(), "w");
}

#[test]
fn symbolic_links_inside_and_outside() {
    let outside = directory(&[("secret", b"secret")]);
    let files: &[(&str, &[u8])] = &[("real/file", b"real"), ("real/index.html", b"index")];
    let directory = directory(files);
    let link = |target: &str, name: &str| symlink(target, directory.path().join(name)).unwrap();
    link("real/file", "inside");
    link("real", "inside-directory");
    link("../inside", "real/up-and-down");
    link(outside.path().join("secret").to_str().unwrap(), "absolute");
    link(outside.path().to_str().unwrap(), "absolute-directory");
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    link(&format!("../{name}/secret"), "relative");
    link("loop", "loop");
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/inside").text(), "real");
    assert_eq!(client.get("/real/up-and-down").text(), "real");
    assert_eq!(client.get("/inside-directory/").text(), "index");
    assert_eq!(
        client.get("/inside-directory").header("location"),
        Some("./inside-directory/")
    );
    for target in [
        "/absolute",
        "/absolute-directory",
        "/absolute-directory/secret",
        "/relative",
    ] {
        let refused = client.get(target);
        assert_eq!(refused.status, 403, "{target}");
        assert!(!refused.text().contains("secret"));
    }
    assert_eq!(client.get("/loop").status, 404);
}

#[test]
fn a_changed_file_is_served_anew() {
    let directory = directory(&[("f", b"old")]);
    let server = Server::start(Some(directory.path()), &["--cache", "0"]);
    let mut client = server.connect();
    let old = client.get("/f");
    fs::write(directory.path().join("g"), "new").unwrap();
    fs::rename(directory.path().join("g"), directory.path().join("f")).unwrap();
    let condition = format!("If-None-Match: {}", old.header("etag").unwrap());
    let new = client.request("GET", "/f", &[&condition]);
    assert_eq!((new.status, new.text()), (200, "new"));
}

#[test]
fn curl_gets_files_and_follows_redirects() {
    softclock_testing::require!("curl");
    let directory = directory(&[("sub/index.html", b"hello")]);
    let server = Server::start(Some(directory.path()), &[]);
    let url = format!("http://{}/sub?q", server.address());
    let output = Command::new("curl")
        .args(["-sSLf", "-w", " %{url_effective}", &url])
        .output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(output, format!("hello http://{}/sub/?q", server.address()));
}
