//! System calls with their expected results.

use super::cursor::{Cursor, ParseError};
use super::expression::{self, Expression};

/// A system call, for instance `read(3, ..., 100) = -1 EWOULDBLOCK (Operation would block)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The name.
    pub name: String,
    /// The arguments.
    pub arguments: Vec<Expression>,
    /// The result that the script expects.
    pub result: ResultValue,
    /// The name of the error that the script expects with a result of -1.
    pub errno: Option<String>,
}

/// The result of a system call.
#[derive(Clone, PartialEq, Debug)]
pub enum ResultValue {
    /// Any.
    Any,
    /// This number or constant.
    Is(Expression),
}

/// Reads a call and its result. Notes in parentheses behind the result are skipped.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Call, ParseError> {
    let Some(name) = cursor.word() else {
        return Err(cursor.expected(
            "a system call, `<`, `>`, a command in backquotes, `%{`, or a directive `//@`",
        ));
    };
    cursor.expect("(")?;
    let arguments = expression::list(cursor, ")")?;
    cursor.expect("=")?;
    let (result, is_negative) = match (cursor.eat("..."), cursor.is_next("-")) {
        (true, _) => (ResultValue::Any, false),
        (false, is_negative) => {
            cursor.eat("-");
            let number = cursor.number();
            let name = number.is_none().then(|| cursor.word()).flatten();
            let mut value = match (number, name) {
                (Some(value), _) => Expression::Integer(value as i64),
                (None, Some(name)) => Expression::Name(name.to_owned()),
                (None, None) => return Err(cursor.expected("the result of the call")),
            };
            if let (Expression::Integer(value), true) = (&mut value, is_negative) {
                *value = value.wrapping_neg();
            }
            (ResultValue::Is(value), is_negative)
        }
    };
    let errno = match is_negative {
        true => cursor.word().map(str::to_owned),
        false => None,
    };
    if cursor.eat("(") {
        cursor.until(")", "the end of the note, `)`")?;
    }
    Ok(Call {
        name: name.to_owned(),
        arguments,
        result,
        errno,
    })
}
