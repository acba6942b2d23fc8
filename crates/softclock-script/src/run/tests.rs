mod faulty;

use super::*;
use crate::stack_host::StackHost;

const LISTEN: &str =
    "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n";
const SYN: &str = "+0 < S 0:0(0) win 1000 <mss 1000>\n";
const SYN_ACK: &str = "+0 > S. 0:0(0) ack 1 win 65535 <mss 1460>\n";
const OPEN: &str = "+0.1 < . 1:1(0) ack 1 win 1000\n+0 accept(3, ..., ...) = 4\n";

fn verdict(parts: &[&str]) -> Verdict {
    run(&parts.concat(), &["STANDARD"], StackHost::new)
}

fn difference(parts: &[&str]) -> String {
    match verdict(parts) {
        Verdict::Failed(difference) => difference,
        other => panic!("{other}"),
    }
}

#[test]
fn a_script_that_the_host_obeys_passes() {
    assert_eq!(
        verdict(&[LISTEN, SYN, SYN_ACK, OPEN, "+0 //@ silent\n"]),
        Verdict::Passed
    );
}

#[test]
fn the_first_difference_is_shown_with_its_place() {
    let wrong_mss = "+0 > S. 0:0(0) ack 1 win 65535 <mss 1000>\n";
    assert_eq!(
        difference(&[LISTEN, SYN, wrong_mss]),
        "5:1: the options lack `mss 1000`: got `> S. 0:0(0) ack 1 win 65535 <mss 1460>` at 0.000000"
    );
    let wrong_flags = "+0 > R. 0:0(0) ack 1 win 0\n";
    assert!(difference(&[LISTEN, SYN, wrong_flags]).starts_with("5:1: the flags are not `R.`"));
}

#[test]
fn a_packet_that_is_not_sent_is_a_difference() {
    assert_eq!(
        difference(&[LISTEN, "+0.5 > . 1:1(0) ack 1\n"]),
        "4:1: no packet of the host until 0.500000"
    );
}

#[test]
fn a_packet_at_another_time_is_a_difference() {
    let late = "+0.5 > S. 0:0(0) ack 1 win 65535 <mss 1460>\n";
    assert_eq!(
        difference(&[LISTEN, SYN, late]),
        "5:1: the packet is sent at 0.000000, but expected at 0.500000"
    );
    let tolerant = "--tolerance_usecs=600000\n";
    assert_eq!(verdict(&[tolerant, LISTEN, SYN, late]), Verdict::Passed);
}

#[test]
fn an_unexpected_packet_fails_where_the_next_is_expected_or_silence() {
    let next = "+0.1 > . 1:1(0) ack 1\n";
    assert!(difference(&[LISTEN, SYN, next]).starts_with("5:1: the flags are not `.`: got `> S."));
    assert!(difference(&[LISTEN, SYN, "+0 //@ silent\n"]).starts_with("5:1: unexpected `> S."));
    assert_eq!(
        verdict(&[LISTEN, SYN]),
        Verdict::Passed,
        "behind the last event"
    );
}

#[test]
fn the_result_of_a_call_is_compared() {
    let read = |result: &str| format!("+0 read(4, ..., 10) = {result}\n");
    let nonblocking = "+0 fcntl(4, F_SETFL, O_RDWR | O_NONBLOCK) = 0\n";
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    assert_eq!(
        verdict(&[&open, nonblocking, &read("-1 EWOULDBLOCK (note)")]),
        Verdict::Passed
    );
    assert_eq!(
        difference(&[&open, nonblocking, &read("5")]),
        "9:1: read returned -1 EAGAIN"
    );
    assert_eq!(difference(&[&open, &read("0")]), "8:1: read blocks");
}

#[test]
fn a_call_that_blocks_returns_at_its_time() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    let data = "+0.3 < P. 1:11(10) ack 1 win 1000\n";
    let read = |end: &str| format!("+0...{end} read(4, ..., 100) = 10\n");
    assert_eq!(verdict(&[&open, &read("0.3"), data]), Verdict::Passed);
    assert_eq!(
        difference(&[&open, &read("0.6"), data]),
        "9:1: the call at 8:1: read returned at 0.400000"
    );
    assert_eq!(
        difference(&[&open, &read("0.2")]),
        "the call at 8:1: read has not returned until 0.300000"
    );
}

