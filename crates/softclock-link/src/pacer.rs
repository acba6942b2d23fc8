//! The discipline of paced classes, on a byte clock (*PSPacer/HT*, II-B).
//!
//! - [`class`]: parses the text of a class.

mod class;

use std::collections::VecDeque;
use std::time::Duration;

use softclock_core::pacing::{ByteClock, ClassId, Dequeued, GsoSizes, wire_bytes};
use softclock_core::{Instant, Rate};
use softclock_linux::link::Pool;
use softclock_wire::packet::{Classifier, Headers, Segments, segments};

use crate::frame::{Activity, Discipline, Frame, NamedCounts, Next, Row, UNKNOWN_TUNNEL};
use crate::tolerance::Tolerance;
pub use class::{Class, ClassError};

/// The link that the classes share, and the settings common to all of them.
#[derive(Clone, Copy, Debug)]
pub struct PacerOptions {
    /// The rate of the link.
    pub link: Rate,
    /// How late a packet may be sent, so that packets that are due within this time leave by one system call. Zero for
    /// none. It includes the usual lateness of a wait: from [`LATE_WAIT`](crate::LATE_WAIT) on, the thread does not
    /// spin before departures.
    pub tolerance: Duration,
    /// Bytes on the wire that each frame adds to its own length: 24 on Ethernet.
    pub overhead_bytes: u32,
}

/// The paced classes of one direction.
#[derive(Debug)]
pub struct Pacer {
    clock: ByteClock<Frame>,
    classes: Vec<Paced>,
    /// Finds the first matching filter; its result is an index into `order`.
    classifier: Classifier,
    /// Indices into `classes` in matching order: the default class last.
    order: Vec<usize>,
    has_default: bool,
    /// Frames of no class, which leave at once, each with its bytes on the wire.
    unpaced: VecDeque<(Frame, u64)>,
    unpaced_row: Row,
    overhead_bytes: u32,
    is_rough: bool,
    /// Buffers for the segments of large frames.
    pool: Pool,
}

#[derive(Debug)]
struct Paced {
    id: ClassId,
    name: String,
    rate: Rate,
    whole_bytes: u64,
    unknown_tunnels: u64,
    activity: Activity,
}

impl Pacer {
    /// Creates the classes of a link, with their clocks starting at `now`. A frame belongs to the first class whose
    /// filter matches it; the default class comes last wherever it stands in `classes`.
    pub fn new(classes: &[Class], options: PacerOptions, now: Instant) -> Self {
        let mut clock = ByteClock::new(options.link, now);
        let tolerance = Tolerance::of(options.tolerance);
        clock.set_tolerance(tolerance.wait);
        let paced = classes.iter().enumerate().map(|(index, class)| Paced {
            id: clock.add_class(class.options),
            name: class
                .name
                .clone()
                .unwrap_or_else(|| match class.is_default {
                    true => "default".into(),
                    false => (index + 1).to_string(),
                }),
            rate: class.options.rate,
            whole_bytes: class.whole_bytes,
            unknown_tunnels: 0,
            activity: Activity::default(),
        });
        let mut order: Vec<usize> = (0..classes.len()).collect();
        // A stable sort: the other classes keep the order in which they were given, which decides between matches.
        order.sort_by_key(|&index| classes[index].is_default);
        Self {
            classes: paced.collect(),
            clock,
            classifier: Classifier::new(order.iter().map(|&index| &classes[index].filter)),
            has_default: classes.iter().any(|class| class.is_default),
            order,
            unpaced: VecDeque::new(),
            unpaced_row: Row {
                name: "unpaced".into(),
                ..Row::default()
            },
            overhead_bytes: options.overhead_bytes,
            is_rough: tolerance.is_rough,
            pool: Pool::new(),
        }
    }

    /// The smallest share of its own rate that any class gets while all classes send, between 0 and 1. `None` if the
    /// link's rate covers the sum of the rates.
    pub fn least_share(&self) -> Option<f64> {
        let shares = self.classes.iter().map(|class| self.share(class));
        shares.min_by(f64::total_cmp).filter(|&share| share < 1.0)
    }

    /// The share of its rate that a class gets while all classes send.
    fn share(&self, class: &Paced) -> f64 {
        self.clock.least_rate(class.id).bps() as f64 / class.rate.bps() as f64
    }

