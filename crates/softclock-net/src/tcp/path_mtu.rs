//! The path MTU of a connection (RFC 1191, RFC 8201), and paths that lose long packets without a report (RFC 8899).

/// The MTU after a report that the path carries `reported` bytes at most. `None` if the report tells nothing new: it
/// never raises the MTU (RFC 8201, 4). A report below the minimum of the protocol can only be an error or an attack,
/// and counts as the minimum (RFC 5927, 7.2).
pub(super) fn lowered(current: u16, reported: u32, is_v4: bool) -> Option<u16> {
    let least = least(is_v4);
    let new = u16::try_from(reported).unwrap_or(u16::MAX).max(least);
    (new < current).then_some(new)
}

/// The MTU to try when longer packets are lost time and again without a report: at first the one that nearly all paths
/// carry, then the minimum.
pub(super) const fn fallback(is_first: bool, is_v4: bool) -> u16 {
    match is_first {
        true => BASE,
        false => least(is_v4),
    }
}

const fn least(is_v4: bool) -> u16 {
    match is_v4 {
        true => 552,
        false => 1280,
    }
}

/// The minimum of IPv6, which paths of IPv4 carry, too (BASE_PLPMTU of RFC 8899, 5.1.2, plus headers).
const BASE: u16 = 1280;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_lower_the_mtu_down_to_the_minimum_of_the_protocol() {
        assert_eq!(lowered(1500, 1400, true), Some(1400));
        assert_eq!(lowered(1500, 1500, true), None);
        assert_eq!(lowered(1500, 100_000, true), None);
        assert_eq!(lowered(1500, 68, true), Some(552));
        assert_eq!(lowered(1500, 68, false), Some(1280));
        assert_eq!(lowered(1280, 68, false), None);
    }

    #[test]
    fn a_black_hole_is_left_in_two_steps_at_most() {
        assert_eq!(
            [true, false].map(|is_first| fallback(is_first, true)),
            [1280, 552]
        );
        assert_eq!(
            [true, false].map(|is_first| fallback(is_first, false)),
            [1280, 1280]
        );
    }
}
