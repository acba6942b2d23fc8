//! Trains of datagrams: their time, and the sizes of their batches.

use std::net::Ipv4Addr;
use std::time::Duration;

use softclock::net::{Pacing, UdpSocket};

use crate::{rate, run, statistics};

#[test]
fn trains_of_datagrams_take_as_long_as_the_rate_says() {
    run(async {
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let sink = UdpSocket::bind(loopback).unwrap();
        let (sender, to) = (
            UdpSocket::bind(loopback).unwrap(),
            sink.local_addr().unwrap(),
        );
        let time_of = async |pacing| {
            sender.set_pacing(pacing);
            let begun = softclock::now();
            let train = sender.send_train(&[1; 100_000], 1_000, Some(to));
            train.await.unwrap();
            softclock::now().since(begun)
        };
        let slow = time_of(Some(Pacing::of_rate(rate("8mbit")))).await;
        assert!(slow >= Duration::from_millis(95), "{slow:?}");
        let before = statistics().pieces;
        let unpaced = time_of(None).await;
        let batches = statistics().pieces - before;
        assert!(unpaced < slow / 2, "{unpaced:?} {slow:?}");
        assert!(batches == 2 || batches == 100, "{batches}");
        sender.connect(to).unwrap();
        sender.send_train(&[7; 10], 10, None).await.unwrap();
    });
}

/// Passes a trigger state every `interval`, and lets other tasks run in between.
async fn trigger_each(interval: Duration) {
    loop {
        let begun = softclock::now();
        while softclock::now().since(begun) < interval {}
        softclock::trigger();
        softclock::yield_now().await;
    }
}

#[test]
fn batches_of_datagrams_follow_the_trigger_interval() {
    run(async {
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let sink = UdpSocket::bind(loopback).unwrap();
        let sender = UdpSocket::bind(loopback).unwrap();
        sender.connect(sink.local_addr().unwrap()).unwrap();
        sender.set_pacing(Some(Pacing::of_rate(rate("100mbit"))));
        let mean_batch = async |interval: Duration| {
            let load = softclock::spawn_local(trigger_each(interval));
            let send = async |bytes| {
                let before = statistics();
                sender.send_train(&vec![1; bytes], 500, None).await.unwrap();
                let after = statistics();
                (after.bytes - before.bytes) / (after.pieces - before.pieces)
            };
            // The interval is updated ten times a second.
            let warm_up = softclock::timeout(Duration::from_millis(300), send(50_000_000));
            assert!(warm_up.await.is_err());
            // Late batches are sent together, so the least of several results counts.
            let mut least = u64::MAX;
            for _ in 0..5 {
                least = least.min(send(125_000).await);
            }
            load.abort();
            least
        };
        let (close, apart) = (
            mean_batch(Duration::from_micros(20)).await,
            mean_batch(Duration::from_micros(400)).await,
        );
        // The rate allows 250 bytes in 20 us, of which one datagram is sent, and 5000 in 400 us.
        assert!((500..=2_500).contains(&close), "{close}");
        assert!((3_000..=12_500).contains(&apart), "{apart}");
    });
}

/// A train that was cancelled has ended: the next one does not make up for the pause between them.
#[test]
fn a_cancelled_train_has_ended() {
    run(async {
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let sink = UdpSocket::bind(loopback).unwrap();
        let sender = UdpSocket::bind(loopback).unwrap();
        sender.connect(sink.local_addr().unwrap()).unwrap();
        sender.set_pacing(Some(Pacing::of_rate(rate("10mbit"))));
        let train = sender.send_train(&[1; 60_000], 1_000, None);
        let cancelled = softclock::timeout(Duration::from_millis(5), train).await;
        assert!(cancelled.is_err(), "it takes 48 ms");
        softclock::sleep(Duration::from_millis(20)).await;
        sender.send_train(&[1; 1_000], 1_000, None).await.unwrap();
        assert_eq!(statistics().trains, 2);
    });
}