    /// The index of the class that a frame with these headers belongs to.
    fn class_of(&self, headers: &Headers) -> Option<usize> {
        let place = self.classifier.first_match(headers)?;
        Some(self.order[place])
    }

    /// The bytes that a frame takes on the wire, overhead included, after the link has cut it into its segments.
    fn wire_bytes(&self, frame: &Frame, headers: &Headers, segments: Option<&Segments<'_>>) -> u64 {
        // A link may cut frames that cannot be cut here.
        let header_bytes = segments.map(Segments::header_bytes);
        let header_bytes = header_bytes.or(headers.payload_offset);
        let sizes = frame.offload.segmentation.zip(header_bytes);
        let sizes = sizes.map(|(segmentation, header_bytes)| GsoSizes {
            header_bytes: header_bytes as u32,
            segment_bytes: segmentation.segment_bytes.into(),
        });
        wire_bytes(frame.bytes.len() as u32, sizes, self.overhead_bytes)
    }

    /// The report's text for the rate of a class, and the share it keeps while all classes send.
    fn rule(&self, class: &Paced) -> String {
        match self.share(class) {
            share if share < 1.0 => format!("{}, at least {:.3} %", class.rate, share * 100.0),
            _ => class.rate.to_string(),
        }
    }

    /// Counts the drop of a frame of this class, or of none.
    fn count_unknown_tunnel(&mut self, class: Option<usize>) {
        match class {
            Some(class) => self.classes[class].unknown_tunnels += 1,
            None => {
                let events = &mut self.unpaced_row.events;
                *events.entry(UNKNOWN_TUNNEL).or_default() += 1;
            }
        }
    }

    fn on_unpaced(&mut self, frame: Frame, bytes: u64) {
        let row = &mut self.unpaced_row;
        row.queued_packets += 1;
        row.queued_bytes += bytes;
        row.activity.on_queued(row.queued_packets, row.queued_bytes);
        self.unpaced.push_back((frame, bytes));
    }

    /// Queues a frame in a class, or to leave at once. If the class is full, the frame is dropped and the byte clock
    /// counts it.
    fn enqueue(&mut self, class: Option<usize>, frame: Frame, bytes: u64, now: Instant) {
        let Some(class) = class else {
            return self.on_unpaced(frame, bytes);
        };
        let paced = &mut self.classes[class];
        let _ = self.clock.enqueue(paced.id, frame, bytes, now);
        let statistics = self.clock.statistics(paced.id);
        let (packets, bytes) = (statistics.queued_packets, statistics.queued_bytes);
        paced.activity.on_queued(packets, bytes);
    }
}

impl Discipline for Pacer {
    fn on_frame(&mut self, frame: Frame, now: Instant) {
        let headers = Headers::of_frame(&frame.bytes);
        let class = self.class_of(&headers);
        let segments = segments(&frame.bytes, &headers, &frame.offload);
        let bytes = self.wire_bytes(&frame, &headers, segments.as_ref());
        let is_in_tunnel = frame.is_joined_in_tunnel(&headers);
        // A joined packet above the class's burst would leave the link as a burst, so it is cut here.
        let is_burst = class.is_some_and(|class| bytes > self.classes[class].whole_bytes);
        if let Some(mut segments) = segments.filter(|_| is_burst || is_in_tunnel) {
            let (offload, arrived) = (segments.offload(), frame.arrived);
            while let Some(bytes) = segments.next_bytes() {
                let mut bytes = self.pool.buffer(bytes);
                segments.write_next(&mut bytes);
                let wire = wire_bytes(bytes.len() as u32, None, self.overhead_bytes);
                let segment = Frame {
                    bytes,
                    offload,
                    arrived,
                };
                self.enqueue(class, segment, wire, now);
            }
        } else if is_in_tunnel {
            self.count_unknown_tunnel(class);
        } else {
            self.enqueue(class, frame, bytes, now);
        }
    }

