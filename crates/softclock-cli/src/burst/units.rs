//! Formats quantities with a readable unit.

/// Formats bytes like `1.50 kB`.
pub(super) fn format_bytes(bytes: u64) -> String {
    scaled(
        bytes as f64,
        &[
            (1.0, "B"),
            (1e3, "kB"),
            (1e6, "MB"),
            (1e9, "GB"),
            (1e12, "TB"),
        ],
    )
}

/// Formats a time like `14.4 us`.
pub(super) fn format_ns(ns: f64) -> String {
    scaled(ns, &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
}

/// Formats a rate like `5.00 Gbit/s`.
pub(super) fn format_rate(bps: u64) -> String {
    scaled(
        bps as f64,
        &[
            (1.0, "bit/s"),
            (1e3, "kbit/s"),
            (1e6, "Mbit/s"),
            (1e9, "Gbit/s"),
            (1e12, "Tbit/s"),
        ],
    )
}

/// Formats `value` in the largest fitting unit, with at least three digits.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let unit = units.iter().rev().find(|(factor, _)| value >= *factor);
    let (factor, name) = unit.copied().unwrap_or(units[0]);
    let value = value / factor;
    let decimals = match value {
        _ if factor == 1.0 && value.fract() == 0.0 => 0,
        100.0.. => 0,
        10.0..100.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (7.25, "7.25 ns"),
            (14_400.0, "14.4 us"),
            (123_456_789.0, "123 ms"),
            (9e12, "9000 s"),
        ] {
            assert_eq!(format_ns(ns), text);
        }
        assert_eq!(format_bytes(1_500), "1.50 kB");
        assert_eq!(format_rate(5_000_000_000), "5.00 Gbit/s");
    }
}