#[test]
fn what_the_runner_lacks_is_not_applicable() {
    for (script, reason) in [
        ("0 `kldload tcpmd5`\n", "command kldload tcpmd5"),
        (
            "0 `sysctl -w net.inet.tcp.unheard_of=1`\n",
            "sysctl net.inet.tcp.unheard_of",
        ),
        ("0 %{ assert 1 }%\n", "code in Python"),
        ("--udp_encapsulation=tcp\n", "TCP over UDP"),
        ("0 kqueue() = 5\n", "system call kqueue"),
        ("0 poll([{fd=4}], 1, 0) = 1\n", "system call poll"),
        ("0 epoll_create(1) = 5\n", "system call epoll_create"),
        (
            "0 epoll_wait(9, ..., 1, 0) = -1 EBADF\n",
            "system call epoll_wait",
        ),
    ] {
        assert_eq!(
            verdict(&[script]),
            Verdict::NotApplicable(reason.to_owned())
        );
    }
}

#[test]
fn the_state_of_connections_can_be_searched() {
    let searched = |count: u8| {
        format!("+0 `sockstat -4 -P tcp -s -p 8080 | grep -c SYN_RCVD | grep {count}`\n")
    };
    assert_eq!(
        verdict(&[LISTEN, &searched(0), SYN, SYN_ACK, &searched(1)]),
        Verdict::Passed
    );
    assert!(difference(&[LISTEN, &searched(1)]).contains("finds nothing"));
}

#[test]
fn an_owner_that_comes_with_its_calls_leaves_segments_waiting() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    let data = "+0.1 < . 1:1001(1000) ack 1 win 1000\n+0 < . 1001:2001(1000) ack 1 win 1000\n";
    let ack = "+0 > . 1:1(0) ack 2001\n";
    assert_eq!(verdict(&[&open, data, ack]), Verdict::Passed);
    let lazily = [&open, "//@ owner calls\n", data].concat();
    assert_eq!(
        verdict(&[&lazily, "+0 //@ silent\n//@ visit\n", ack]),
        Verdict::Passed
    );
    let late = difference(&[&lazily, ack]);
    assert!(late.starts_with("11:1: "), "{late}");
}

#[test]
fn options_of_a_listener_count_for_its_later_connections() {
    let stated = "+0 setsockopt(3, IPPROTO_IP, IP_TTL, [4], 4) = 0\n";
    let data = "+0 write(4, ..., 10) = 10\n+0 > (ttl 4) P. 1:11(10) ack 1\n";
    assert_eq!(
        verdict(&[LISTEN, stated, SYN, SYN_ACK, OPEN, data]),
        Verdict::Passed
    );
}

#[test]
fn an_option_that_would_change_nothing_is_not_applicable() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    for (name, value) in [
        ("SO_SNDBUF", "[5000]"),
        ("SO_RCVBUF", "[5000]"),
        ("TCP_MAXSEG", "[600]"),
        ("TCP_CONGESTION", "\"cubic\""),
    ] {
        let set = format!("+0 setsockopt(4, SOL_SOCKET, {name}, {value}, 4) = 0\n");
        assert_eq!(
            verdict(&[&open, &set]),
            Verdict::NotApplicable(format!("socket option {name} of a connection"))
        );
    }
    let set = "+0 setsockopt(3, SOL_SOCKET, SO_RCVBUF, [5000], 4) = 0\n";
    assert!(matches!(verdict(&[LISTEN, set]), Verdict::NotApplicable(_)));
}

/// The host closes first, and its connection waits.
const CLOSE: &str =
    "+0 close(4) = 0\n+0 > F. 1:1(0) ack 1\n+0 < F. 1:1(0) ack 2 win 1000\n+0 > . 2:2(0) ack 2\n";

#[test]
fn settings_count_from_their_time_on() {
    let open = [SYN, SYN_ACK, OPEN, CLOSE].concat();
    let early = "+1.1 < S 0:0(0) win 1000 <mss 1000>\n";
    let challenge = "+0 > . 2:2(0) ack 2\n";
    assert_eq!(
        verdict(&[LISTEN, &open, early, challenge]),
        Verdict::Passed,
        "the time in TIME-WAIT is 60 s"
    );
    let set = "//@ set time_wait=1000\n";
    let answer = "+0 > S. 0:0(0) ack 1 win 65535 <mss 1460>\n";
    assert_eq!(
        verdict(&[LISTEN, set, &open, early, answer]),
        Verdict::Passed
    );
    assert!(matches!(
        verdict(&[LISTEN, &open, set]),
        Verdict::NotApplicable(_)
    ));
}

