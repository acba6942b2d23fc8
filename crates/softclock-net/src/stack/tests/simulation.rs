//! Two hosts and a bad link between them, in virtual time.

use super::*;

/// A link that loses, repeats, delays and damages frames.
pub(in crate::stack) struct Cable {
    pub(in crate::stack) random: u64,
    pub(in crate::stack) delayed: Vec<(Instant, bool, Vec<u8>)>,
}

impl Cable {
    pub(in crate::stack) fn chance(&mut self, of: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(of)
    }

    pub(in crate::stack) fn carry(&mut self, now: Instant, to_two: bool, mut frame: Vec<u8>) {
        if self.chance(10) {
            return;
        }
        // ARP and the Ethernet header have no checksum here, since that of the frame covers them. Damage to two
        // fragments of a datagram can cancel out in its checksum.
        let is_arp = frame[12..14] == [0x08, 0x06];
        let is_fragment = frame[20..22] != [0, 0];
        if !is_arp && !is_fragment && self.chance(20) {
            let place = Header::BYTES + self.random as usize % (frame.len() - Header::BYTES);
            frame[place] ^= 1 << (self.random % 8);
        }
        let copies = if self.chance(20) { 2 } else { 1 };
        for _ in 0..copies {
            let slow = self.chance(5);
            let delay = Duration::from_micros(if slow { 900 } else { 100 });
            self.delayed.push((now + delay, to_two, frame.clone()));
        }
    }
}

proptest! {
    /// Over a bad link, what arrives is what was sent, and each datagram is accounted for.
    #[test]
    fn datagrams_arrive_intact_over_a_bad_link(
        seed in 1..u64::MAX,
        architecture in prop::sample::select(&Architecture::ALL[..]),
    ) {
        let (mut one, mut two) = (host(1, architecture), host(2, architecture));
        let mut cable = Cable { random: seed, delayed: Vec::new() };
        let (from, to) = (at("10.0.0.1:7"), at("10.0.0.2:8"));
        let (a, b) = (one.bind(from).unwrap(), two.bind(to).unwrap());
        let mut now = NOW;
        let mut received = 0;
        for step in 0..400u32 {
            now += Duration::from_millis(100);
            if step % 8 == 0 {
                let length = (step * 37 % 4_000) as usize;
                let payload: Vec<u8> = (0..length).map(|i| (i as u32 + step) as u8).collect();
                let payload = [&step.to_be_bytes()[..], &payload].concat();
                one.send_to(now, a, to, &payload).unwrap();
            }
            one.on_timer(now);
            two.on_timer(now);
            while let Some(frame) = one.next_frame() {
                cable.carry(now, true, frame);
            }
            while let Some(frame) = two.next_frame() {
                cable.carry(now, false, frame);
            }
            cable.delayed.sort_by_key(|frame| frame.0);
            for (_, to_two, frame) in cable.delayed.drain(..) {
                let host = if to_two { &mut two } else { &mut one };
                host.on_frame(now, now, frame, Verify::Yes);
            }
            one.process(now, 100);
            two.process(now, 100);
            while let Some(datagram) = two.receive(b) {
                let (number, rest) = datagram.payload().split_first_chunk::<4>().unwrap();
                let number = u32::from_be_bytes(*number);
                prop_assert_eq!(rest.len(), (number * 37 % 4_000) as usize);
                let is_intact = rest.iter().enumerate().all(|(i, &byte)| byte == (i as u32 + number) as u8);
                prop_assert!(is_intact);
                received += 1;
            }
        }
        prop_assert!(received > 0);
        prop_assert_eq!(two.endpoint_counts(b).unwrap().received, received);
    }
}
