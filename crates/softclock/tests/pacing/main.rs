//! Paced streams: the arrival times of their data, and the treatment of accepted data. Times are compared only within
//! a test.

mod datagrams;

use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, Shutdown};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use softclock::net::relay::Supervise;
use softclock::net::{PacedBy, Pacer, Pacing, PacingStatistics, TcpListener, TcpStream, UdpSocket};
use softclock::{Rate, Runtime};

fn run<F: Future>(test: F) -> F::Output {
    let limited = async { softclock::timeout(Duration::from_secs(60), test).await };
    let ended = Runtime::new().unwrap().block_on(limited);
    ended.expect("the test hangs")
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn statistics() -> PacingStatistics {
    softclock::statistics().pacing
}

/// A paced stream and its reader.
async fn pair(pacer: &Pacer) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (server.paced(pacer), client)
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

/// Returns the time from the first write until all `bytes` have arrived.
async fn time_of(pacing: Option<Pacing>, bytes: usize) -> Duration {
    let (writer, reader) = pair(&Pacer::new(pacing)).await;
    let begun = softclock::now();
    writer.write_all(&vec![1; bytes]).await.unwrap();
    drop(writer);
    assert_eq!(read_to_end(&reader).await.len(), bytes);
    softclock::now().since(begun)
}

#[test]
fn a_rate_is_kept_from_above_and_not_much_less() {
    run(async {
        let (mut slow, mut least) = (Duration::MAX, f64::MAX);
        for _ in 0..5 {
            let begun = softclock::now();
            softclock::sleep(Duration::from_millis(100)).await;
            let as_long = softclock::now().since(begun);
            let time = time_of(Some(Pacing::of_rate(rate("8mbit"))), 100_000).await;
            slow = slow.min(time);
            least = least.min(time.div_duration_f64(as_long));
        }
        // The first and the last piece take no time.
        assert!(slow >= Duration::from_millis(96), "{slow:?}");
        assert!(least < 2.0, "{least} times as long as a sleep");
        let fast = time_of(Some(Pacing::of_rate(rate("800mbit"))), 100_000).await;
        let unpaced = time_of(None, 100_000).await;
        assert!(fast < slow / 2 && unpaced < slow / 2, "{fast:?} {slow:?}");
    });
}

#[test]
fn pieces_leave_without_waking_the_writer() {
    run(async {
        let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("100mbit"))))).await;
        assert_eq!(writer.write(&[7; 20_000]).await.unwrap(), 20_000);
        // The first piece may have arrived.
        let left = writer.unacknowledged().unwrap();
        assert!((15_000..=20_000).contains(&left), "{left}");
        assert!(writer.is_held_back());
        writer.sent().await.unwrap();
        let sent = statistics();
        assert_eq!(
            (sent.trains, sent.bytes, sent.pending_bytes),
            (1, 20_000, 0)
        );
        assert!((2..=14).contains(&sent.pieces), "{sent:?}");
        reader.read_exact(&mut [0; 20_000]).await.unwrap();
    });
}

#[test]
fn an_end_is_told_behind_what_was_written() {
    run(async {
        let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("10mbit"))))).await;
        writer.write_all(&[7; 20_000]).await.unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        let error = writer.write(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        reader.write_all(b"answer").await.unwrap();
        assert_eq!(read_to_end(&reader).await, [7; 20_000]);
        writer.read_exact(&mut [0; 6]).await.unwrap();
    });
}

#[test]
fn zero_linger_discards_what_was_accepted() {
    run(async {
        let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("1mbit"))))).await;
        let accepted = writer.write(&[7; 4_000]).await.unwrap();
        assert_eq!(accepted, 4_000);
        writer.set_linger(Some(Duration::ZERO)).unwrap();
        drop(writer);
        assert_eq!(statistics().pending_bytes, 0);
        let mut buffer = [0; 8_000];
        let error = loop {
            match reader.read(&mut buffer).await {
                Ok(n) => assert!((1..4_000).contains(&n)),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_is_left_at_the_runtime_s_end_is_sent_at_once() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = Runtime::new().unwrap();
    let stream = runtime.block_on(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = stream.paced(&Pacer::new(Some(Pacing::of_rate(rate("9600bit")))));
        assert_eq!(stream.write(&[7; 3_000]).await.unwrap(), 3_000);
        stream
    });
    drop((stream, runtime));
    let (mut peer, _) = listener.accept().unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut peer, &mut all).unwrap();
    assert_eq!(all, [7; 3_000]);
}

