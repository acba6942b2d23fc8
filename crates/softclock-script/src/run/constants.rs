//! The values of constants and expressions.

use crate::errno::Errno;
use crate::syntax::Expression;

/// The value of an expression; none if it is no number, or a constant is unknown.
pub(super) fn value(expression: &Expression) -> Option<i64> {
    match expression {
        Expression::Integer(value) => Some(*value),
        Expression::Name(name) => constant(name),
        Expression::Complement(inside) => value(inside).map(|value| !value),
        Expression::Binary(operator, operands) => {
            let (left, right) = (value(&operands.0)?, value(&operands.1)?);
            match *operator {
                "|" => Some(left | right),
                "^" => Some(left ^ right),
                "&" => Some(left & right),
                "<<" => left.checked_shl(u32::try_from(right).ok()?),
                ">>" => left.checked_shr(u32::try_from(right).ok()?),
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                "/" => left.checked_div(right),
                "%" => left.checked_rem(right),
                _ => None,
            }
        }
        Expression::Function(name, arguments) => match (name.as_str(), arguments.as_slice()) {
            ("htons" | "htonl" | "ntohs" | "ntohl", [argument]) => value(argument),
            _ => None,
        },
        _ => None,
    }
}

/// The value of `[…]` with one element, or of a plain number.
pub(super) fn pointed_value(expression: &Expression) -> Option<i64> {
    match expression {
        Expression::List(elements) => match elements.as_slice() {
            [only] => value(only),
            _ => None,
        },
        other => value(other),
    }
}

/// Values that differ between systems are FreeBSD's, whose scripts state them as numbers, too.
fn constant(name: &str) -> Option<i64> {
    let found = CONSTANTS.iter().find(|(known, _)| *known == name);
    match found {
        Some((_, value)) => Some(*value),
        None => Errno::named(name).map(Errno::number),
    }
}

pub(super) const O_NONBLOCK: i64 = 4;
pub(super) const O_RDWR: i64 = 2;
pub(super) const MSG_PEEK: i64 = 2;
pub(super) const MSG_DONTWAIT: i64 = 0x80;
pub(super) const MSG_NOSIGNAL: i64 = 0x20000;

const CONSTANTS: &[(&str, i64)] = &[
    ("O_RDONLY", 0),
    ("O_WRONLY", 1),
    ("O_RDWR", O_RDWR),
    ("O_NONBLOCK", O_NONBLOCK),
    ("MSG_OOB", 1),
    ("MSG_PEEK", MSG_PEEK),
    ("MSG_DONTROUTE", 4),
    ("MSG_TRUNC", 0x10),
    ("MSG_WAITALL", 0x40),
    ("MSG_DONTWAIT", MSG_DONTWAIT),
    ("MSG_EOF", 0x100),
    ("MSG_NOSIGNAL", MSG_NOSIGNAL),
    ("MSG_MORE", 0x40000),
    ("IPTOS_DSCP_CS0", 0x00),
    ("IPTOS_DSCP_CS1", 0x20),
    ("IPTOS_DSCP_CS2", 0x40),
    ("IPTOS_DSCP_CS3", 0x60),
    ("IPTOS_DSCP_CS4", 0x80),
    ("IPTOS_DSCP_CS5", 0xa0),
    ("IPTOS_DSCP_CS6", 0xc0),
    ("IPTOS_DSCP_CS7", 0xe0),
    ("IPTOS_DSCP_EF", 0xb8),
    ("IPTOS_LOWDELAY", 0x10),
    ("IPTOS_THROUGHPUT", 0x08),
    ("IPTOS_RELIABILITY", 0x04),
];
