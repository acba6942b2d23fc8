//! Crates written for `futures-io` run on softclock's sockets unchanged.
#![cfg(feature = "futures-io")]

use std::net::{Ipv4Addr, SocketAddr};

use futures_lite::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy};
use futures_lite::stream::StreamExt;
use softclock::Runtime;
use softclock::net::{TcpListener, TcpStream};

#[test]
fn an_echo_server_and_a_reader_of_lines() {
    Runtime::new().unwrap().block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(address).unwrap();
        let here = listener.local_addr().unwrap();
        let echo = softclock::spawn_local(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let copied = copy(&stream, &stream).await.unwrap();
            (&stream).close().await.unwrap();
            copied
        });
        let stream = TcpStream::connect(here).await.unwrap();
        let (mut writer, reader) = (&stream, &stream);
        let text: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let length = text.len() as u64;
        let sent = text.clone();
        let lines = futures_lite::future::zip(
            async {
                writer.write_all(sent.as_bytes()).await.unwrap();
                writer.close().await.unwrap();
            },
            BufReader::new(reader).lines().try_collect::<_, _, Vec<_>>(),
        );
        let ((), lines) = lines.await;
        assert!(lines.unwrap().iter().map(String::as_str).eq(text.lines()));
        assert_eq!(echo.await, length);
    });
}
