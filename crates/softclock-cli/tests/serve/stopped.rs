//! A server that was stopped for longer than its timeouts, while its clients were not late.

use std::thread::sleep;
use std::time::Duration;

use crate::client::Client;
use crate::server::{Server, directory, mechanisms};

/// Timeout of each phase of a request.
const LIMIT: Duration = Duration::from_millis(500);

/// The bytes that a client has sent before the server is stopped, and those that it sends meanwhile.
const REQUESTS: [(&str, &str); 4] = [
    ("", "GET /f HTTP/1.1\r\nHost: t\r\n\r\n"),
    ("GET /f HTT", "P/1.1\r\nHost: t\r\n\r\n"),
    ("GET /f HTTP/1.1\r\nHost: t\r\n", "\r\n"),
    (
        "GET /f HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nb",
        "odyGET /f HTTP/1.1\r\nHost: t\r\n\r\n",
    ),
];

#[test]
fn requests_that_came_during_a_stop_are_answered() {
    let directory = directory(&[("f", b"content")]);
    for mechanism in mechanisms() {
        let mut options = vec!["--events", mechanism];
        for phase in ["first-byte", "head", "body", "idle"] {
            let option = format!("--{phase}-timeout=0.5");
            options.push(Box::leak(option.into_boxed_str()));
        }
        let server = Server::start(Some(directory.path()), &options);
        // Connections with an earlier request, and new ones; more than one call to the kernel returns.
        let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for client in clients.iter_mut().take(50) {
            assert_eq!(client.get("/f").text(), "content");
        }
        let requests = || (0..100).map(|client| REQUESTS[client % REQUESTS.len()]);
        for (client, (before, _)) in clients.iter_mut().zip(requests()) {
            client.send(before.as_bytes());
        }
        sleep(LIMIT / 5);
        server.while_stopped(|| {
            sleep(2 * LIMIT);
            for (client, (_, meanwhile)) in clients.iter_mut().zip(requests()) {
                client.send(meanwhile.as_bytes());
            }
            sleep(LIMIT);
        });
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.response("GET");
            assert_eq!(response.status, 200, "{mechanism}, client {number}");
        }
    }
}

/// Late heads are still answered, with 408.
#[test]
fn heads_that_did_not_come_are_answered_408() {
    let server = Server::start(None, &["--head-timeout", "0.5"]);
    let mut client: Client = server.connect();
    client.send(b"GET / HTTP/1.1\r\n");
    sleep(LIMIT / 5);
    server.while_stopped(|| sleep(2 * LIMIT));
    assert_eq!(client.response("GET").status, 408);
}
