//! Formats the activity of a server on a network stack of its own.

use std::fmt::Write;

use super::{Change, number, signalling};

/// Appends the stack, its packets and its services.
pub(super) fn lines(text: &mut String, change: &Change<'_>) {
    let info = |label| {
        let values = change.current.by_label("softclock_stack_info", label);
        values.keys().next().copied().unwrap_or_default()
    };
    let [interface, mechanism, architecture] = ["interface", "mechanism", "architecture"].map(info);
    // Writing to a `String` does not fail.
    let _ = writeln!(
        text,
        "stack        on {interface} by {mechanism}, {architecture}"
    );
    for (title, name) in [
        ("packets", "softclock_stack_frames_total"),
        ("datagrams", "softclock_stack_datagrams_total"),
    ] {
        let rates = change.rates(name, "direction");
        let [received, sent] = ["received", "sent"].map(|direction| {
            let rate = rates.iter().find(|(of, _)| *of == direction);
            number(rate.map_or(0.0, |(_, rate)| *rate))
        });
        let _ = writeln!(text, "{title:<12} {received:>9} /s   in, {sent} /s out");
    }
    // Absent from the page of an earlier version.
    if change.current.has("softclock_stack_verdicts_total") {
        let verdicts = change.rates("softclock_stack_verdicts_total", "verdict");
        let rate: f64 = verdicts.iter().map(|(_, rate)| rate).sum();
        let _ = writeln!(
            text,
            "verdicts     {:>9} /s   {}",
            number(rate),
            largest(verdicts)
        );
    }
    signalling::lines(text, change, signalling::FRAMES);
    let bytes = change.rates("softclock_echo_bytes_total", SERVICE);
    for (service, rate) in change.rates("softclock_echo_datagrams_total", SERVICE) {
        let bytes = bytes.iter().find(|(of, _)| *of == service);
        let bytes = bytes.map_or(0.0, |(_, bytes)| *bytes);
        let [rate, bytes] = [rate, bytes].map(number);
        let _ = writeln!(text, "{service:<12} {rate:>9} /s   {bytes}B/s");
    }
    let pings = number(change.rate("softclock_stack_echoes_total"));
    let _ = writeln!(text, "pings        {pings:>9} /s");
    let conflicts = change
        .current
        .value("softclock_stack_address_conflicts_total");
    if conflicts > 0.0 {
        let conflicts = number(conflicts);
        let _ = writeln!(
            text,
            "conflicts    {conflicts:>9}     messages: another host uses an address of the stack"
        );
    }
}

/// Appends TCP, if there was any: connections by state, segments, what was sent again and why, and how handshakes fare.
pub(super) fn tcp(text: &mut String, change: &Change<'_>) {
    let segments = change.rates("softclock_tcp_segments_total", "direction");
    let all = change
        .current
        .by_label("softclock_tcp_segments_total", "direction");
    if all.values().all(|&segments| segments == 0.0) {
        return;
    }
    let [received, sent] = ["received", "sent"].map(|direction| {
        let rate = segments.iter().find(|(of, _)| *of == direction);
        number(rate.map_or(0.0, |(_, rate)| *rate))
    });
    // Writing to a `String` does not fail.
    let _ = writeln!(text, "segments     {received:>9} /s   in, {sent} /s out");
    let states = change
        .current
        .by_label("softclock_tcp_connections", "state");
    let count: f64 = states.values().sum();
    let states = largest(states.into_iter().collect());
    let _ = writeln!(text, "tcp          {:>9}     {states}", number(count));
    let value = |name| number(change.current.value(name));
    let _ = writeln!(
        text,
        "tcp memory   {:>9}B    {} without owner, {} to accept",
        value("softclock_tcp_memory_bytes"),
        value("softclock_tcp_orphaned_connections"),
        value("softclock_tcp_waiting_connections"),
    );
    for (title, name, label) in [
        (
            "sent again",
            "softclock_tcp_retransmitted_segments_total",
            "cause",
        ),
        ("recovery", "softclock_tcp_events_total", "event"),
        ("cookies", "softclock_tcp_cookies_total", "outcome"),
        (
            "queues full",
            "softclock_tcp_queue_overflows_total",
            "queue",
        ),
        (
            "challenges",
            "softclock_tcp_challenge_acks_total",
            "outcome",
        ),
    ] {
        let rates = change.rates(name, label);
        let rate: f64 = rates.iter().map(|(_, rate)| rate).sum();
        // What is rare is not shown while it does not happen, but for retransmissions.
        if rate > 0.0 || title == "sent again" {
            let rates = largest(rates);
            let _ = writeln!(text, "{title:<12} {:>9} /s   {rates}", number(rate));
        }
    }
    let sack = change.rate("softclock_tcp_sack_blocks_total");
    if sack > 0.0 {
        let sack = number(sack);
        let _ = writeln!(
            text,
            "sack         {sack:>9} /s   ranges acknowledged selectively"
        );
    }
}

