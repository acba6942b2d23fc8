use std::time::Duration;

use proptest::prelude::*;
use softclock_net::tcp::segment::Flags;

use super::*;
use crate::wire::TcpOption;

fn parse(text: &str) -> Script {
    Script::parse(text, &[]).unwrap()
}

fn only_event(text: &str) -> Event {
    let mut events = parse(text).events;
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

fn only_packet(text: &str) -> PacketSpec {
    match only_event(text).action {
        Action::Packet(packet) => packet,
        other => panic!("{other:?}"),
    }
}

fn only_segment(text: &str) -> SegmentSpec {
    match only_packet(text).body {
        Body::Tcp(segment) => segment,
        other => panic!("{other:?}"),
    }
}

fn only_call(text: &str) -> Call {
    match only_event(text).action {
        Action::Call(call) => call,
        other => panic!("{other:?}"),
    }
}

fn mistake(text: &str) -> String {
    Script::parse(text, &[]).unwrap_err().to_string()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn times_are_absolute_relative_ranges_or_any() {
    let time = |text: &str| {
        let event = only_event(&format!("{text} close(3) = 0"));
        (event.time, event.end)
    };
    assert_eq!(time(" 1.5"), (Time::Absolute(ms(1500)), None));
    assert_eq!(time("2"), (Time::Absolute(ms(2000)), None));
    assert_eq!(time("+.1"), (Time::Relative(ms(100)), None));
    assert_eq!(time("+ 0.25"), (Time::Relative(ms(250)), None));
    assert_eq!(
        time("0.1~0.2"),
        (Time::AbsoluteRange(ms(100), ms(200)), None)
    );
    assert_eq!(
        time("+0.1~+0.2"),
        (Time::RelativeRange(ms(100), ms(200)), None)
    );
    assert_eq!(time("*"), (Time::Any, None));
    assert_eq!(
        time(" 1.00...6.00"),
        (Time::Absolute(ms(1000)), Some(ms(6000)))
    );
    assert_eq!(time("+0...0.2"), (Time::Relative(ms(0)), Some(ms(200))));
}

#[test]
fn comments_and_directives_stand_between_events() {
    let script = parse(
        "// One\n/* two\n three */ 0 close(3) = 0// four\n# five\n//@ owner every 0.05\n//@ set pacing=1\n\
         +1 //@ silent\n//@ flow 2\n//@ visit\n",
    );
    let actions: Vec<_> = script
        .events
        .into_iter()
        .map(|event| event.action)
        .collect();
    assert!(matches!(&actions[0], Action::Call(call) if call.name == "close"));
    let directives = [
        Directive::Owner(Owner::Every(ms(50))),
        Directive::Set("pacing".to_owned(), "1".to_owned()),
        Directive::Silent,
        Directive::Flow(2),
        Directive::Visit,
    ];
    assert_eq!(actions[1..], directives.map(Action::Directive));
}

#[test]
fn conditions_choose_lines_and_keep_positions() {
    let text = "#ifdef A\n 0 close(1) = 0\n#else\n 0 close(2) = 0\n#endif\n#ifndef A\n 0 close(3) = 0\n#endif\n";
    let names = |defined: &[&str]| {
        let events = Script::parse(text, defined).unwrap().events;
        let lines = events.iter().map(|event| event.at.line);
        lines.collect::<Vec<_>>()
    };
    assert_eq!(names(&["A"]), [2]);
    assert_eq!(names(&[]), [4, 7]);
    assert_eq!(
        mistake("0 close(1) = 0\n#endif\n"),
        "2:1: expected `#ifdef` before `#endif`"
    );
    assert_eq!(
        mistake("#ifdef A\n"),
        "1:1: expected `#endif` for this condition"
    );
}

#[test]
fn calls_have_arguments_results_and_errors() {
    let call = only_call("+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)");
    assert_eq!(call.arguments.len(), 3);
    assert_eq!(call.result, ResultValue::Is(Expression::Integer(-1)));
    assert_eq!(call.errno.as_deref(), Some("EINPROGRESS"));

    let call = only_call("+0 fcntl(3, F_GETFL) = 0x02 (flags O_RDWR)");
    assert_eq!(call.result, ResultValue::Is(Expression::Integer(2)));

    let call = only_call("+0 fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0");
    assert!(matches!(call.arguments[2], Expression::Binary("|", _)));

    let call = only_call("+0 setsockopt(3, SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0");
    let linger = call.arguments[3].field("onoff");
    assert_eq!(linger, Some(&Expression::Integer(1)));

    let address =
        "{sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr(\"1.2.3.4\")}";
    let call = only_call(&format!("+0 bind(3, {address}, ...) = 0"));
    assert!(matches!(
        call.arguments[1].field("sin_port"),
        Some(Expression::Function(..))
    ));
}

#[test]
fn segments_have_flags_ranges_and_options() {
    let segment =
        only_segment("+0 > SEW 0:0(0) win 65535 <mss 1460,nop,wscale 6,sackOK,TS val   100 ecr 0>");
    assert_eq!(segment.flags, Flags::SYN | Flags::ECE | Flags::CWR);
    assert_eq!(segment.window, Some(65535));
    let options = segment.options.unwrap();
    assert_eq!(options.len(), 5);
    assert_eq!(
        options[4],
        TcpOption::Timestamps {
            value: 100,
            echo: 0
        }
    );

    let segment = only_segment("+0 <  . 200:300(100) ack   1 win 65535 <nop,nop,sack 5:9 1:2>");
    assert_eq!(
        segment.range,
        Some(Range {
            start: 200,
            length: 100
        })
    );
    let options = segment.options.unwrap();
    assert_eq!(options[2], TcpOption::Sack(vec![(5, 9), (1, 2)]));

    let any = only_segment("+0 > S. ...(0) ack 65537 <...>");
    assert_eq!((any.range, any.options, any.window), (None, None, None));

    let absolute = only_segment("+0 > R. 0:0(0)! ack 1 win 0");
    assert!(absolute.is_absolute);

    let wrapped = only_segment("+0 < . 4294967295:1(2) ack 4294967295 win 1");
    assert_eq!(wrapped.acknowledgment, Some(u32::MAX));
}

#[test]
fn fields_of_ip_come_before_the_segment() {
    let packet = only_packet("+0 > (ttl 4)  . 1:1(0) ack 1");
    assert_eq!((packet.ttl, packet.class), (Some(4), None));
    let packet = only_packet("+0 < (class 0x20) [ce] . 1:1(0) ack 1");
    assert_eq!(
        (packet.class, packet.ecn),
        (Some(0x20), Some(Ecn::Experienced))
    );
}

#[test]
fn messages_of_icmp_quote_segments_or_datagrams() {
    let message = |text: &str| match only_packet(text).body {
        Body::Icmp(message) => message,
        other => panic!("{other:?}"),
    };
    let frag_needed = message("+0 < icmp unreachable frag_needed mtu 1234 [0:0(0)]");
    assert_eq!(
        (frag_needed.mtu, frag_needed.numbers(false)),
        (Some(1234), Some((3, 4)))
    );
    let quench = message("+0 <icmp source_quench [0:0(0)]");
    assert_eq!(quench.numbers(false), Some((4, 0)));
    assert_eq!(quench.numbers(true), None);
    let problem = message("+0 < icmp parameter_problem code_1 [udp (9)]");
    assert_eq!(
        (problem.numbers(true), problem.quoted),
        (Some((4, 1)), Quoted::Datagram(9))
    );
}

#[test]
fn errors_say_the_place_and_what_is_expected() {
    assert_eq!(
        mistake(" 0.0 < S 0:0(0) win 70000\n"),
        "1:21: expected a window up to 65535"
    );
    assert_eq!(
        mistake("0 < S 0:7(6) win 1\n"),
        "1:11: expected the length of the range before it"
    );
    assert_eq!(mistake("0 close(3)\n"), "2:1: expected `=`");
    assert_eq!(
        mistake("hello\n"),
        "1:1: expected an event: a time, a command in backquotes, or a directive"
    );
    assert_eq!(mistake("0 `sysctl\n"), "2:1: expected a closing backquote");
    for text in [
        "0 close(1) = 0\n/* x",
        "0 close(1\n/* x",
        "0 close(1) = 0\n/*/ x",
    ] {
        assert_eq!(mistake(text), "2:1: expected `*/` behind this comment");
    }
    assert!(mistake("0 > Q 0:0(0)").starts_with("1:5: expected flags"));
}

#[test]
fn features_of_other_protocols_are_unsupported_not_mistakes() {
    for text in [
        "0 < sctp: COOKIE_ACK[flgs=0]",
        "0 < S 0:0(0) win 1 <mss 9,md5 valid>",
        "0 < R 0:0(0) win 1/udp(1 > 9811)",
    ] {
        let error = Script::parse(text, &[]).unwrap_err();
        assert!(matches!(error.reason, Reason::Unsupported(_)), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_a_panic(text in ".{0,200}") {
        let _ = Script::parse(&text, &["A"]);
    }

    #[test]
    fn any_tokens_are_parsed_without_a_panic(tokens in prop::collection::vec(prop::sample::select(vec![
        "+0.1 ", "<", ">", " . ", "1:2(1)", "ack", " 5 ", "<nop", ",", ">", "close", "(", ")", "=", "-", "{", "}", "[",
        "]", "%{", "}%", "`", "//@ ", "owner", "set a=b\n", "\n", "#ifdef A\n", "#else\n", "#endif\n", "...", "icmp ",
        "|", "~", "\"", "0x", "é", "/*", "*/", "--a=b\n", "!", "sack 1:2 ", "TS val ", "*",
    ]), 0..60)) {
        let _ = Script::parse(&tokens.concat(), &["A"]);
    }
}
