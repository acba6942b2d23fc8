//! Costs, printed with `--nocapture`. The tests make a short run, which only shows that they work;
//! `SOFTCLOCK_FRAMES=2000000` makes one to measure.

use std::thread;
use std::time::Instant;

use super::*;

/// The time of the receiving side for a frame, from the program to the ring: with early discard by credits; with as
/// many credits as frames, so that the kernel copies each frame and finds the ring full; and with a receiver.
#[test]
fn time_of_a_frame() {
    let frames = std::env::var("SOFTCLOCK_FRAMES").map_or(10_000, |frames| frames.parse().unwrap());
    let setup = setup!(settings(1));
    let key = udp(OURS, 7);
    let channel = setup.channels.add(&[key], LIMIT).unwrap();
    let shared = &setup.channels.shared;
    let (credits, account) = (&shared.maps.credits, channel.slot.account);
    let program = program::load(&shared.maps, 0, &shared.settings.link.filter).unwrap();
    let index = shared.link.index();
    for bytes in [100, 1500] {
        let mut sent = frame(&key, 0);
        sent.resize(bytes, 0);
        let run = |times| program.run_live(index, &sent, times).unwrap();
        run(100);
        for (name, granted) in [("early discard", 0), ("ring full", 1 << 40)] {
            credits.grant(account, granted);
            // The least of several runs, since other programs disturb them. Long ones, since each waits for an RCU
            // grace period first.
            let times = (0..5).map(|_| {
                let start = Instant::now();
                run(frames);
                start.elapsed()
            });
            let each = times.min().unwrap() / frames;
            println!("{bytes} bytes, {name}: {each:?} a frame");
            credits.grant(account, -granted);
        }
        channel.take_lost().unwrap();
        taken(&channel);
        let (received, time) = thread::scope(|scope| {
            let running = scope.spawn(|| {
                let start = Instant::now();
                program.run_live(index, &sent, frames).unwrap();
                start.elapsed()
            });
            let mut received = 0;
            while !running.is_finished() {
                received += channel.receive(drop).unwrap_or(0);
            }
            (received, running.join().unwrap())
        });
        let each = time / frames;
        println!(
            "{bytes} bytes, with a receiver: {each:?} a frame, {received} of {frames} received"
        );
    }
}

/// The time to add, to remove and to close channels.
#[test]
fn time_of_changes() {
    const CHANNELS: u16 = 64;
    let setup = setup!(settings(CHANNELS.into()));
    for name in ["new sockets", "sockets of removed channels"] {
        let start = Instant::now();
        let keys = (0..CHANNELS).map(|port| udp(OURS, port));
        let added: Vec<_> = keys
            .map(|key| setup.channels.add(&[key], LIMIT).unwrap())
            .collect();
        println!("add, {name}: {:?} each", start.elapsed() / CHANNELS.into());
        let start = Instant::now();
        drop(added);
        println!("remove: {:?} each", start.elapsed() / CHANNELS.into());
    }
    let start = Instant::now();
    drop(setup.channels);
    println!("close: {:?} for {CHANNELS}", start.elapsed());
}