#[test]
fn a_peer_that_takes_nothing_is_waited_for() {
    run(async {
        let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("10gbit"))))).await;
        let bytes = 16 << 20;
        let writer = Rc::new(writer);
        let task = softclock::spawn_local({
            let writer = Rc::clone(&writer);
            async move { writer.write_all(&vec![3; bytes]).await.unwrap() }
        });
        while statistics().blocked == 0 || writer.is_held_back() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        let mut received = 0;
        let mut buffer = vec![0; 1 << 16];
        while received < bytes {
            received += reader.read(&mut buffer).await.unwrap();
        }
        task.await;
    });
}

/// A write pending after too many calls waits for the task's next turn, not for the peer.
#[test]
fn a_writer_that_made_too_many_calls_is_held_back() {
    run(async {
        let unclocked = Pacing::of_rate(Rate::from_bps(u64::MAX).unwrap());
        let pacer = Pacer::new(Some(unclocked));
        let (writer, _reader) = pair(&pacer).await;
        for pacing in [Some(unclocked), None] {
            pacer.set(pacing);
            softclock::yield_now().await;
            let mut calls = 0;
            std::future::poll_fn(|cx| {
                while let Poll::Ready(written) = writer.poll_write(cx, b"x") {
                    calls += written.unwrap();
                }
                Poll::Ready(())
            })
            .await;
            assert_eq!(calls, 128, "the calls of a turn");
            assert!(writer.is_held_back(), "{pacing:?}");
        }
        // Until the peer's full window is the cause.
        while writer.is_held_back() {
            let write = writer.write_all(&[1; 1 << 20]);
            let _ = softclock::timeout(Duration::from_millis(10), write).await;
        }
    });
}

#[test]
fn streams_share_a_total_rate() {
    run(async {
        let pacer = Pacer::new(Some(Pacing::of_rate(rate("80mbit"))));
        let time_of_four = async |total: Option<&str>| {
            pacer.set_total(total.map(rate));
            let begun = softclock::now();
            let mut readers = Vec::new();
            for _ in 0..4 {
                let (writer, reader) = pair(&pacer).await;
                softclock::spawn_local(async move {
                    writer.write_all(&[1; 50_000]).await.unwrap();
                });
                let read = async move { assert_eq!(read_to_end(&reader).await.len(), 50_000) };
                readers.push(softclock::spawn_local(read));
            }
            for reader in readers {
                reader.await;
            }
            softclock::now().since(begun)
        };
        let apart = time_of_four(None).await;
        let together = time_of_four(Some("8mbit")).await;
        assert!(together > Duration::from_millis(180), "{together:?}");
        assert!(apart < together / 2, "{apart:?} {together:?}");
    });
}

#[test]
fn changes_reach_streams_in_use() {
    run(async {
        let pacer = Pacer::new(Some(Pacing::of_rate(rate("800kbit"))));
        let (writer, reader) = pair(&pacer).await;
        let begun = softclock::now();
        let task = softclock::spawn_local(async move { writer.write_all(&[1; 1_000_000]).await });
        softclock::sleep(Duration::from_millis(50)).await;
        pacer.set(None);
        assert_eq!(read_to_end(&reader).await.len(), 1_000_000);
        task.await.unwrap();
        let took = softclock::now().since(begun);
        assert!(
            took < Duration::from_secs(5),
            "10 s at the first rate: {took:?}"
        );
    });
}

/// 8 Mbit/s in pieces of one millisecond, with this burst rate.
fn bursting(burst: &str) -> Option<Pacing> {
    Some(Pacing {
        burst: rate(burst),
        piece_bytes: Some(1_000),
        buffer_bytes: Some(100_000),
        ..Pacing::of_rate(rate("8mbit"))
    })
}