#[test]
fn settings_of_connections_count_for_those_of_present_listeners() {
    let set = "//@ set keep_alive=1\n//@ set keep_alive_idle=1000\n";
    let probe = "+1 > . 0:0(0) ack 1 win 65535\n";
    assert_eq!(
        verdict(&[LISTEN, set, SYN, SYN_ACK, OPEN, probe]),
        Verdict::Passed
    );
    let offer = "//@ set sack=0\n";
    assert!(matches!(
        verdict(&[LISTEN, offer]),
        Verdict::NotApplicable(_)
    ));
}

#[test]
fn paths_are_forgotten() {
    let report = "+0 < icmp unreachable frag_needed mtu 1200 [1:1461(1460)]\n";
    let syn = "+0 < S 0:0(0) win 10000 <mss 1460>\n";
    let open = "+0 < . 1:1(0) ack 1 win 10000\n+0 accept(3, ..., ...) = 4\n";
    let data = "+0 write(4, ..., 1460) = 1460\n+0 > P. 1:1461(1460) ack 1\n";
    let other = "//@ flow 1\n+0 < S 0:0(0) win 10000 <mss 1460>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n\
                 +0 < . 1:1(0) ack 1 win 10000\n+0 accept(3, ..., ...) = 5\n+0 write(5, ..., 1460) = 1460\n";
    let begin = [
        LISTEN,
        syn,
        SYN_ACK,
        open,
        data,
        report,
        "+0 > . 1:1161(1160) ack 1\n+0 > P. 1161:1461(300) ack 1\n",
    ]
    .concat();
    let full = "+0 > P. 1:1461(1460) ack 1\n";
    let purge = "+0 `sysctl -w net.inet.tcp.hostcache.purgenow=1`\n";
    assert!(difference(&[&begin, other, full]).contains("the flags are not"));
    assert_eq!(verdict(&[&begin, purge, other, full]), Verdict::Passed);
}

#[test]
fn options_are_those_that_the_host_has() {
    let get = |number: u8, name: &str, value: u32| {
        format!("+0 getsockopt({number}, SOL_SOCKET, {name}, [{value}], [4]) = 0\n")
    };
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    for (name, before, after) in [
        ("SO_KEEPALIVE", 0, 1),
        ("TCP_NODELAY", 0, 1),
        ("TCP_KEEPIDLE", 7200, 10),
        ("IP_TTL", 64, 4),
        ("IP_TOS", 0, 0x20),
    ] {
        let set = format!("+0 setsockopt(4, SOL_SOCKET, {name}, [{after}], 4) = 0\n");
        let (before_it, after_it) = (get(4, name, before), get(4, name, after));
        let text = [open.as_str(), &before_it, &set, &after_it].concat();
        assert_eq!(verdict(&[&text]), Verdict::Passed);
        let unheard = run(&text, &["STANDARD"], faulty::FaultyHost::new);
        let difference = format!("10:1: {name} is {before}");
        assert_eq!(unheard, Verdict::Failed(difference));
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for (name, value) in [
        ("IP_TTL", 300),
        ("IP_TTL", 0),
        ("IP_TOS", 256),
        ("TCP_MAXSEG", 70_000),
        ("TCP_KEEPCNT", 256),
        ("SO_RCVBUF", 1_u64 << 32),
    ] {
        let set = format!("+0 setsockopt(3, SOL_SOCKET, {name}, [{value}], 4) = -1 EINVAL\n");
        assert_eq!(verdict(&[LISTEN, &set]), Verdict::Passed);
    }
}

#[test]
fn flags_of_recv_and_send_count_or_are_not_applicable() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    let data = "+0 < P. 1:11(10) ack 1 win 1000\n";
    let peek = "+0 recv(4, ..., 4, MSG_PEEK) = 4\n";
    let read = "+0 recv(4, ..., 100, MSG_DONTWAIT | MSG_NOSIGNAL) = 10\n";
    let none = "+0 recv(4, ..., 100, MSG_DONTWAIT) = -1 EAGAIN\n";
    assert_eq!(
        verdict(&[&open, data, peek, peek, read, none]),
        Verdict::Passed
    );
    let wrong = [&open, data, peek].concat();
    let wrong = run(&wrong, &["STANDARD"], faulty::FaultyHost::new);
    let difference = "9:1: byte 0 of the stream is not what was sent";
    assert_eq!(wrong, Verdict::Failed(difference.to_owned()));
    for (call, name) in [
        ("recv(4, ..., 1, MSG_OOB) = 1", "recv"),
        ("recv(4, ..., 1, MSG_UNHEARD) = 1", "recv"),
        ("send(4, ..., 1, MSG_PEEK) = 1", "send"),
    ] {
        let call = format!("+0 {call}\n");
        assert_eq!(
            verdict(&[&open, data, &call]),
            Verdict::NotApplicable(format!("these flags of {name}"))
        );
    }
}

