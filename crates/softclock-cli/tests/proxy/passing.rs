//! Requests and responses pass completely, with any framing.

use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::own_stack;
use crate::server::{Server, directory, noise, softclock};
use crate::upstream::{Upstream, proxy};

#[test]
fn connections_are_kept_and_bodies_pass() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.request() {
            let head = format!(
                "HTTP/1.1 201 Made\r\nContent-Length: {}\r\nX-Own: 1\r\n\r\n",
                request.body.len()
            );
            connection.send(&[head.as_bytes(), &request.body].concat());
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for body in ["first", "second"] {
        let request = format!(
            "POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.send(request.as_bytes());
        let reply = client.reply("POST");
        assert_eq!((reply.status, &*reply.reason), (201, "Made"));
        assert_eq!(reply.text(), body);
        assert_eq!(
            (reply.header("x-own"), reply.header("via")),
            (Some("1"), Some("1.1 softclock"))
        );
    }
    let mut other = proxy.connect();
    assert_eq!(other.ask("GET", "/", &[]).status, 201);
    assert_eq!(upstream.connections(), 1);
    assert_eq!(upstream.seen()[0].line, "POST /a?b=c HTTP/1.1");
}

#[test]
fn large_bodies_pass_both_ways() {
    let content = noise(8_000_000);
    let directory = directory(&[("big", &content)]);
    let site = Server::start(Some(directory.path()), &[]);
    let proxy_of_site = proxy(
        &[&format!("http://{}", site.address())],
        &["--threads", "2"],
    );
    let reply = proxy_of_site.connect().ask("GET", "/big", &[]);
    assert!(reply.is_complete && reply.body == content);
    let part = proxy_of_site
        .connect()
        .ask("GET", "/big", &["Range: bytes=5-9"]);
    assert_eq!((part.status, &part.body[..]), (206, &content[5..10]));

    let upstream = Upstream::saying("got it");
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    client.send(
        format!(
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            content.len()
        )
        .as_bytes(),
    );
    client.send(&content);
    assert_eq!(client.reply("PUT").text(), "got it");
    assert!(upstream.seen()[0].body == content);
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-No\r\n\r\n\
         5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    client.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: te\r\nTrailer: X-Up\r\n\
          Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Up: 9\r\n\r\n",
    );
    let reply = client.reply("POST");
    assert_eq!(reply.text(), "hello world");
    assert_eq!(reply.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    let seen = &upstream.seen()[0];
    assert_eq!(
        (&seen.body[..], seen.header("te")),
        (&b"abc"[..], Some("trailers"))
    );
    assert_eq!(seen.trailers, [("x-up".to_owned(), "9".to_owned())]);
    assert_eq!(client.ask("GET", "/", &[]).text(), "hello world");
    assert_eq!(upstream.connections(), 1, "the connection was kept");
}

#[test]
fn trailers_that_may_be_none_are_dropped() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Keep-Alive, Via, Set-Cookie\r\n\r\n\
         2\r\nok\r\n0\r\nKeep-Alive: 5\r\nX-Sum: 7\r\nVia: me\r\nSet-Cookie: a=b\r\n\r\n",
    );
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.ask("GET", "/", &["TE: trailers", "Connection: te"]);
        assert_eq!(reply.text(), "ok");
        assert_eq!(reply.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    }
}

#[test]
fn what_an_upstream_calls_a_status_stays() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.request() {
            let status = request
                .line
                .split(['/', ' '])
                .nth(2)
                .unwrap()
                .replace('_', " ");
            connection.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for (said, line) in [
        ("200_OK", "HTTP/1.1 200 OK"),
        ("200_Fine", "HTTP/1.1 200 Fine"),
        ("404_", "HTTP/1.1 404 "),
        ("520_Web_server_error", "HTTP/1.1 520 Web server error"),
        ("520_", "HTTP/1.1 520 "),
        ("520", "HTTP/1.1 520 "),
    ] {
        client.send(format!("GET /{said} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(client.line(), line);
        while !client.line().is_empty() {}
    }
}

#[test]
fn responses_without_bodies() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.request() {
            let response: &[u8] = match request.line.split(' ').nth(1).unwrap() {
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
                "/1xx" => {
                    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                }
                _ => b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
            };
            connection.send(response);
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    let head = client.ask("HEAD", "/", &[]);
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("77"))
    );
    assert_eq!(client.ask("GET", "/204", &[]).status, 204);
    let same = client.ask("GET", "/304", &[]);
    assert_eq!((same.status, same.header("etag")), (304, Some("\"x\"")));
    assert_eq!(client.ask("GET", "/1xx", &[]).text(), "ok");
    assert_eq!(upstream.connections(), 1);
}

/// The content behind a 204 comes late, when its connection could be in use for another client.
#[test]
fn content_behind_a_204_reaches_no_other_request() {
    for head in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let upstream = Upstream::start(move |connection| {
            while let Some(request) = connection.request() {
                let none = request.line.starts_with("GET /204 ");
                if !none {
                    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    continue;
                }
                connection.send(format!("HTTP/1.1 204 No Content\r\n{head}\r\n\r\n").as_bytes());
                std::thread::sleep(Duration::from_millis(20));
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            }
        });
        let proxy = proxy(&[&upstream.url()], &[]);
        let mut client = proxy.connect();
        for _ in 0..10 {
            let reply = client.ask("GET", "/204", &[]);
            let told = (
                reply.header("content-length"),
                reply.header("transfer-encoding"),
            );
            assert_eq!((reply.status, told), (204, (None, None)));
            assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
        }
    }
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let upstream = Upstream::saying("got it");
    let up = proxy(&[&upstream.url()], &[]);
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let mut client = up.connect();
    client.send(head);
    assert_eq!(client.head().status, 100);
    client.send(b"ok");
    assert_eq!(client.reply("POST").text(), "got it");
    assert_eq!(upstream.seen()[0].header("expect"), None);
    // No upstream takes the body, so the client need not send it.
    let down = proxy(&["http://127.0.0.1:1"], &[]);
    let mut client = down.connect();
    client.send(head);
    assert_eq!(client.reply("POST").status, 502);
}

