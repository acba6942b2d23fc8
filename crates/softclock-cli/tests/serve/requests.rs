//! Methods, ranges of large files, and persistent connections.

use crate::server::{Server, directory, noise};

#[test]
fn ranges_of_large_files() {
    let content = noise(1_000_000);
    let directory = directory(&[("big", &content)]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    for (first, last) in [
        (0, 99_999),
        (65_535, 65_536),
        (1, 999_999),
        (123_456, 654_321),
    ] {
        let response = client.request("GET", "/big", &[&format!("Range: bytes={first}-{last}")]);
        let status = (response.status, &*response.reason);
        assert_eq!(status, (206, "Partial Content"));
        assert!(response.body == content[first..=last], "{first}-{last}");
    }
}

#[test]
fn other_methods() {
    let directory = directory(&[("f", b"content")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let response = client.request(method, "/f", &["Content-Length: 0"]);
        assert_eq!(
            (response.status, response.header("allow")),
            (405, Some("GET, HEAD, OPTIONS"))
        );
    }
    for target in ["/f", "*"] {
        let options = client.request("OPTIONS", target, &[]);
        assert_eq!(
            (options.status, options.header("allow")),
            (204, Some("GET, HEAD, OPTIONS"))
        );
    }
    let with_body = client.request("POST", "/f", &["Content-Length: 5", "", "hello"]);
    assert_eq!(with_body.status, 405);
}

#[test]
fn host_is_required_once() {
    let server = Server::start(None, &[]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 200),
        ("GET http://a/style.css HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        assert_eq!(client.response("GET").status, status, "{request:?}");
    }
}

#[test]
fn connections_stay_unless_told_otherwise() {
    let server = Server::start(None, &[]);
    let mut client = server.connect();
    assert_eq!(
        client.request("GET", "/", &["Connection: close"]).status,
        200
    );
    assert!(client.rest().is_empty());
    let mut old = server.connect();
    old.send(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(old.response("GET").status, 200);
    assert!(old.rest().is_empty());
}

#[test]
fn a_thousand_requests_on_one_connection() {
    let files: &[(&str, &[u8])] = &[("a", b"first"), ("b", &[7; 100_000])];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    for _ in 0..500 {
        assert_eq!(client.get("/a").text(), "first");
        assert_eq!(client.get("/b").body.len(), 100_000);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let content = noise(6_000);
    let files: &[(&str, &[u8])] = &[("a", b"first"), ("b", &content)];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let two = "GET /a HTTP/1.1\r\nHost: t\r\n\r\nHEAD /b HTTP/1.1\r\nHost: t\r\n\r\n";
    let third = "GET /b HTTP/1.1\r\nHost: t\r\n\r\n";
    client.send(format!("{two}{third}").repeat(100).as_bytes());
    for _ in 0..100 {
        assert_eq!(client.response("GET").text(), "first");
        assert_eq!(
            client.response("HEAD").header("content-length"),
            Some("6000")
        );
        assert!(client.response("GET").body == content);
    }
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answer() {
    let content = noise(500_000);
    let directory = directory(&[("big", &content)]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    client.close_sending();
    assert!(client.response("GET").body == content);
    assert!(client.rest().is_empty());
}

#[test]
fn several_addresses_and_threads() {
    let directory = directory(&[("f", b"content")]);
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--threads",
        "2",
    ];
    let server = Server::start(Some(directory.path()), &options);
    assert_eq!(server.addresses().len(), 3);
    for &address in server.addresses() {
        for _ in 0..8 {
            assert_eq!(
                crate::client::Client::connect(address).get("/f").text(),
                "content"
            );
        }
    }
}