/// The values above zero with their names, the largest first.
fn largest(mut values: Vec<(&str, f64)>) -> String {
    values.retain(|&(_, value)| value > 0.0);
    values.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named = values
        .iter()
        .map(|(name, value)| format!("{} {name}", number(*value)));
    named.collect::<Vec<_>>().join(", ")
}

/// Appends the packets lost now: those dropped, by reason, the most frequent first; then those of the device and the
/// link.
pub(super) fn drops(text: &mut String, change: &Change<'_>) {
    let mut drops = change.rates("softclock_stack_drops_total", "reason");
    drops.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = drops.iter().map(|(_, rate)| rate).sum();
    let _ = writeln!(text, "\ndropped      {:>9} /s", number(all));
    drops.push((
        "lost in the device",
        change.rate("softclock_stack_lost_total"),
    ));
    drops.push((
        "refused by the link",
        change.rate("softclock_stack_refused_total"),
    ));
    for (reason, rate) in drops.into_iter().filter(|(_, rate)| *rate > 0.0) {
        let _ = writeln!(text, "  {reason:<20} {:>9} /s", number(rate));
    }
}

const SERVICE: &str = "service";

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::top::sample::Sample;

    /// The page of a server after `n` seconds; `drops` are the packets dropped in each of them, by reason.
    fn page(n: u64, drops: &[(&str, u64)], conflicts: u64) -> String {
        let mut page = format!(
            "softclock_threads 1\n\
             softclock_stack_info{{interface=\"sc0\",mechanism=\"tap\",architecture=\"soft-lrp\"}} 1\n\
             softclock_stack_frames_total{{direction=\"received\"}} {}\n\
             softclock_stack_frames_total{{direction=\"sent\"}} {}\n\
             softclock_stack_verdicts_total{{verdict=\"channel\"}} {}\n\
             softclock_stack_verdicts_total{{verdict=\"control\"}} {}\n\
             softclock_stack_verdicts_total{{verdict=\"fragment\"}} 5\n\
             softclock_stack_verdicts_total{{verdict=\"drop\"}} {}\n\
             softclock_stack_datagrams_total{{direction=\"received\"}} {}\n\
             softclock_stack_datagrams_total{{direction=\"sent\"}} {}\n\
             softclock_stack_echoes_total {}\n\
             softclock_stack_lost_total {}\nsoftclock_stack_refused_total 7\n\
             softclock_stack_address_conflicts_total {conflicts}\n\
             softclock_echo_datagrams_total{{service=\"echo\"}} {}\n\
             softclock_echo_datagrams_total{{service=\"discard\"}} 3\n\
             softclock_echo_bytes_total{{service=\"echo\"}} {}\n\
             softclock_echo_bytes_total{{service=\"discard\"}} 300\n",
            25_000 * n,
            12_000 * n,
            20_000 * n,
            4 * n,
            4_996 * n,
            20_000 * n,
            11_500 * n,
            2 * n,
            40 * n,
            20_000 * n,
            2_000_000 * n,
        );
        for (reason, count) in drops {
            page += &format!(
                "softclock_stack_drops_total{{reason=\"{reason}\"}} {}\n",
                count * n
            );
        }
        page
    }

    fn tcp_page(n: u64) -> String {
        let mut page = page(n, &[], 0);
        for (metric, value) in [
            ("segments_total{direction=\"received\"}", 3000 * n),
            ("segments_total{direction=\"sent\"}", 5000 * n),
            ("connections{state=\"established\"}", 64),
            ("connections{state=\"syn_received\"}", 0),
            ("connections{state=\"time_wait\"}", 700),
            ("memory_bytes", 1_234_000),
            ("orphaned_connections", 2),
            ("waiting_connections", 0),
            ("retransmitted_segments_total{cause=\"rack\"}", 12 * n),
            ("retransmitted_segments_total{cause=\"tail_probe\"}", 30 * n),
            ("retransmitted_segments_total{cause=\"timeout\"}", 7),
            ("events_total{event=\"recovery\"}", 4 * n),
            ("cookies_total{outcome=\"sent\"}", 7),
            ("sack_blocks_total", 25 * n),
        ] {
            page += &format!("softclock_tcp_{metric} {value}\n");
        }
        page
    }

    fn shown(drops: &[(&str, u64)], conflicts: u64) -> String {
        let now = Instant::now();
        let sample = |n, at| Sample::parse(&page(n, drops, conflicts), at).unwrap();
        let (before, after) = (sample(1, now), sample(3, now + Duration::from_secs(2)));
        super::super::text(&before, &after, "x", 80)
    }

    #[test]
    fn packets_services_and_pings_in_place_of_requests() {
        let text = shown(&[], 0);
        for part in [
            "stack        on sc0 by tap, soft-lrp\n",
            "packets          25.0k /s   in, 12.0k /s out\n",
            "verdicts         25.0k /s   20.0k channel, 4996 drop, 4 control\n",
            "datagrams        20.0k /s   in, 11.5k /s out\n",
            "echo             20.0k /s   2.0MB/s\n",
            "discard              0 /s   0B/s\n",
            "pings                2 /s\n",
            "timers               0     pending",
            "threads           100%     busy",
            "trigger states",
            "between triggers",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        for part in ["requests", "connections", "sent ", "conflicts", "refused"] {
            assert!(!text.contains(part), "{part:?} is in\n{text}");
        }
    }

    #[test]
    fn tcp_is_shown_with_its_states_and_what_was_sent_again_now() {
        let now = Instant::now();
        let sample = |n, at| Sample::parse(&tcp_page(n), at).unwrap();
        let (before, after) = (sample(1, now), sample(3, now + Duration::from_secs(2)));
        let text = super::super::text(&before, &after, "x", 80);
        let expected = "segments          3000 /s   in, 5000 /s out\n\
            tcp                764     700 time_wait, 64 established\n\
            tcp memory        1.2MB    2 without owner, 0 to accept\n\
            sent again          42 /s   30 tail_probe, 12 rack\n\
            recovery             4 /s   4 recovery\n\
            sack                25 /s   ranges acknowledged selectively\n";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("cookies"), "{text}");
        assert!(!shown(&[], 0).contains("tcp"), "without segments");
    }

    #[test]
    fn only_reasons_of_packets_dropped_now_are_shown_the_most_frequent_first() {
        let drops = [
            ("arp", 0),
            ("channel_full", 1_500),
            ("udp_checksum", 20_000),
        ];
        let text = shown(&drops, 0);
        let expected = "\ndropped          21.5k /s\n  \
            udp_checksum             20.0k /s\n  \
            channel_full              1500 /s\n  \
            lost in the device          40 /s\n\ntrigger states";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn conflicts_of_addresses_stay_visible() {
        let text = shown(&[], 4);
        let line =
            "conflicts            4     messages: another host uses an address of the stack\n";
        assert!(text.contains(line), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