#[test]
fn stated_fields_of_messages_are_compared() {
    let datagram = "+0 < (ttl 9) udp (10)\n";
    for (version, message, difference) in [
        ("4", "icmp unreachable port_unreachable [udp (10)]", ""),
        ("6", "icmp unreachable port_unreachable [udp (10)]", ""),
        ("4", "icmp unreachable port_unreachable mtu 0", ""),
        (
            "4",
            "(ttl 3) icmp unreachable port_unreachable",
            "the TTL is 64",
        ),
        (
            "4",
            "icmp unreachable port_unreachable mtu 7",
            "the parameter is 0",
        ),
        (
            "4",
            "icmp unreachable port_unreachable [udp (9)]",
            "the quote is of another packet",
        ),
        (
            "4",
            "icmp unreachable port_unreachable [1:1(0)]",
            "the quote is of another packet",
        ),
        (
            "4",
            "icmp unreachable host_unreachable",
            "type and code are (3, 3)",
        ),
    ] {
        let option = format!("--ip_version=ipv{version}\n");
        let expected = format!("+0 > {message}\n");
        match verdict(&[&option, datagram, &expected]) {
            Verdict::Passed => assert_eq!(difference, "", "{message}"),
            Verdict::Failed(found) => {
                assert!(
                    !difference.is_empty() && found.contains(difference),
                    "{message}: {found}"
                );
            }
            other => panic!("{other}"),
        }
    }
    let message = "+0 > icmp unreachable port_unreachable [udp (10)]\n";
    let other = difference(&[datagram, "//@ flow 2\n", message]);
    assert!(
        other.contains("in the quote, the packet is from 192.0.2.1:50000 to"),
        "{other}"
    );
}

#[test]
fn hostile_scripts_have_a_verdict() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    let many = vec!["1"; 100_000].join("|");
    let sacks = "1:2 ".repeat(32);
    let stamps = "<mss 1460,TS val 1 ecr 0,sackOK>";
    for (begin, rest) in [
        ("", format!("0 fcntl(4, F_SETFL, {many}) = 0\n")),
        ("", format!("0 close({}3) = 0\n", "(".repeat(100_000))),
        (
            "",
            "0 close(-9223372036854775807 - 1 / -1) = 0\n".to_owned(),
        ),
        ("", "0 < udp (65520)\n".to_owned()),
        ("", "0 < udp (65535)\n".to_owned()),
        (
            "",
            "0 < icmp unreachable port_unreachable [udp (4294967295)]\n".to_owned(),
        ),
        ("", "0 < . 0:65535(65535) ack 1 win 1\n".to_owned()),
        (
            "--ip_version=ipv6\n",
            "0 < . 0:65535(65535) ack 1 win 1\n".to_owned(),
        ),
        ("", format!("0 < . 1:1(0) ack 1 win 1 <sack {sacks}>\n")),
        (
            "",
            "0 < . 1:1(0) ack 1 win 1 <sack 1:2 3:4 5:6 7:8,TS val 1 ecr 1>\n".to_owned(),
        ),
        ("--mtu=0\n", SYN.to_owned()),
        ("--mtu=18446744073709551615\n", SYN.to_owned()),
        ("--local_ip=fd00::1\n", SYN.to_owned()),
        ("--remote_ip=fd00::1\n", SYN.to_owned()),
        (
            "--tolerance_usecs=18446744073709551615\n",
            [SYN, "+0 > R 0:0(0)\n"].concat(),
        ),
        (
            &open,
            "+0 read(4, ..., 0x7fffffffffffffff) = 1\n".to_owned(),
        ),
        (
            &open,
            "+0 recv(4, ..., 0x7fffffffffffffff, MSG_PEEK) = 1\n".to_owned(),
        ),
        (
            &open,
            "+0 write(4, ..., 4294967295) = 4294967295\n".to_owned(),
        ),
        (&open, "+0 write(4, ..., 4294967296) = 0\n".to_owned()),
        (
            &open,
            "+0 write(4, ..., 0x7fffffffffffffff) = 1\n".to_owned(),
        ),
        (
            &open,
            "+0 setsockopt(4, IPPROTO_TCP, TCP_KEEPIDLE, [0x7fffffffffffffff], 8) = 0\n".to_owned(),
        ),
        ("//@ set receive_buffer=4294967295\n", open.clone()),
        ("//@ set send_buffer=4294967295\n", open.clone()),
        ("//@ set initial_rto=18446744073709551615\n", open.clone()),
        (
            "//@ set time_wait=18446744073709551615\n",
            "0 < . 1:1(0) ack 1 win 1\n".to_owned(),
        ),
        ("//@ set time_wait=18446744073709551615\n", open.clone()),
        ("//@ set ack_delay=18446744073709551615\n", open.clone()),
        ("//@ set syn_queue=0\n", open.clone()),
        (
            "--tcp_ts_tick_usecs=18446744073709551615\n",
            format!(
                "{LISTEN}+0 < S 0:0(0) win 1000 {stamps}\n+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 1 ecr 1>\n\
             +0 < P. 1:11(10) ack 1 win 9 <TS val 2 ecr 1>\n+0.04 > . 1:1(0) ack 11 <TS val 4000000000 ecr 2>\n",
            ),
        ),
    ] {
        let verdict = verdict(&[begin, &rest]);
        assert_ne!(
            verdict,
            Verdict::Passed,
            "{begin}{}",
            rest.get(..80).unwrap_or(&rest)
        );
    }
}