    fn next(&mut self, now: Instant) -> Next {
        // Unpaced frames first: they have no time to wait for.
        if let Some((frame, bytes)) = self.unpaced.pop_front() {
            let row = &mut self.unpaced_row;
            row.queued_packets -= 1;
            row.queued_bytes -= bytes;
            row.sent_packets += 1;
            row.sent_bytes += bytes;
            row.activity.on_sent(row.sent_bytes, now);
            return Next::Send(frame);
        }
        match self.clock.dequeue(now) {
            Dequeued::Send(id, frame) => {
                let sent_bytes = self.clock.statistics(id).sent_bytes;
                self.classes[id.index()].activity.on_sent(sent_bytes, now);
                Next::Send(frame)
            }
            Dequeued::Wait(due) => Next::Wait(due),
            Dequeued::Empty => Next::Empty,
        }
    }

    fn is_rough(&self) -> bool {
        self.is_rough
    }

    fn rows(&self) -> Vec<Row> {
        let paced = self.classes.iter().map(|class| {
            let statistics = self.clock.statistics(class.id);
            Row {
                name: class.name.clone(),
                rule: self.rule(class),
                sent_packets: statistics.sent_packets,
                sent_bytes: statistics.sent_bytes,
                queued_packets: statistics.queued_packets,
                queued_bytes: statistics.queued_bytes,
                activity: class.activity,
                events: NamedCounts::from([
                    (
                        "dropped for too many packets",
                        statistics.dropped_for_packets,
                    ),
                    ("dropped for too many bytes", statistics.dropped_for_bytes),
                    (UNKNOWN_TUNNEL, class.unknown_tunnels),
                    (
                        "bytes of its rate lost to lateness",
                        statistics.forgotten_bytes,
                    ),
                ]),
            }
        });
        let unpaced = (!self.has_default).then(|| self.unpaced_row.clone());
        paced.chain(unpaced).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softclock_wire::packet::{Offload, SegmentKind};

    #[test]
    fn a_link_that_is_promised_too_often_is_shared() {
        let told = |classes: &[&str]| {
            let pacer = pacer(classes);
            let rules: Vec<_> = pacer.rows().into_iter().map(|row| row.rule).collect();
            (pacer.least_share(), rules)
        };
        let (share, rules) = told(&["rate 600mbit dport 80", "default rate 400mbit"]);
        assert_eq!((share, &rules[0][..]), (None, "600mbit"));
        let (share, rules) = told(&["rate 900mbit dport 80", "default rate 1gbit"]);
        assert!((share.unwrap() - 1.0 / 1.9).abs() < 1e-6);
        assert_eq!(rules[0], "900mbit, at least 52.632 %");
        let (share, _) = told(&["default rate 4gbit"]);
        assert_eq!(share, Some(0.25), "one alone is above the link's");
    }

    /// After a pause of 50 ms, at most eight frames leave at once and the remaining bytes of the rate are counted as
    /// lost, unless `behind` lets the class catch up.
    #[test]
    fn what_is_late_is_counted_unless_the_class_makes_up_for_it() {
        let lost = |class: &str| {
            let mut pacer = pacer(&[class]);
            (0..500).for_each(|_| pacer.on_frame(datagram(80, 1000), Instant::ORIGIN));
            while let Next::Send(_) = pacer.next(Instant::ORIGIN) {}
            let mut sent = 0;
            while let Next::Send(_) = pacer.next(Instant::from_ns(50_000_000)) {
                sent += 1;
            }
            let row = &pacer.rows()[0];
            (sent, row.events["bytes of its rate lost to lateness"])
        };
        let (sent, bytes) = lost("rate 80mbit");
        assert!((7..=8).contains(&sent), "{sent}");
        assert!((490_000..500_000).contains(&bytes), "{bytes} of 500000");
        assert_eq!(lost("rate 80mbit behind 100ms").1, 0);
    }

    /// A tolerance of at least the usual lateness of a wait holds frames back for the difference only.
    #[test]
    fn a_tolerance_includes_the_lateness_of_a_wait() {
        for (tolerance_us, is_rough, wait_us) in [
            (0, false, 100),
            (40, false, 140),
            (50, true, 100),
            (250, true, 300),
        ] {
            let link = Rate::from_bps(1_000_000_000).unwrap();
            let options = PacerOptions {
                link,
                tolerance: Duration::from_micros(tolerance_us),
                overhead_bytes: 0,
            };
            let class = "rate 80mbit".parse().unwrap();
            let mut pacer = Pacer::new(&[class], options, Instant::ORIGIN);
            assert_eq!(pacer.is_rough(), is_rough);
            (0..2).for_each(|_| pacer.on_frame(datagram(80, 1000), Instant::ORIGIN));
            assert!(matches!(pacer.next(Instant::ORIGIN), Next::Send(_)));
            let wait = pacer.next(Instant::ORIGIN);
            let due = Instant::from_ns(wait_us * 1000);
            assert!(matches!(wait, Next::Wait(at) if at == due), "{wait:?}");
        }
    }

    /// A UDP datagram over IPv4 with this destination port.
    fn datagram(port: u16, bytes: usize) -> Frame {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9]);
        frame.extend(port.to_be_bytes());
        frame.resize(bytes, 0);
        Frame {
            bytes: Pool::new().copy_of(&frame),
            offload: Offload::NONE,
            arrived: Instant::ORIGIN,
        }
    }

    fn pacer(classes: &[&str]) -> Pacer {
        pacer_with_overhead(classes, 0)
    }

    fn pacer_with_overhead(classes: &[&str], overhead_bytes: u32) -> Pacer {
        let classes: Vec<Class> = classes.iter().map(|text| text.parse().unwrap()).collect();
        let link = Rate::from_bps(1_000_000_000).unwrap();
        let options = PacerOptions {
            link,
            tolerance: Duration::ZERO,
            overhead_bytes,
        };
        Pacer::new(&classes, options, Instant::ORIGIN)
    }

    fn ports_sent(pacer: &mut Pacer, until: Instant) -> Vec<u16> {
        let mut now = Instant::ORIGIN;
        let mut ports = Vec::new();
        while now <= until {
            match pacer.next(now) {
                Next::Send(frame) => {
                    ports.push(
                        Headers::of_frame(&frame.bytes)
                            .ports
                            .map_or(0, |(_, port)| port),
                    );
                }
                Next::Wait(due) => now = due,
                Next::Empty => break,
            }
        }
        ports
    }

    #[test]
    fn the_first_match_has_it_and_the_default_the_rest() {
        let mut pacer = pacer(&["default rate 8mbit", "rate 80mbit dport 80", "rate 8mbit"]);
        for port in [80, 81, 80] {
            pacer.on_frame(datagram(port, 1000), Instant::ORIGIN);
        }
        let packets: Vec<_> = pacer.rows().iter().map(|row| row.queued_packets).collect();
        assert_eq!(packets, [0, 2, 1]);
    }

    /// A frame of three TCP segments joined by an offload.
    fn joined() -> Frame {
        Frame::tcp4(3 * 1400, Some(1400))
    }

    /// Also those that the network interface has joined, whose checksums are complete.
    #[test]
    fn joined_packets_are_cut_unless_a_burst_allows_them() {
        for (class, packets) in [
            ("rate 8mbit", 3),
            ("rate 8mbit burst 4361", 3),
            ("rate 8mbit burst 4362", 1),
        ] {
            let mut complete = joined();
            complete.offload.checksum = None;
            for frame in [joined(), complete] {
                let mut pacer = pacer(&[class]);
                pacer.on_frame(frame, Instant::ORIGIN);
                let row = &pacer.rows()[0];
                assert_eq!(row.queued_packets, packets, "{class}");
                assert_eq!(row.queued_bytes, 3 * 1454, "on the wire");
            }
        }
    }

    #[test]
    fn packets_that_only_the_link_can_cut_count_with_all_their_headers() {
        let mut frame = joined();
        frame.offload.checksum = None;
        let segmentation = frame.offload.segmentation.as_mut().unwrap();
        segmentation.kind = SegmentKind::UdpFragments;
        let mut pacer = pacer(&["rate 8mbit"]);
        pacer.on_frame(frame, Instant::ORIGIN);
        let row = &pacer.rows()[0];
        assert_eq!((row.queued_packets, row.queued_bytes), (1, 3 * 1454));
    }

    /// In a tunnel they are always cut, since the link would not: also within a burst, and if they are not paced.
    #[test]
    fn joined_packets_in_a_tunnel_are_cut_or_counted() {
        const IPV4_INSIDE: u8 = 4;
        const GRE: u8 = 47;
        for class in [
            "rate 8mbit",
            "rate 8mbit burst 10000",
            "rate 8mbit dport 81",
        ] {
            let mut pacer = pacer(&[class]);
            pacer.on_frame(Frame::tcp4_in_tunnel(3, IPV4_INSIDE, &[]), Instant::ORIGIN);
            pacer.on_frame(
                Frame::tcp4_in_tunnel(2, GRE, &[0, 0, 8, 0]),
                Instant::ORIGIN,
            );
            // GRE with a checksum.
            let unknown = Frame::tcp4_in_tunnel(2, GRE, &[0x80, 0, 8, 0, 0, 0, 0, 0]);
            pacer.on_frame(unknown, Instant::ORIGIN);
            let rows = pacer.rows();
            let row = rows.iter().find(|row| row.queued_packets > 0).unwrap();
            assert_eq!(row.queued_packets, 5, "{class}");
            assert_eq!(row.queued_bytes, 3 * 1474 + 2 * 1478, "{class}");
            assert_eq!(row.events[UNKNOWN_TUNNEL], 1, "{class}");
        }
    }

    /// The overhead counts once for each frame on the wire: for a single frame, for each segment cut by the pacer, and
    /// for each segment left to the link to cut.
    #[test]
    fn overhead_counts_for_each_frame() {
        for (class, frame, packets, bytes) in [
            ("rate 8mbit", datagram(80, 1000), 1, 1024),
            ("rate 8mbit dport 81", datagram(80, 1000), 1, 1024),
            ("rate 8mbit", joined(), 3, 3 * 1478),
            ("rate 8mbit burst 4433", joined(), 3, 3 * 1478),
            ("rate 8mbit burst 4434", joined(), 1, 3 * 1478),
        ] {
            let mut pacer = pacer_with_overhead(&[class], 24);
            pacer.on_frame(frame, Instant::ORIGIN);
            ports_sent(&mut pacer, Instant::from_ns(1 << 40));
            let rows = pacer.rows();
            let sent = rows.iter().find(|row| row.sent_packets > 0).unwrap();
            assert_eq!(
                (sent.sent_packets, sent.sent_bytes),
                (packets, bytes),
                "{class}"
            );
        }
        let mut pacer = pacer_with_overhead(&["rate 8mbit"], 24);
        (0..2).for_each(|_| pacer.on_frame(datagram(80, 1000), Instant::ORIGIN));
        assert!(matches!(pacer.next(Instant::ORIGIN), Next::Send(_)));
        let next = pacer.next(Instant::ORIGIN);
        assert!(
            matches!(next, Next::Wait(due) if due.as_ns() == 1_024_000),
            "{next:?}"
        );
    }

    #[test]
    fn what_no_class_wants_leaves_at_once() {
        let mut pacer = pacer(&["rate 8mbit burst 0 dport 80"]);
        for port in [80, 80, 81] {
            pacer.on_frame(datagram(port, 1000), Instant::ORIGIN);
        }
        let mut ms = |ms: u64| ports_sent(&mut pacer, Instant::from_ns(ms * 1_000_000));
        assert_eq!(ms(0), [81, 80]);
        assert_eq!(ms(1), [80]);
        assert_eq!(pacer.rows()[1].sent_packets, 1);
    }

    /// The least time that a thousand packets took, spread evenly over `classes` classes.
    fn time_of(classes: u16) -> Duration {
        let texts: Vec<_> = (0..classes)
            .map(|number| format!("rate 1gbit proto udp dport {}", 5000 + number))
            .collect();
        let mut pacer = pacer(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let mut now = Instant::ORIGIN;
        let samples = (0..50).map(|_| {
            let frames: Vec<_> = (0..1000)
                .map(|number| datagram(5000 + number % classes, 100))
                .collect();
            let begun = std::time::Instant::now();
            for frame in frames {
                pacer.on_frame(frame, now);
                while let Next::Wait(due) = pacer.next(now) {
                    now = due;
                }
            }
            begun.elapsed()
        });
        samples.min().expect("some")
    }

    /// A linear search over a thousand classes would take more than twenty times as long as over one.
    #[test]
    fn many_classes_cost_little_more_than_one() {
        let (one, many) = (time_of(1), time_of(1000));
        assert!(many < one * 10, "{one:?} with one, {many:?} with 1000");
    }
}
