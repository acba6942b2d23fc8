//! Ends of programs: tokens that cancel tasks, and servers that end their connections.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;

use tokio_util::sync::CancellationToken;

use crate::{LIMIT, MS, run};

#[test]
fn tokio_util_cancellation_token() {
    run(async {
        let token = CancellationToken::new();
        let ended = Rc::new(Cell::new(0));
        let mut tasks = softclock::JoinSet::new();
        for _ in 0..3 {
            let (token, ended) = (token.child_token(), ended.clone());
            tasks.spawn_local(async move {
                tokio::select! {
                    () = token.cancelled() => ended.set(ended.get() + 1),
                    () = softclock::sleep(LIMIT) => panic!("not cancelled"),
                }
            });
        }
        let unfinished = token.run_until_cancelled(softclock::sleep(MS)).await;
        assert_eq!(unfinished, Some(()), "nothing is cancelled yet");
        // From another thread, as a handler of signals would.
        thread::spawn(move || token.cancel());
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
        assert_eq!(ended.get(), 3);
    });
}

#[cfg(feature = "hyper")]
mod graceful {
    use std::convert::Infallible;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::server::graceful::GracefulShutdown;
    use softclock::net::{TcpListener, TcpStream};

    use super::{LIMIT, MS, run};

    async fn answer(
        _: Request<hyper::body::Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        softclock::sleep(20 * MS).await;
        Ok(Response::new(Full::from("done")))
    }

    /// A client's end of a connection, and the server's.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (client, server)
    }

    /// A shutdown during a request waits for its response, and ends the connection behind it.
    #[test]
    fn hyper_util_graceful_shutdown() {
        run(async {
            let (client, stream) = connection().await;
            let graceful = GracefulShutdown::new();
            let connection = http1::Builder::new()
                .timer(softclock::hyper::SoftTimer)
                .serve_connection(stream, service_fn(answer));
            let served = softclock::spawn_local(graceful.watch(connection));
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                .await
                .unwrap();
            softclock::sleep(5 * MS).await;

            let ended = softclock::timeout(LIMIT, graceful.shutdown()).await;
            assert!(ended.is_ok());
            served.await.unwrap();
            let mut response = Vec::new();
            loop {
                let mut buffer = [0; 1024];
                match client.read(&mut buffer).await.unwrap() {
                    0 => break,
                    length => response.extend_from_slice(&buffer[..length]),
                }
            }
            let response = String::from_utf8(response).unwrap();
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            assert!(response.ends_with("done"), "{response}");
        });
    }

    /// A client that has its response may reset the connection: the server ends it without an error.
    #[test]
    fn hyper_ends_a_reset_connection() {
        run(async {
            let (client, stream) = connection().await;
            let connection = http1::Builder::new()
                .timer(softclock::hyper::SoftTimer)
                .serve_connection(stream, service_fn(answer));
            let mut connection = pin!(connection);
            let request = async {
                let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
                client.write_all(request).await.unwrap();
                let (mut response, mut buffer) = (Vec::new(), [0; 1024]);
                while !response.ends_with(b"done") {
                    let length = client.read(&mut buffer).await.unwrap();
                    assert!(length > 0, "the response ends early");
                    response.extend_from_slice(&buffer[..length]);
                }
            };
            let serve = async {
                let ended = connection.as_mut().await;
                panic!("it ends before its client: {ended:?}");
            };
            futures_lite::future::or(request, serve).await;
            client.set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            connection.as_mut().graceful_shutdown();
            let ended = softclock::timeout(LIMIT, connection).await;
            ended.unwrap().unwrap();
        });
    }

    /// A client that does not complete the head of its request is given up when the time for it is over.
    #[test]
    fn hyper_ends_an_unfinished_head_in_time() {
        run(async {
            let (client, stream) = connection().await;
            let began = softclock::now();
            let connection = http1::Builder::new()
                .timer(softclock::hyper::SoftTimer)
                .header_read_timeout(20 * MS)
                .serve_connection(stream, service_fn(answer));
            client.write_all(b"GET / HT").await.unwrap();
            let ended = softclock::timeout(LIMIT, connection).await.unwrap();
            assert!(ended.unwrap_err().is_timeout());
            assert!(softclock::now().since(began) >= 20 * MS, "ended early");
        });
    }
}
