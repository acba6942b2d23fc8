//! Lengths of bodies.

/// Parses the value of Content-Length (RFC 9110, section 8.6): digits only; `None` if it is not a valid length.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    let (&first, rest) = value.split_first()?;
    let first = append_digit(0, first)?;
    rest.iter()
        .try_fold(first, |length, &digit| append_digit(length, digit))
}

/// Appends a digit to `length`; `None` if it is not a digit or the length becomes too large.
pub(super) fn append_digit(length: u64, digit: u8) -> Option<u64> {
    let digit = (digit as char).to_digit(10)?;
    let tens = length.checked_mul(10)?;
    tens.checked_add(digit.into())
        .filter(|&length| length <= MAX_BODY_BYTES)
}

/// The largest length that file offsets can express; parsers differ about larger ones.
pub(super) const MAX_BODY_BYTES: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_digits_up_to_a_limit() {
        for (value, length) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("9223372036854775807", Some(MAX_BODY_BYTES)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1, 1", None),
            ("0x1", None),
            ("\u{661}", None),
        ] {
            assert_eq!(parse_length(value.as_bytes()), length, "{value:?}");
        }
    }
}
