//! Differential fuzzing against smoltcp: streams both ways over a path with faults, in both roles.
//!
//! `SOFTCLOCK_SIMULATION_SEEDS=2000 cargo test -p softclock-model --test smoltcp` runs as many seeds, from
//! `SOFTCLOCK_SIMULATION_FIRST` on; `SOFTCLOCK_SIMULATION_SEED=7` repeats one.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use softclock_core::Instant;
use softclock_model::end::{End, Pair, Softclock};
use softclock_model::host::{host, socket};
use softclock_model::random::Random;
use softclock_model::smoltcp_peer::{Settings, SmoltcpHost};
use softclock_net::stack::{Architecture, TcpListenSettings};

#[test]
fn streams_between_softclock_and_smoltcp_are_intact() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("SOFTCLOCK_SIMULATION_SEED") {
        return run(seed);
    }
    let first = number("SOFTCLOCK_SIMULATION_FIRST").unwrap_or(1);
    let seeds = number("SOFTCLOCK_SIMULATION_SEEDS").unwrap_or(100);
    let is_failing = |seed: &u64| {
        let result = catch_unwind(AssertUnwindSafe(|| run(*seed)));
        if result.is_err() {
            println!(
                "repeat it: SOFTCLOCK_SIMULATION_SEED={seed} cargo test -p softclock-model --test smoltcp"
            );
        }
        result.is_err()
    };
    let failed: Vec<u64> = (first..first + seeds).filter(is_failing).collect();
    assert!(
        failed.is_empty(),
        "{} seeds of {seeds} fail: {failed:?}",
        failed.len()
    );
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let now = Instant::from_ns(1_000_000_000 + random.within(0..=20_000_000_000_000));
    let connects = random.chance(500);
    let ours = ours(&mut random, now, connects);
    let theirs = theirs(&mut random, now, !connects);
    let mut length = || match random.chance(200) {
        true => 0,
        false => random.magnitude(1..=200_000) as usize,
    };
    let lengths = [length(), length()];
    let mut pair = Pair::new([ours, theirs], lengths, now, random);
    if let Err(reason) = pair.run() {
        panic!("seed {seed}, {connects}: {reason}");
    }
    let bytes = lengths.iter().sum::<usize>() as u64;
    assert!(
        pair.packets < 20_000 + bytes * 4,
        "{} packets",
        pair.packets
    );
}

fn ours(random: &mut Random, now: Instant, connects: bool) -> Box<dyn End> {
    let architecture = Architecture::ALL[random.within(0..=2) as usize];
    let mut host = host(1, random.next(), |settings| {
        settings.architecture = architecture;
        let connection = &mut settings.tcp.connection;
        connection.has_sack = random.chance(700);
        connection.has_timestamps = random.chance(700);
        connection.has_window_scale = random.chance(700);
        connection.send.has_nagle = random.chance(600);
        if random.chance(300) {
            connection.receive.buffer_bytes = random.magnitude(2000..=200_000) as u32;
            connection.receive.most_buffer_bytes = connection.receive.buffer_bytes;
        }
        connection.send.retries = 30;
        connection.orphan_timeout = core::time::Duration::from_secs(3600);
        connection.fin_wait_2 = core::time::Duration::from_secs(3600);
    });
    let (mut id, mut listener) = (None, None);
    match connects {
        true => {
            id = Some(
                host.tcp_connect(now, None, socket(2, 80), None)
                    .expect("a flow"),
            )
        }
        false => {
            let settings = TcpListenSettings::with_backlog(10);
            listener = Some(
                host.tcp_listen(socket(1, 80), settings)
                    .expect("a free port"),
            );
        }
    }
    Box::new(Softclock { host, id, listener })
}

fn theirs(random: &mut Random, now: Instant, connects: bool) -> Box<dyn End> {
    let settings = Settings {
        receive_buffer: random.magnitude(2000..=200_000) as usize,
        send_buffer: random.magnitude(2000..=200_000) as usize,
        congestion: random.within(0..=2) as u8,
        has_nagle: random.chance(600),
        delays_ack: random.chance(600),
        seed: random.next(),
        ..Settings::default()
    };
    let mut host = SmoltcpHost::new(2, now, &settings);
    match connects {
        true => host.connect(1, 80),
        false => host.listen(80),
    }
    Box::new(host)
}
