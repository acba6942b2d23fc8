//! ping(8) from the west to the east.

use crate::lab::{Lab, Place};

/// The echo replies that arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echoes {
    /// Numbers of the first echo of each request, in order of arrival.
    pub(crate) numbers: Vec<u32>,
    /// Their round-trip times in milliseconds.
    pub(crate) times_ms: Vec<f64>,
    /// Further echoes of a request.
    pub(crate) duplicates: usize,
}

impl Echoes {
    pub(crate) fn median_ms(&self) -> f64 {
        let mut times = self.times_ms.clone();
        times.sort_by(f64::total_cmp);
        *times.get(times.len() / 2).expect("an echo")
    }
}

/// Sends `count` requests to `address`, 5 ms apart.
pub(crate) fn ping(lab: &Lab, address: &str, count: u32) -> Echoes {
    ping_at(lab, Place::West, address, count)
}

/// Like `ping`, from any place.
pub(crate) fn ping_at(lab: &Lab, place: Place, address: &str, count: u32) -> Echoes {
    let words = format!("ping -n -c {count} -i 0.005 -W 1 {address}");
    let output = lab.run(place, &words);
    let mut echoes = Echoes::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let number = value(line, "icmp_seq=").and_then(|text| text.parse().ok());
        let time = value(line, "time=").and_then(|text| text.parse().ok());
        match number.zip(time) {
            Some((number, _)) if echoes.numbers.contains(&number) => echoes.duplicates += 1,
            Some((number, time)) => {
                echoes.numbers.push(number);
                echoes.times_ms.push(time);
            }
            None => {}
        }
    }
    echoes
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(name)?.1.split(' ').next()
}