#[test]
fn the_mode_of_a_socket_is_a_set_of_flags() {
    for (mode, flags) in [
        ("SOCK_STREAM", 2),
        ("SOCK_STREAM | SOCK_CLOEXEC", 2),
        ("SOCK_STREAM | SOCK_NONBLOCK", 6),
        ("SOCK_NONBLOCK | SOCK_STREAM", 6),
        ("SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC", 6),
    ] {
        let socket = format!("0 socket(..., {mode}, IPPROTO_TCP) = 3\n");
        let get = format!("+0 fcntl(3, F_GETFL) = {flags}\n");
        assert_eq!(verdict(&[&socket, &get]), Verdict::Passed, "{mode}");
    }
    assert!(matches!(
        verdict(&["0 socket(..., SOCK_DGRAM | SOCK_NONBLOCK, 0) = 3\n"]),
        Verdict::NotApplicable(_)
    ));
    let open = "+0.1 < . 1:1(0) ack 1 win 1000\n";
    for (mode, flags) in [
        ("0", 2),
        ("SOCK_CLOEXEC", 2),
        ("SOCK_NONBLOCK", 6),
        ("SOCK_NONBLOCK | SOCK_CLOEXEC", 6),
    ] {
        let accept = format!("+0 accept4(3, ..., ..., {mode}) = 4\n");
        let get = format!("+0 fcntl(4, F_GETFL) = {flags}\n");
        let text = [LISTEN, SYN, SYN_ACK, open, &accept, &get];
        assert_eq!(verdict(&text), Verdict::Passed, "{mode}");
    }
}

#[test]
fn connections_in_time_wait_are_dropped_with_or_without_a_socket() {
    let open = [LISTEN, SYN, SYN_ACK, OPEN].concat();
    let drop = "+0 `tcpdrop -s TIME_WAIT`\n";
    let fin = "+0 < F. 1:1(0) ack 2 win 1000\n";
    let ack = "+0 > . 2:2(0) ack 2\n";
    let reset = "+0 > R 2:2(0) win 0\n";
    let close_half = "+0 shutdown(4, SHUT_WR) = 0\n+0 > F. 1:1(0) ack 1\n";
    let keeps = [close_half, fin, ack].concat();
    for end in [CLOSE, &keeps] {
        assert_eq!(verdict(&[&open, end, fin, ack]), Verdict::Passed);
        assert_eq!(verdict(&[&open, end, drop, fin, reset]), Verdict::Passed);
    }
}

#[test]
fn the_rate_of_a_listener_counts_for_its_connections() {
    let rate = "+0 setsockopt(3, SOL_SOCKET, SO_MAX_PACING_RATE, [10000], 4) = 0\n";
    let write = "+0 write(4, ..., 3000) = 3000\n";
    let syn = "+0 < S 0:0(0) win 10000 <mss 1000>\n";
    let open = "+0.1 < . 1:1(0) ack 1 win 10000\n+0 accept(3, ..., ...) = 4\n";
    let segments = ["1:1001(1000)", "1001:2001(1000)"];
    let [first, second] = segments.map(|range| format!("> . {range} ack 1\n"));
    let unpaced = [
        LISTEN, syn, SYN_ACK, open, write, "+0 ", &first, "+0 ", &second,
    ];
    assert_eq!(verdict(&unpaced), Verdict::Passed);
    let paced = [
        LISTEN,
        rate,
        syn,
        SYN_ACK,
        open,
        write,
        "+0 ",
        &first,
        "+0.1~+0.11 ",
        &second,
    ];
    assert_eq!(verdict(&paced), Verdict::Passed);
}