/// Calls `change` within a train and then blocks the thread for twenty pieces. Returns the time in which they are
/// sent.
async fn time_to_catch_up(change: impl FnOnce()) -> Duration {
    let begun = softclock::now();
    softclock::sleep(Duration::from_millis(5)).await;
    change();
    std::thread::sleep(Duration::from_millis(20));
    let stuck_until = softclock::now();
    let due = rate("8mbit").bytes_in(stuck_until.since(begun));
    while statistics().bytes < due {
        softclock::sleep(Duration::from_micros(100)).await;
    }
    softclock::now().since(stuck_until)
}

/// Like `time_to_catch_up`, for a stream whose burst rate is changed.
fn stream_catches_up([first, then]: [&str; 2], set: fn(&TcpStream, &Pacer, Pacing)) -> Duration {
    run(async {
        let pacer = Pacer::new(bursting(first));
        let (writer, _reader) = pair(&pacer).await;
        assert_eq!(writer.write(&[1; 100_000]).await.unwrap(), 100_000);
        time_to_catch_up(|| set(&writer, &pacer, bursting(then).unwrap())).await
    })
}

fn datagrams_catch_up([first, then]: [&str; 2]) -> Duration {
    run(async {
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = Rc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        sender.connect(sink.local_addr().unwrap()).unwrap();
        sender.set_pacing(bursting(first));
        let train = Rc::clone(&sender);
        let train =
            softclock::spawn_local(
                async move { train.send_train(&[1; 100_000], 1_000, None).await },
            );
        let took = time_to_catch_up(|| sender.set_pacing(bursting(then))).await;
        train.abort();
        took
    })
}

/// Slow takes 16 ms or more, fast 1 ms. Other load may disturb some tries, so the fastest counts.
fn assert_faster(fast: impl Fn() -> Duration, slow: Duration) {
    let fast = (0..5).map(|_| fast()).min().unwrap();
    assert!(fast < slow / 4, "{fast:?} {slow:?}");
}

const SLOW: &str = "10mbit";
const FAST: &str = "160mbit";

#[test]
fn a_stream_catches_up_at_its_burst_rate() {
    let catch_up = |burst| stream_catches_up([burst; 2], |_, _, _| ());
    assert_faster(|| catch_up(FAST), catch_up(SLOW));
}

#[test]
fn another_burst_rate_reaches_streams_in_use() {
    let by_pacer = |bursts| stream_catches_up(bursts, |_, pacer, pacing| pacer.set(Some(pacing)));
    let own = |bursts| stream_catches_up(bursts, |stream, _, own| stream.set_pacing(Some(own)));
    assert_faster(|| by_pacer([SLOW, FAST]), by_pacer([FAST, SLOW]));
    assert_faster(|| own([SLOW, FAST]), own([FAST, SLOW]));
}

#[test]
fn another_burst_rate_reaches_trains_in_use() {
    assert_faster(
        || datagrams_catch_up([SLOW, FAST]),
        datagrams_catch_up([FAST, SLOW]),
    );
}

/// A thread that gets a processor only every 4 ms, as beside computing processes. One piece each time would be 2.9
/// Mbit/s.
#[test]
fn a_thread_that_is_often_away_keeps_its_rate() {
    let took = || {
        run(async {
            let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("20mbit"))))).await;
            let reader = softclock::spawn_local(async move { read_to_end(&reader).await.len() });
            let away = softclock::spawn_local(async {
                loop {
                    std::thread::sleep(Duration::from_millis(4));
                    softclock::yield_now().await;
                }
            });
            let begun = softclock::now();
            writer.write_all(&vec![1; 200_000]).await.unwrap();
            drop(writer);
            assert_eq!(reader.await, 200_000);
            away.abort();
            softclock::now().since(begun)
        })
    };
    // 80 ms at the rate. Other load may disturb some tries, so the fastest counts.
    let best = (0..5).map(|_| took()).min().unwrap();
    assert!(best > Duration::from_millis(75), "{best:?}");
    assert!(best < Duration::from_millis(160), "{best:?}");
}

