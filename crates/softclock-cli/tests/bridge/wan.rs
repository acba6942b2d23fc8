use crate::lab::{Lab, Place, lab, xdp_lab};
use crate::ping::{Echoes, ping};

fn through(lab: &Lab, arguments: &[&str], count: u32) -> Echoes {
    let bridge = lab.bridge("wan", arguments);
    let echoes = ping(lab, "10.77.0.2", count);
    bridge.end();
    echoes
}

#[test]
fn the_delay_is_added() {
    delay_is_added(&lab!(), "packet");
}

#[test]
fn the_delay_is_added_by_xdp() {
    delay_is_added(&xdp_lab!(), "xdp");
}

fn delay_is_added(lab: &Lab, mechanism: &str) {
    let median = |delay| {
        let arguments = ["--delay", delay, "--mechanism", mechanism];
        through(lab, &arguments, 40).median_ms()
    };
    let (without, one_way, both) = (median("0"), median("30ms,0"), median("30ms"));
    assert!(
        one_way >= 30.0 && one_way < without + 45.0,
        "{without} {one_way}"
    );
    assert!(both >= 60.0 && both < without + 80.0, "{without} {both}");
}

#[test]
fn jitter_spreads_and_keeps_order() {
    let lab = lab!();
    let echoes = through(
        &lab,
        &["--delay", "30ms", "--jitter", "20ms,0", "--seed", "3"],
        60,
    );
    let least = echoes.times_ms.iter().copied().fold(f64::MAX, f64::min);
    let most = echoes.times_ms.iter().copied().fold(0.0, f64::max);
    assert!(least >= 40.0 && most - least > 10.0, "{least} to {most}");
    assert!(echoes.numbers.is_sorted(), "{:?}", echoes.numbers);
    let reordered = ["--delay", "30ms", "--reorder", "30%,0", "--seed", "3"];
    let echoes = through(&lab, &reordered, 60);
    assert!(!echoes.numbers.is_sorted(), "{:?}", echoes.numbers);
}

/// Disables IPv6 and the search for neighbours, so that only the pings draw random numbers.
fn quiet(lab: &Lab) {
    for place in [Place::West, Place::Middle, Place::East] {
        lab.run(place, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    }
    lab.configure(Place::West, "link set west address 02:00:00:00:00:01");
    lab.configure(Place::East, "link set east address 02:00:00:00:00:02");
    let neighbour = "nud permanent";
    let west = format!("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev west {neighbour}");
    let east = format!("neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev east {neighbour}");
    lab.configure(Place::West, &west);
    lab.configure(Place::East, &east);
}

#[test]
fn a_seed_loses_the_same_packets() {
    softclock_testing::require!("sysctl");
    let lab = lab!();
    quiet(&lab);
    let run = |seed| through(&lab, &["--loss", "20%,0", "--seed", seed], 200).numbers;
    let (first, again, other) = (run("7"), run("7"), run("8"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    for numbers in [first, other] {
        assert!(
            (120..190).contains(&numbers.len()),
            "{} of 200",
            numbers.len()
        );
    }
}

#[test]
fn copies_arrive_and_damage_is_noticed() {
    softclock_testing::require!("sysctl");
    let lab = lab!();
    let echoes = through(&lab, &["--duplicate", "100%,0"], 20);
    // ping does not wait for the copy of the last.
    let copies = echoes.duplicates;
    assert!(echoes.numbers.len() == 20 && copies >= 19, "{copies}");
    // Set the neighbours first: the emulated damage could hit the search for them.
    quiet(&lab);
    let echoes = through(&lab, &["--corrupt", "100%,0"], 20);
    assert_eq!(echoes.numbers.len(), 0, "checksums tell");
}

#[test]
fn the_bottleneck_has_a_rate_and_a_queue() {
    let lab = lab!();
    let bridge = lab.bridge("wan", &["--rate", "8mbit,400mbit", "--queue", "20"]);
    let there = lab.iperf(5201, "-c 10.77.0.2 -u -b 20M");
    let tcp = lab.iperf(5201, "-c 10.77.0.2");
    assert!(there > 4.0 && there < 9.0, "{there} Mbit/s of 8");
    assert!(tcp > 2.0 && tcp < 9.0, "{tcp} Mbit/s of 8");
    let report = bridge.end();
    let events = &report["directions"][0]["classes"][0]["events"];
    assert!(
        events["dropped by a full queue"].as_u64() > Some(100),
        "{report}"
    );
}