#[test]
fn bodies_that_end_with_the_connection() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.0 200 OK\r\n\r\nall of it");
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.ask("GET", "/", &[]);
        assert_eq!(
            (reply.text(), reply.header("transfer-encoding")),
            ("all of it", Some("chunked"))
        );
        assert!(reply.is_complete);
    }
    let mut old = proxy.connect();
    old.send(b"GET / HTTP/1.0\r\n\r\n");
    let reply = old.reply("GET");
    assert_eq!(
        (reply.text(), reply.header("transfer-encoding")),
        ("all of it", None)
    );
}

#[test]
fn an_upload_goes_on_while_its_response_is_not_read() {
    let content = noise(6_000_000);
    let expected = content.clone();
    let upstream = Upstream::start(move |connection| {
        connection.head();
        connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        // More than fits into buffers on the way, so the other side has to be read for this to end.
        let mut upload = vec![0; expected.len()];
        let mut filled = 0;
        while filled < upload.len() {
            match connection.read(&mut upload[filled..]) {
                0 => break,
                n => filled += n,
            }
        }
        connection.send(if upload == expected {
            b"same"
        } else {
            b"different"
        });
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    client.send(
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            content.len()
        )
        .as_bytes(),
    );
    client.send(&content);
    assert_eq!(client.reply("POST").text(), "same");
}

#[test]
fn unix_sockets_names_and_prefixes() {
    let directory = directory(&[("pre/fix/f", b"found")]);
    let socket = directory.path().join("socket");
    let site = Server::spawn(
        softclock()
            .args(["serve", "--listen", "127.0.0.1:0", "--listen"])
            .arg(format!("unix:{}", socket.display()))
            .arg(directory.path()),
    );
    let unix = proxy(&[&format!("unix:{}", socket.display())], &[]);
    assert_eq!(unix.connect().ask("GET", "/pre/fix/f", &[]).text(), "found");
    // The name may resolve to ::1 first, where no server listens. A device has no name.
    let host = match own_stack::is_chosen() {
        true => site.address().ip().to_string(),
        false => "localhost".into(),
    };
    let name = format!("http://{host}:{}/pre/fix/", site.address().port());
    let named = proxy(&[&name], &[]);
    assert_eq!(named.connect().ask("GET", "/f", &[]).text(), "found");
}

#[test]
fn paths_do_not_lead_out_of_a_prefix() {
    let upstream = Upstream::saying("x");
    let below = proxy(&[&format!("{}/p", upstream.url())], &[]);
    for path in [
        "/../x",
        "/a/../../x",
        "/%2e%2E/x",
        "/..%2fx",
        "/..;/x",
        "/..",
    ] {
        let reply = below.connect().ask("GET", path, &[]);
        assert_eq!(reply.status, 400, "{path}");
    }
    assert_eq!(upstream.connections(), 0);
    assert_eq!(below.connect().ask("GET", "/a..b?/../c", &[]).text(), "x");
    assert_eq!(upstream.seen()[0].line, "GET /p/a..b?/../c HTTP/1.1");
    // Without one, its meaning is up to the upstream.
    let bare = proxy(&[&upstream.url()], &[]);
    assert_eq!(bare.connect().ask("GET", "/a/../x", &[]).text(), "x");
    assert_eq!(upstream.seen()[1].line, "GET /a/../x HTTP/1.1");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.request() {
            let path = request.line.split(' ').nth(1).unwrap();
            connection.send(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                    path.len()
                )
                .as_bytes(),
            );
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    let requests: String = (0..50)
        .map(|i| format!("GET /{i} HTTP/1.1\r\nHost: h\r\n\r\n"))
        .collect();
    client.send(requests.as_bytes());
    for i in 0..50 {
        assert_eq!(client.reply("GET").text(), format!("/{i}"));
    }
}

#[test]
fn mistakes_are_one_line_and_an_exit_code() {
    let run = |arguments: &[&str]| {
        let mut command: Command = softclock();
        let output = command.arg("proxy").args(arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && told.lines().count() == 1,
            "{told}"
        );
        told
    };
    assert!(run(&[]).contains("--upstream"));
    assert!(run(&["--upstream", "localhost:80"]).contains("write http://localhost:80"));
    assert!(
        run(&["--upstream", "http://no.such.name.invalid"]).contains("cannot find the upstream")
    );
    let directory = directory(&[("c.toml", b"upstream = [\"http://a\",\n\"ftp://b\"]")]);
    let file = directory.path().join("c.toml");
    assert!(run(&["--config", file.to_str().unwrap()]).contains("c.toml:1:"));
    std::fs::write(&file, "listen = \":1\"").unwrap();
    assert!(run(&["--config", file.to_str().unwrap()]).contains("no upstream; write upstream = "));
}

#[test]
fn refusals_are_those_of_a_server() {
    let upstream = Upstream::saying("x");
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut smuggler = proxy.connect();
    smuggler.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG");
    assert_eq!(smuggler.reply("POST").status, 400);
    let mut tunneller = Client::connect(proxy.address());
    tunneller.send(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n");
    assert_eq!(tunneller.reply("GET").status, 501);
    assert_eq!(upstream.connections(), 0);
}