/// After a stop of a quarter of a second, the stream makes up for a part and counts the rest as forgotten.
#[test]
fn a_stopped_thread_forgets_the_most_of_it() {
    run(async {
        let pacing = Pacing {
            buffer_bytes: Some(1_000_000),
            most_behind: Duration::from_millis(20),
            ..Pacing::of_rate(rate("16mbit"))
        };
        let (writer, _reader) = pair(&Pacer::new(Some(pacing))).await;
        writer.write_all(&vec![1; 900_000]).await.unwrap();
        softclock::sleep(Duration::from_millis(5)).await;
        let stopped = softclock::now();
        std::thread::sleep(Duration::from_millis(250));
        let stopped = softclock::now().since(stopped);
        while statistics().forgotten_bytes == 0 {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        let forgotten = statistics().forgotten_bytes;
        let most = pacing.rate.bytes_in(stopped + Duration::from_millis(10));
        let least = pacing.rate.bytes_in(stopped - Duration::from_millis(25));
        assert!((least..most).contains(&forgotten), "{forgotten} of {most}");
        writer.set_linger(Some(Duration::ZERO)).unwrap();
    });
}

#[test]
fn a_stream_s_own_pacing_takes_effect_at_once() {
    run(async {
        let (writer, reader) = pair(&Pacer::default()).await;
        let slow = Some(Pacing::of_rate(rate("9600bit")));
        // At the slow rate, the rest would take seconds.
        for next in [Some(Pacing::of_rate(rate("1gbit"))), None] {
            writer.set_pacing(slow);
            assert_eq!(writer.write(&[1; 2_500]).await.unwrap(), 2_500);
            assert!(writer.is_held_back());
            let begun = softclock::now();
            writer.set_pacing(next);
            // Sent after pending data, whether or not that is paced.
            writer.write_all(&[2; 2_500]).await.unwrap();
            let mut read = [0; 5_000];
            reader.read_exact(&mut read).await.unwrap();
            assert!(softclock::now().since(begun) < Duration::from_secs(1));
            assert!(read[..2_500] == [1; 2_500] && read[2_500..] == [2; 2_500]);
            writer.sent().await.unwrap();
        }
        let paced = statistics();
        writer.write_all(&[3; 100_000]).await.unwrap();
        assert_eq!(statistics(), paced, "the kernel takes all at once");
    });
}

#[test]
fn a_stream_leaves_one_pacer_for_another() {
    run(async {
        let released = Pacing {
            by: PacedBy::Release,
            piece_bytes: Some(1_000),
            ..Pacing::of_rate(rate("1gbit"))
        };
        let pacer = Pacer::new(Some(released));
        let (writer, reader) = pair(&pacer).await;
        writer.write_all(&[1; 3_000]).await.unwrap();
        writer.set_pacing(Some(Pacing::of_rate(rate("1gbit"))));
        writer.sent().await.unwrap();
        assert_eq!(pacer.release(1), 0);
        pacer.set(Some(Pacing::of_rate(rate("9600bit"))));
        writer.write_all(&[1; 100_000]).await.unwrap();
        reader.read_exact(&mut [0; 103_000]).await.unwrap();
    });
}

#[test]
fn a_pacer_without_a_rate_has_its_streams_all_the_same() {
    run(async {
        let pacer = Pacer::default();
        let (writer, reader) = pair(&pacer).await;
        writer.write_all(&[1; 10_000]).await.unwrap();
        assert_eq!(statistics(), PacingStatistics::default());
        pacer.set(Some(Pacing::of_rate(rate("8mbit"))));
        let begun = softclock::now();
        writer.write_all(&[1; 40_000]).await.unwrap();
        reader.read_exact(&mut [0; 50_000]).await.unwrap();
        assert!(softclock::now().since(begun) > Duration::from_millis(35));
    });
}

#[test]
fn without_a_buffer_the_writer_is_woken_for_each_piece() {
    run(async {
        let pacing = Pacing {
            buffer_bytes: Some(0),
            piece_bytes: Some(1_000),
            ..Pacing::of_rate(rate("80mbit"))
        };
        let (writer, reader) = pair(&Pacer::new(Some(pacing))).await;
        for train in 1..4 {
            assert_eq!(writer.write(&[1; 6_300]).await.unwrap(), 1_000);
            assert!(writer.is_held_back());
            writer.write_all(&[1; 5_300]).await.unwrap();
            // Fewer if the writer is woken late.
            assert!((2 * train..=7 * train).contains(&statistics().pieces));
            let sent = (statistics().bytes, statistics().pending_bytes);
            assert_eq!(sent, (6_300 * train, 0));
            // Longer than the time of the last piece, so that the train ends.
            softclock::sleep(Duration::from_millis(1)).await;
            assert_eq!(statistics().trains, train);
        }
        reader.read_exact(&mut [0; 3 * 6_300]).await.unwrap();
    });
}

#[test]
fn pieces_are_released_by_hand() {
    run(async {
        let pacing = Pacing {
            by: PacedBy::Release,
            piece_bytes: Some(1_000),
            ..Pacing::of_rate(rate("1gbit"))
        };
        let pacer = Pacer::new(Some(pacing));
        let (one, _one) = pair(&pacer).await;
        let (two, _two) = pair(&pacer).await;
        assert_eq!(pacer.release(1), 0);
        one.write_all(&[1; 3_000]).await.unwrap();
        two.write_all(&[1; 2_000]).await.unwrap();
        assert_eq!(statistics().pieces, 2, "those that begin");
        assert_eq!([1, 9, 9, 9].map(|most| pacer.release(most)), [1, 2, 0, 0]);
        assert_eq!((statistics().pieces, statistics().pending_bytes), (5, 0));
        one.write_all(&[1; 3_000]).await.unwrap();
        pacer.set(None);
        one.sent().await.unwrap();
    });
}

/// Data that waits to be released belongs to the runtime: at its end the kernel gets it, and the connection ends.
#[test]
fn what_was_not_released_is_sent_at_the_end_of_the_runtime() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for resets in [false, true] {
        let runtime = Runtime::new().unwrap();
        let address = listener.local_addr().unwrap();
        runtime.block_on(async {
            let pacing = Pacing {
                by: PacedBy::Release,
                piece_bytes: Some(1_000),
                ..Pacing::of_rate(rate("1gbit"))
            };
            let pacer = Pacer::new(Some(pacing));
            let stream = TcpStream::connect(address).await.unwrap().paced(&pacer);
            stream.write_all(&[1; 3_000]).await.unwrap();
            if resets {
                stream.set_linger(Some(Duration::ZERO)).unwrap();
            }
        });
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        if !resets {
            drop(runtime);
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut peer, &mut all).unwrap();
            assert_eq!(all, [1; 3_000]);
        } else {
            let end = std::io::Read::read_to_end(&mut peer, &mut Vec::new());
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
    drop(Runtime::new().expect("the former runtime has ended"));
}

/// Streams that wait for a total rate follow its change.
#[test]
fn a_changed_total_rate_binds_streams_that_wait() {
    run(async {
        let pacer = Pacer::new(Some(Pacing::of_rate(rate("1gbit"))));
        pacer.set_total(Some(rate("8kbit")));
        let mut pairs = Vec::new();
        for _ in 0..8 {
            let (writer, reader) = pair(&pacer).await;
            writer.write_all(&[1; 20_000]).await.unwrap();
            pairs.push((writer, reader));
        }
        for total in [Some(rate("1gbit")), None] {
            pacer.set_total(total);
            let begun = softclock::now();
            for (writer, reader) in &pairs {
                writer.sent().await.unwrap();
                reader.read_exact(&mut [0; 20_000]).await.unwrap();
            }
            // At the former rate one of these segments took more than a second.
            assert!(softclock::now().since(begun) < Duration::from_secs(1));
            pacer.set_total(Some(rate("8kbit")));
            for (writer, _) in &pairs {
                writer.write_all(&[1; 20_000]).await.unwrap();
            }
        }
    });
}

#[test]
fn at_a_rate_beyond_all_clocks_pieces_do_not_wait() {
    run(async {
        let pacing = Pacing {
            piece_bytes: Some(1_000),
            ..Pacing::of_rate(Rate::from_bps(u64::MAX).unwrap())
        };
        let (writer, reader) = pair(&Pacer::new(Some(pacing))).await;
        let parts = [IoSlice::new(&[1; 500]), IoSlice::new(&[2; 4_000])];
        let sent = std::future::poll_fn(|cx| writer.poll_write_vectored(cx, &parts)).await;
        assert_eq!((sent.unwrap(), statistics().pieces), (4_500, 5));
        assert_eq!(statistics().pending_bytes, 0);
        reader.read_exact(&mut [0; 4_500]).await.unwrap();
    });
}

#[test]
fn handlers_may_write() {
    run(async {
        let (writer, reader) = pair(&Pacer::new(Some(Pacing::of_rate(rate("100mbit"))))).await;
        softclock::schedule_soft_event(10, move |_| {
            assert_eq!(writer.try_write(&[1; 5_000]).unwrap(), 5_000);
        });
        reader.read_exact(&mut [0; 5_000]).await.unwrap();
    });
}

/// A step of a writer.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Vectored(Vec<usize>),
    Pause(u64),
    Rate(u64),
    Own(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..60_000usize).prop_map(Step::Write),
        proptest::collection::vec(0..4_000usize, 0..12).prop_map(Step::Vectored),
        (0..2_000u64).prop_map(Step::Pause),
        (20_000_000..20_000_000_000u64).prop_map(Step::Rate),
        proptest::option::of(20_000_000..20_000_000_000u64).prop_map(Step::Own),
    ]
}

