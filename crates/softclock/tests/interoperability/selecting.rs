//! `select!`, `join!` and the combinators of streams and futures.

use std::pin::pin;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures_lite::FutureExt;
use tokio::sync::mpsc;

use crate::{LIMIT, MS, run};

#[test]
fn tokio_select_and_join() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(1);
        softclock::spawn_local(async move {
            for n in 0..3 {
                softclock::sleep(3 * MS).await;
                sender.send(n).await.unwrap();
            }
        });
        let mut interval = softclock::interval(MS);
        let mut limit = pin!(softclock::sleep(LIMIT));
        let (mut received, mut ticks) = (Vec::new(), 0);
        loop {
            tokio::select! {
                message = receiver.recv() => match message {
                    Some(n) => received.push(n),
                    None => break,
                },
                _ = interval.tick() => ticks += 1,
                () = &mut limit => panic!("the sender does not end"),
            }
        }
        assert_eq!(received, [0, 1, 2]);
        assert!(ticks > 1);

        let (slept, answer) = tokio::join!(softclock::sleep(MS), async { 42 });
        assert_eq!((slept, answer), ((), 42));
    });
}

#[test]
fn futures_select_and_sets() {
    run(async {
        let mut fast = pin!(futures::FutureExt::fuse(softclock::sleep(MS)));
        let mut slow = pin!(futures::FutureExt::fuse(softclock::sleep(LIMIT)));
        futures::select! {
            () = fast => (),
            () = slow => panic!("the shorter sleep ends first"),
        }

        let sleep = async |n: u32| {
            softclock::sleep(n * 3 * MS).await;
            n
        };
        let unordered: FuturesUnordered<_> = [3, 1, 2].into_iter().map(sleep).collect();
        assert_eq!(unordered.collect::<Vec<_>>().await, [1, 2, 3]);
        let joined = futures::future::join_all([2, 1].map(sleep)).await;
        assert_eq!(joined, [2, 1]);
    });
}

#[test]
fn futures_lite_or_and_zip() {
    run(async {
        let never = async {
            softclock::sleep(LIMIT).await;
            "never"
        };
        let first = never.or(async { "first" }).await;
        assert_eq!(first, "first");
        let both = futures_lite::future::zip(softclock::sleep(MS), async { 1 }).await;
        assert_eq!(both, ((), 1));
        let ticks = futures_lite::stream::unfold(softclock::interval(MS), async |mut interval| {
            let tick = interval.tick().await;
            Some((tick, interval))
        });
        let ticks: Vec<_> =
            futures_lite::StreamExt::collect(futures_lite::StreamExt::take(ticks, 3)).await;
        assert!(ticks.is_sorted());
    });
}
