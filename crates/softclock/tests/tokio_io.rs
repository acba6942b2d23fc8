//! Crates written for tokio's I/O traits run on softclock's sockets, without a runtime of tokio.
#![cfg(feature = "tokio-io")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream as StdUnix;

use softclock::Runtime;
use softclock::net::{TcpListener, TcpStream, UnixStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(address).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap());
    let ours = ours.await.unwrap();
    (ours, listener.accept().await.unwrap().0)
}

fn unix_pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = StdUnix::pair().unwrap();
    let adopt = |stream| UnixStream::from_std(stream).unwrap();
    (adopt(ours), adopt(theirs))
}

/// A relay between a TCP and a Unix connection: each direction ends by itself, and both are counted.
#[test]
fn a_relay_copies_both_directions() {
    Runtime::new().unwrap().block_on(async {
        let (mut client, mut front) = tcp_pair().await;
        let (mut back, mut server) = unix_pair();
        let relay = softclock::spawn_local(async move {
            copy_bidirectional(&mut front, &mut back).await.unwrap()
        });
        let echo = softclock::spawn_local(async move {
            let mut request = Vec::new();
            server.read_to_end(&mut request).await.unwrap();
            request.reverse();
            server.write_all(&request).await.unwrap();
            AsyncWriteExt::shutdown(&mut server).await.unwrap();
            request.len()
        });
        let request: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[1]).collect();
        AsyncWriteExt::write_all(&mut client, &request)
            .await
            .unwrap();
        AsyncWriteExt::shutdown(&mut client).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer.reverse();
        assert!(answer == request);
        let length = request.len() as u64;
        assert_eq!(relay.await, (length, length));
        assert_eq!(echo.await as u64, length);
    });
}

/// References are streams, too, so that one task reads while another writes.
#[test]
fn lines_are_read_while_others_are_written() {
    Runtime::new().unwrap().block_on(async {
        let (ours, theirs) = tcp_pair().await;
        let echo = softclock::spawn_local(async move {
            let mut source = BufReader::new(&theirs);
            let copied = tokio::io::copy_buf(&mut source, &mut &theirs)
                .await
                .unwrap();
            AsyncWriteExt::shutdown(&mut &theirs).await.unwrap();
            copied
        });
        let text: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let write = async {
            AsyncWriteExt::write_all(&mut &ours, text.as_bytes())
                .await
                .unwrap();
            AsyncWriteExt::shutdown(&mut &ours).await.unwrap();
        };
        let read = async {
            let mut lines = BufReader::new(&ours).lines();
            let mut count = 0;
            while let Some(line) = lines.next_line().await.unwrap() {
                assert_eq!(line, format!("line {count}"));
                count += 1;
            }
            count
        };
        let ((), count) = tokio::join!(write, read);
        assert_eq!(count, 10_000);
        assert_eq!(echo.await, text.len() as u64);
    });
}

/// Memory that is not initialised is filled as well, and a buffer keeps its content.
#[test]
fn a_growing_buffer_is_filled() {
    Runtime::new().unwrap().block_on(async {
        let (mut ours, theirs) = unix_pair();
        theirs.write_all(b"and more").await.unwrap();
        let mut buffer = b"first ".to_vec();
        buffer.reserve(100);
        assert_eq!(ours.read_buf(&mut buffer).await.unwrap(), 8);
        assert_eq!(buffer, b"first and more");
        drop(theirs);
        assert_eq!(ours.read_buf(&mut buffer).await.unwrap(), 0);
    });
}

/// tokio's streams are shut down without an error when the connection has ended.
#[test]
fn the_shutdown_of_a_reset_connection_succeeds() {
    Runtime::new().unwrap().block_on(async {
        let (mut ours, theirs) = tcp_pair().await;
        theirs.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(theirs);
        assert!(AsyncReadExt::read(&mut ours, &mut [0]).await.is_err());
        AsyncWriteExt::shutdown(&mut ours).await.unwrap();
    });
}
