//! The contract of TCP streams and listeners.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rustix::net::sockopt;
use softclock::fs::Root;
use softclock::net::relay::Supervise;
use softclock::net::{KeepAlive, ListenOptions, Pacer, TcpListener, TcpStream};
use softclock::{Mechanism, TriggerState};

use super::{IS_KERNEL, IS_STACK, KERNEL, PACING};

async fn pair(address: SocketAddr) -> (TcpStream, TcpStream) {
    let listener = match KERNEL.get() {
        None => TcpListener::bind(address).unwrap(),
        Some(kernel) => {
            TcpListener::from_std(std::net::TcpListener::bind(kernel).unwrap()).unwrap()
        }
    };
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(server.local_addr().unwrap(), client.peer_addr().unwrap());
    match PACING.get() {
        None => (client, server),
        pacing => {
            let pacer = Pacer::new(pacing);
            (client.paced(&pacer), server.paced(&pacer))
        }
    }
}

async fn read_to_end(stream: &TcpStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

pub(super) async fn a_stream_carries_bytes_both_ways(address: SocketAddr) {
    let (client, server) = pair(address).await;
    client.set_nodelay(true).unwrap();
    client.write_all(b"there").await.unwrap();
    let mut buffer = [0; 5];
    assert_eq!(server.peek(&mut buffer[..1]).await.unwrap(), 1);
    assert_eq!(buffer[0], b't');
    server.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"there", "a peek takes nothing");
    assert_eq!(server.try_write(b"back").unwrap(), 4);
    client.read_exact(&mut buffer[..4]).await.unwrap();
    assert_eq!(&buffer[..4], b"back");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
    assert_eq!(
        server.read(&mut buffer).await.unwrap(),
        0,
        "the end stays the end"
    );
    let error = server.read_exact(&mut buffer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

pub(super) async fn large_transfers_wait_for_the_reader(address: SocketAddr) {
    const BYTES: usize = 8 << 20;
    let (client, server) = pair(address).await;
    let sent: Vec<u8> = (0..BYTES).map(|i| ((i * 31) >> 3) as u8).collect();
    let expected = sent.clone();
    let writer = softclock::spawn_local(async move {
        client.write_all(&sent).await.unwrap();
    });
    softclock::sleep(Duration::from_millis(5)).await;
    assert!(
        !writer.is_finished(),
        "8 MB do not fit into a socket's buffers"
    );
    assert!(read_to_end(&server).await == expected);
    writer.await;
}

pub(super) async fn parts_of_shared_memory_arrive_in_their_places(address: SocketAddr) {
    const BYTES: usize = 3 << 20;
    let (client, server) = pair(address).await;
    let shared: Bytes = (0..BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut expected = b"head".to_vec();
    expected.extend_from_slice(&shared[500..]);
    expected.extend_from_slice(b"tail");
    let writer = softclock::spawn_local(async move {
        let whole: [&[u8]; 3] = [b"head", &shared[500..], b"tail"];
        let mut parts = whole.map(IoSlice::new);
        let mut left = &mut parts[..];
        while !left.is_empty() {
            let written = poll_fn(|cx| client.poll_write_shared(cx, left, &shared)).await;
            IoSlice::advance_slices(&mut left, written.unwrap());
        }
    });
    assert!(read_to_end(&server).await == expected);
    writer.await;
}

pub(super) async fn half_close_lets_the_answer_through(address: SocketAddr) {
    let (client, server) = pair(address).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let error = client.write(b"more").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(read_to_end(&server).await, b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_to_end(&client).await, b"answer");
}

pub(super) async fn dropping_a_stream_ends_the_peer_s_reading(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let reader = softclock::spawn_local(async move { read_to_end(&server).await });
    client.write_all(b"last words").await.unwrap();
    drop(client);
    assert_eq!(reader.await, b"last words");
}

pub(super) async fn zero_linger_resets(address: SocketAddr) {
    let (client, server) = pair(address).await;
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let error = server.read(&mut [0; 16]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(super) async fn other_linger_times_are_refused(address: SocketAddr) {
    let (client, _server) = pair(address).await;
    let error = client.set_linger(Some(Duration::from_secs(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    client.set_linger(None).unwrap();
}

pub(super) async fn unread_data_makes_closing_a_reset(address: SocketAddr) {
    let (client, server) = pair(address).await;
    client.write_all(b"unread").await.unwrap();
    softclock::sleep(Duration::from_millis(1)).await;
    drop(server);
    let error = client.read(&mut [0; 16]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(super) async fn a_lost_connection_is_known_without_a_call(address: SocketAddr) {
    if softclock::statistics().mechanism == Mechanism::Select {
        // This mechanism reports only readable and writable.
        return;
    }
    let (client, server) = pair(address).await;
    let lost = || poll_fn(|cx| server.poll_lost(cx));
    client.write_all(b"question").await.unwrap();
    server.read_exact(&mut [0; 8]).await.unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let soon = softclock::timeout(Duration::from_millis(20), lost()).await;
    soon.expect_err("only one direction has ended");
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    lost().await;
}

pub(super) async fn a_half_closed_peer_wakes_no_waiter_for_the_loss(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let polls = Rc::new(Cell::new(0));
    let counted = polls.clone();
    let waiting = softclock::spawn_local(poll_fn(move |cx| {
        counted.set(counted.get() + 1);
        server.poll_lost(cx)
    }));
    client.shutdown(Shutdown::Write).unwrap();
    softclock::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished(), "only one direction has ended");
    assert!(polls.get() < 10, "{} polls", polls.get());
}

pub(super) async fn an_ended_direction_is_known_behind_unread_data(address: SocketAddr) {
    if softclock::statistics().mechanism == Mechanism::Select {
        // This mechanism reports only readable and writable.
        return;
    }
    let (client, server) = pair(address).await;
    let ended = || poll_fn(|cx| server.poll_ended(cx));
    client.write_all(b"question").await.unwrap();
    server.read_exact(&mut [0; 1]).await.unwrap();
    let soon = softclock::timeout(Duration::from_millis(20), ended()).await;
    soon.expect_err("the client may send more");
    let readable = || poll_fn(|cx| server.poll_read_ready(cx));
    readable().await;
    client.shutdown(Shutdown::Write).unwrap();
    ended().await;
    let mut rest = [0; 16];
    assert_eq!(server.read(&mut rest).await.unwrap(), 7);
    server.write_all(b"answer").await.unwrap();
    client.read_exact(&mut [0; 6]).await.unwrap();
    ended().await;
}

pub(super) async fn writing_to_a_closed_peer_fails(address: SocketAddr) {
    let (client, server) = pair(address).await;
    drop(server);
    let error = loop {
        if let Err(error) = client.write(&[0; 1024]).await {
            break error;
        }
    };
    assert!(
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        ),
        "{error}"
    );
}

pub(super) async fn a_refused_connection_is_an_error(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let error = TcpStream::connect(nobody).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

pub(super) async fn a_listener_survives_connections_that_vanish(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let here = listener.local_addr().unwrap();
    for _ in 0..16 {
        let client = TcpStream::connect(here).await.unwrap();
        client.set_linger(Some(Duration::ZERO)).unwrap();
    }
    let last = TcpStream::connect(here).await.unwrap();
    let mut accepted = 0;
    loop {
        match listener.accept().await {
            Ok((_, peer)) if peer == last.local_addr().unwrap() => break,
            Ok(_) => accepted += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionAborted),
        }
    }
    assert!(accepted <= 16);
}

pub(super) async fn several_tasks_accept_from_one_listener(address: SocketAddr) {
    let listener = Rc::new(TcpListener::bind(address).unwrap());
    let here = listener.local_addr().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.clone();
            softclock::spawn_local(async move { listener.accept().await.unwrap() })
        })
        .collect();
    softclock::yield_now().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(TcpStream::connect(here).await.unwrap());
    }
    for task in tasks {
        task.await;
    }
}

pub(super) async fn one_task_reads_while_another_writes(address: SocketAddr) {
    const ROUNDS: usize = 2_000;
    let (client, server) = pair(address).await;
    let echo = softclock::spawn_local(async move {
        let mut buffer = [0; 64];
        loop {
            match server.read(&mut buffer).await.unwrap() {
                0 => return,
                n => server.write_all(&buffer[..n]).await.unwrap(),
            }
        }
    });
    let client = Rc::new(client);
    let writer = client.clone();
    let writing = softclock::spawn_local(async move {
        for _ in 0..ROUNDS {
            writer.write_all(&[7; 100]).await.unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    assert_eq!(read_to_end(&client).await, vec![7; ROUNDS * 100]);
    writing.await;
    echo.await;
}

pub(super) async fn a_shutdown_ends_what_waits(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let client = Rc::new(client);
    let (writer, reader) = (client.clone(), client.clone());
    let writing = softclock::spawn_local(async move {
        loop {
            if let Err(error) = writer.write(&[1; 64 << 10]).await {
                return error.kind();
            }
        }
    });
    let reading = softclock::spawn_local(async move { reader.read(&mut [0; 8]).await.unwrap() });
    // The peer reads nothing, so that both wait.
    softclock::sleep(Duration::from_millis(20)).await;
    client.shutdown(Shutdown::Both).unwrap();
    assert_eq!(writing.await, ErrorKind::BrokenPipe);
    assert_eq!(reading.await, 0);
    drop(server);
}

pub(super) async fn a_dropped_read_loses_nothing(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let mut buffer = [0; 8];
    let short = Duration::from_millis(1);
    assert!(
        softclock::timeout(short, server.read(&mut buffer))
            .await
            .is_err()
    );
    client.write_all(b"whole").await.unwrap();
    server.read_exact(&mut buffer[..5]).await.unwrap();
    assert_eq!(&buffer[..5], b"whole");
}

pub(super) async fn a_busy_port_is_an_error(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let error = TcpListener::bind(listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

pub(super) async fn listeners_share_a_port_when_asked(address: SocketAddr) {
    let options = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let one = TcpListener::bind_with(address, &options).unwrap();
    let here = one.local_addr().unwrap();
    let two = TcpListener::bind_with(here, &options).unwrap();
    for _ in 0..8 {
        let _client = TcpStream::connect(here).await.unwrap();
        let mut accepts = [Box::pin(one.accept()), Box::pin(two.accept())];
        let either = poll_fn(|cx| {
            let mut polls = accepts.iter_mut().map(|accept| Pin::new(accept).poll(cx));
            polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        either.await.unwrap();
    }
}

pub(super) async fn a_reader_that_never_waits_lets_others_run(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let flood =
        softclock::spawn_local(async move { while client.write(&[0; 16384]).await.is_ok() {} });
    let reader =
        softclock::spawn_local(async move { while server.read(&mut [0; 1]).await.unwrap() > 0 {} });
    for _ in 0..20 {
        softclock::yield_now().await;
    }
    softclock::sleep(Duration::from_millis(1)).await;
    reader.abort();
    flood.await;
}

pub(super) async fn a_long_write_lets_others_run(address: SocketAddr) {
    const CHUNK: usize = 64 << 10;
    let (client, server) = pair(address).await;
    let (written, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let writer = {
        let (written, done) = (written.clone(), done.clone());
        softclock::spawn_local(async move {
            for _ in 0..256 {
                client.write_all(&[0; CHUNK]).await.unwrap();
                written.set(written.get() + CHUNK);
            }
            done.set(true);
        })
    };
    let reader = softclock::spawn_local(async move {
        let mut buffer = vec![0; CHUNK];
        while server.read(&mut buffer).await.unwrap() > 0 {}
    });
    let (mut seen, mut longest) = (0, 0);
    while !done.get() {
        softclock::yield_now().await;
        longest = longest.max(written.get() - seen);
        seen = written.get();
    }
    assert!(longest <= 8 * CHUNK, "{longest} bytes in one go");
    writer.await;
    reader.await;
}

pub(super) async fn files_are_sent_behind_what_was_written(address: SocketAddr) {
    const BYTES: usize = 8 << 20;
    let content: Vec<u8> = (0..BYTES).map(|i| ((i * 31) >> 3) as u8).collect();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), &content).unwrap();
    let root = Root::open(directory.path()).unwrap();
    let file = root.open_file("f".as_ref()).await.unwrap();
    let (client, server) = pair(address).await;
    assert_eq!(client.is_paced(), PACING.get().is_some());
    let before = vec![7; 10_000];
    let longest = Rc::new(Cell::new(0));
    let sender = softclock::spawn_local({
        let (longest, before) = (longest.clone(), before.clone());
        async move {
            client.write_all(&before).await.unwrap();
            let mut sent = 5;
            // More bytes than there are.
            while let n @ 1.. = client.send_file(&file, sent as u64, 1 << 20).await.unwrap() {
                sent += n;
                longest.set(longest.get() + n);
            }
            sent
        }
    });
    let reader = softclock::spawn_local(async move { read_to_end(&server).await });
    while !sender.is_finished() {
        softclock::yield_now().await;
        assert!(longest.take() <= 3 << 20, "others run in between");
    }
    assert_eq!(sender.await, BYTES);
    assert!(reader.await == [&before, &content[5..]].concat());
}

pub(super) async fn calls_are_trigger_states_of_their_kind(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let count = |state| softclock::statistics().triggers.of(state).count();
    let (sent, received) = (count(TriggerState::Send), count(TriggerState::Receive));
    client.write_all(b"x").await.unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    assert_eq!(count(TriggerState::Send), sent + 1);
    assert!(count(TriggerState::Receive) > received);
}

pub(super) async fn streams_are_read_and_written_without_waiting(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let mut buffer = [0; 16];
    let error = server.try_read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    client.writable().await;
    let parts = [
        IoSlice::new(b"one"),
        IoSlice::new(b""),
        IoSlice::new(b"two"),
    ];
    assert_eq!(client.try_write_vectored(&parts).unwrap(), 6);
    let mut read = Vec::new();
    while read.len() < 6 {
        server.readable().await;
        let (one, two) = buffer.split_at_mut(2);
        let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
        match server.try_read_vectored(&mut parts) {
            Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(read, b"onetwo");
    // Whether or not the last read was told to be short, the next finds nothing.
    let error = server.try_read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let short = Duration::from_millis(2);
    assert!(softclock::timeout(short, server.readable()).await.is_err());
    drop(client);
    server.readable().await;
    assert_eq!(server.try_read(&mut buffer).unwrap(), 0);
}

pub(super) async fn room_is_told_after_a_short_write(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let chunk = vec![7; 1 << 16];
    let mut written = 0;
    loop {
        match client.try_write(&chunk) {
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let reader = softclock::spawn_local(async move { read_to_end(&server).await.len() });
    for _ in 0..3 {
        // A paced stream is woken when half of its buffer is sent.
        client.writable().await;
        match client.try_write(&chunk) {
            Ok(bytes) => written += bytes,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    drop(client);
    assert_eq!(reader.await, written);
}

pub(super) async fn options_of_streams_are_set_or_refused(address: SocketAddr) {
    let (client, server) = pair(address).await;
    let keep_alive = KeepAlive {
        is_on: true,
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(5),
        probes: 3,
    };
    client.set_keep_alive(keep_alive).unwrap();
    client
        .set_user_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    client.set_dscp(10).unwrap();
    assert_eq!(
        client.set_dscp(64).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    client.set_hop_limit(9).unwrap();
    let error = client.set_hop_limit(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    client.set_nodelay(true).unwrap();
    client.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(client.linger().unwrap(), Some(Duration::ZERO));
    client.set_linger(None).unwrap();
    client.set_dscp(11).unwrap();
    // Each option is as it was set, and the others are as before.
    assert_eq!(client.keep_alive().unwrap(), keep_alive);
    let timeout = client.user_timeout().unwrap();
    assert_eq!(timeout, Some(Duration::from_secs(30)));
    assert_eq!(
        (client.dscp().unwrap(), client.hop_limit().unwrap()),
        (11, 9)
    );
    assert!(client.nodelay().unwrap());
    assert_eq!(client.linger().unwrap(), None);
    assert!(!server.keep_alive().unwrap().is_on);
    assert_eq!(server.user_timeout().unwrap(), None);
    if let Some(fd) = client.as_kernel_fd() {
        client.set_notsent_lowat(12_345).unwrap();
        assert_eq!(client.notsent_lowat().unwrap(), 12_345);
        assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), keep_alive.idle);
        assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), 30_000);
        assert_eq!(sockopt::ip_ttl(fd).unwrap(), 9);
        client.set_send_buffer_bytes(50_000).unwrap();
        client.set_recv_buffer_bytes(60_000).unwrap();
        assert_eq!(client.send_buffer_bytes().unwrap(), 100_000);
        assert_eq!(client.recv_buffer_bytes().unwrap(), 120_000);
    } else if IS_STACK.get() {
        let refused = [
            client.set_send_buffer_bytes(50_000).unwrap_err(),
            client.set_recv_buffer_bytes(60_000).unwrap_err(),
            client.send_buffer_bytes().unwrap_err(),
            client.notsent_lowat().unwrap_err(),
        ];
        assert!(
            refused
                .iter()
                .all(|error| error.kind() == ErrorKind::Unsupported)
        );
    }
    // The connection works as before.
    client.write_all(b"question").await.unwrap();
    server.read_exact(&mut [0; 8]).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    client.read_exact(&mut [0; 6]).await.unwrap();
}

pub(super) async fn only_streams_of_the_kernel_have_descriptors(address: SocketAddr) {
    let (client, server) = pair(address).await;
    assert_eq!(client.as_kernel_fd().is_some(), IS_KERNEL.get());
    client.write_all(b"before").await.unwrap();
    client.sent().await.unwrap();
    let client = match client.into_std() {
        Ok(client) => {
            assert!(IS_KERNEL.get());
            TcpStream::from_std(client).unwrap()
        }
        Err(error) => {
            assert!(!IS_KERNEL.get());
            assert_eq!(error.error().kind(), ErrorKind::Unsupported);
            error.into_socket()
        }
    };
    client.write_all(b"after").await.unwrap();
    let mut buffer = [0; 11];
    server.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"beforeafter");
    server.write_all(b"answer").await.unwrap();
    client.read_exact(&mut buffer[..6]).await.unwrap();

    let listener = TcpListener::bind(address).unwrap();
    assert_eq!(listener.as_kernel_fd().is_some(), IS_KERNEL.get());
    let listener = match listener.into_std() {
        Ok(listener) => TcpListener::from_std(listener).unwrap(),
        Err(error) => error.into_socket(),
    };
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let connecting = softclock::spawn_local(connecting);
    listener.accept().await.unwrap();
    connecting.await.unwrap();
}
