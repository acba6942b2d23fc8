use super::*;
use alloc::format;
use alloc::string::String;
use proptest::prelude::*;
use proptest::sample::select;

fn linearly(filters: &[Filter], headers: &Headers) -> Option<usize> {
    filters.iter().position(|filter| filter.matches(headers))
}

/// Generates few different values, so that filters overlap and match packets. The ends of the ranges are among them.
fn address() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "0.0.0.0",
            "10.0.0.0",
            "10.0.0.1",
            "10.0.1.0",
            "10.255.255.255",
            "11.0.0.0",
            "255.255.255.255",
            "::",
            "::a00:1",
            "2001:db8::",
            "2001:db8::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ][..],
    )
}

fn prefix() -> impl Strategy<Value = String> {
    (address(), select(&[0u32, 1, 8, 24, 31, 32, 127, 128][..])).prop_map(|(address, bits)| {
        let most = if address.contains(':') { 128 } else { 32 };
        format!("{address}/{}", bits.min(most))
    })
}

fn port() -> impl Strategy<Value = u16> {
    select(&[0, 1, 79, 80, 81, 443, 65534, 65535][..])
}

fn ports() -> impl Strategy<Value = String> {
    (port(), port()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)))
}

fn number() -> impl Strategy<Value = u8> {
    select(&[0u8, 1, 6, 17, 46, 63][..])
}

fn filter() -> impl Strategy<Value = Filter> {
    let condition = prop_oneof![
        (select(&["src", "dst", "host"][..]), prefix()),
        (select(&["sport", "dport", "port"][..]), ports()),
        (
            select(&["proto", "dscp", "vlan"][..]),
            number().prop_map(|number| format!("{number}"))
        ),
    ];
    prop::collection::vec(condition, 0..4).prop_map(|conditions| {
        let mut filter = Filter::default();
        for (name, value) in conditions {
            // A condition that the filter has already is refused, and the first one stays.
            let _ = filter.add(name, &value);
        }
        filter
    })
}

fn headers() -> impl Strategy<Value = Headers> {
    let parse = |text: &str| -> IpAddr { text.parse().unwrap() };
    (
        prop::option::of((address().prop_map(parse), address().prop_map(parse))),
        prop::option::of((port(), port())),
        prop::option::of(number()),
        prop::option::of(number()),
        number(),
    )
        .prop_map(|(addresses, ports, protocol, vlan, dscp)| Headers {
            addresses,
            ports,
            protocol,
            vlan: vlan.map(u16::from),
            dscp,
            ..Headers::default()
        })
}

proptest! {
    /// The classifier agrees with the definition: the first filter that matches.
    #[test]
    fn as_if_tried_in_turn(
        filters in prop::collection::vec(filter(), 0..150),
        packets in prop::collection::vec(headers(), 1..40),
    ) {
        let classifier = Classifier::new(&filters);
        for headers in &packets {
            prop_assert_eq!(classifier.first_match(headers), linearly(&filters, headers));
        }
    }
}

#[test]
fn each_of_many_is_found() {
    let filters: Vec<Filter> = (0..1000)
        .map(|port| format!("proto udp dport {}", 5000 + port).parse().unwrap())
        .collect();
    let classifier = Classifier::new(&filters);
    let mut headers = Headers {
        protocol: Some(17),
        ..Headers::default()
    };
    for port in 4999..6001u16 {
        headers.ports = Some((9, port));
        let expected = (5000..6000)
            .contains(&port)
            .then(|| usize::from(port - 5000));
        assert_eq!(classifier.first_match(&headers), expected);
    }
    headers.protocol = Some(6);
    assert_eq!(classifier.first_match(&headers), None);
}

#[test]
fn without_filters_nothing_is_met() {
    let none: [Filter; 0] = [];
    let headers = Headers::default();
    assert_eq!(Classifier::new(&none).first_match(&headers), None);
    assert_eq!(
        Classifier::new(&[Filter::default()]).first_match(&headers),
        Some(0)
    );
}
