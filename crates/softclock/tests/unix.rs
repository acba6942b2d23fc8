//! Streams of the Unix family.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::Duration;

use softclock::net::{UnixListener, UnixStream};
use softclock::{Runtime, spawn_local, timeout};

fn run(test: impl Future<Output = ()>) {
    let limited = async { timeout(Duration::from_secs(20), test).await };
    let result = Runtime::new().unwrap().block_on(limited);
    result.expect("the test hangs");
}

#[test]
fn large_transfers_and_half_close() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path, 0o600).unwrap();
        let server = spawn_local(async move {
            let stream = listener.accept().await.unwrap();
            let mut received = Vec::new();
            let mut buffer = vec![0; 10_000];
            while let n @ 1.. = stream.read(&mut buffer).await.unwrap() {
                received.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(&received).await.unwrap();
        });
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let client = UnixStream::connect(&path).unwrap();
        client.write_all(&sent).await.unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut echoed = Vec::new();
        let mut buffer = vec![0; 70_000];
        while let n @ 1.. = client.read(&mut buffer).await.unwrap() {
            echoed.extend_from_slice(&buffer[..n]);
        }
        assert!(echoed == sent);
        server.await;
    });
}

#[test]
fn listeners_from_elsewhere_share_a_socket() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let bound = std::thread::spawn({
            let path = path.clone();
            move || softclock::net::bind_unix(&path, 0o600).unwrap()
        });
        let bound = bound.join().unwrap();
        let other = bound.try_clone().unwrap();
        let listener = UnixListener::from_std(bound).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().await.unwrap();
        drop(listener);
        let _client = UnixStream::connect(&path).unwrap();
        let other = UnixListener::from_std(other).unwrap();
        other.accept().await.unwrap();
    });
}

#[test]
fn who_listens_nowhere_is_not_there() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let error = |path| UnixStream::connect(path).unwrap_err().kind();
        assert_eq!(error(&path), ErrorKind::NotFound);
        drop(UnixListener::bind(&path, 0o600).unwrap());
        assert_eq!(error(&path), ErrorKind::ConnectionRefused);
        let taken = UnixListener::bind(&path, 0o600).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    });
}