fn fast(bps: u64) -> Option<Pacing> {
    Rate::from_bps(bps).map(Pacing::of_rate)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_arrive_complete_and_in_order(
        steps in proptest::collection::vec(step(), 1..12),
        buffer_bytes in prop_oneof![Just(None), (0..20_000usize).prop_map(Some)],
        piece_bytes in prop_oneof![Just(None), (200..70_000usize).prop_map(Some)],
        pauses in proptest::collection::vec(0..3_000u64, 1..8),
    ) {
        run(async {
            let first = fast(100_000_000).map(|pacing| Pacing { buffer_bytes, piece_bytes, ..pacing });
            let pacer = Pacer::new(first);
            let (writer, reader) = pair(&pacer).await;
            let task = softclock::spawn_local(async move {
                let mut written: Vec<u8> = Vec::new();
                for step in steps {
                    let at = written.len();
                    let mut more = |bytes: usize| {
                        let next = (written.len()..).map(|i| ((i * 31) >> 3) as u8);
                        written.extend(next.take(bytes).collect::<Vec<_>>());
                    };
                    match step {
                        Step::Write(bytes) => {
                            more(bytes);
                            writer.write_all(&written[at..]).await.unwrap();
                        }
                        Step::Vectored(sizes) => {
                            let mut ends = vec![at];
                            for size in sizes {
                                more(size);
                                ends.push(ends[ends.len() - 1] + size);
                            }
                            let parts: Vec<_> = ends
                                .windows(2)
                                .map(|ends| IoSlice::new(&written[ends[0]..ends[1]]))
                                .collect();
                            let sent = std::future::poll_fn(|cx| writer.poll_write_vectored(cx, &parts));
                            let sent = sent.await.unwrap();
                            written.truncate(at + sent);
                        }
                        Step::Pause(us) => softclock::sleep(Duration::from_micros(us)).await,
                        Step::Rate(bps) => pacer.set(fast(bps)),
                        Step::Own(bps) => writer.set_pacing(bps.and_then(fast)),
                    }
                }
                written
            });
            let (mut read, mut buffer) = (Vec::new(), vec![0; 10_000]);
            for pause in pauses.into_iter().cycle() {
                softclock::sleep(Duration::from_micros(pause)).await;
                match reader.read(&mut buffer).await.unwrap() {
                    0 => break,
                    n => read.extend_from_slice(&buffer[..n]),
                }
            }
            assert!(read == task.await);
        });
    }
}
