//! Costs, printed. Run with `--ignored --nocapture`.

use std::time::Instant;

use super::*;

/// The sender's time for a frame, on a veth pair, where the receiving kernel's work is done at once by the sender's
/// processor: with early discard by credits, and with as many credits as frames, so that the kernel copies each frame
/// and finds the ring full.
#[test]
#[ignore = "a measurement"]
fn time_of_a_discarded_frame() {
    const FRAMES: u64 = 400_000;
    let setup = setup!(settings(1));
    let key = udp(OURS, 7);
    let channel = setup.channels.add(&[key], LIMIT).unwrap();
    let (credits, account) = (&setup.channels.shared.maps.credits, channel.slot.account);
    for bytes in [100, 1500] {
        let mut sent = frame(&key, 0);
        sent.resize(bytes, 0);
        for (name, granted) in [("early discard", 0), ("ring full", 1 << 40)] {
            credits.grant(account, granted);
            let before = channel.delivered() + channel.discarded();
            let start = Instant::now();
            let batch = [(&sent[..], &Offload::NONE); BATCH];
            let mut offered = 0;
            while offered < FRAMES {
                offered += setup.sender.send(batch).unwrap_or(0) as u64;
            }
            let each = start.elapsed().as_nanos() / u128::from(offered);
            let seen = channel.delivered() + channel.discarded() - before;
            println!(
                "{bytes} bytes, {name}: {each} ns for each of {offered}, {seen} reached the program"
            );
            credits.grant(account, -granted);
        }
    }
}

/// The time to add, to remove and to close channels.
#[test]
#[ignore = "a measurement"]
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
