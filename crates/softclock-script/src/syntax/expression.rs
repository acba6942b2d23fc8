//! Expressions: the arguments of system calls.

use super::cursor::{Cursor, ParseError};

/// An argument of a system call, or a part of one. Operators bind as in C.
#[derive(Clone, PartialEq, Debug)]
pub enum Expression {
    /// `...`: the runner's choice, or any value.
    Any,
    /// A number.
    Integer(i64),
    /// A string, without its quotation marks.
    Text(String),
    /// The name of a constant, such as `SOL_SOCKET`.
    Name(String),
    /// A function such as `htons(8080)`.
    Function(String, Vec<Expression>),
    /// An operator between two values: one of `|`, `^`, `&`, `<<`, `>>`, `+`, `-`, `*`, `/`, `%`.
    Binary(&'static str, Box<(Expression, Expression)>),
    /// `~` before a value.
    Complement(Box<Expression>),
    /// `[a, b]`: an array, or a value behind a pointer.
    List(Vec<Expression>),
    /// `{a, name = b}`: a structure.
    Structure(Vec<Expression>),
    /// A field of a structure: its name, or a name with a length as in `msg_iov(1)`, and its value.
    Field(Box<(Expression, Expression)>),
}

impl Expression {
    /// The value of a field of a structure, by its name.
    pub fn field(&self, wanted: &str) -> Option<&Self> {
        let Self::Structure(fields) = self else {
            return None;
        };
        fields.iter().find_map(|field| match field {
            Self::Field(pair) => match &pair.0 {
                Self::Name(name) | Self::Function(name, _) if name == wanted => Some(&pair.1),
                _ => None,
            },
            _ => None,
        })
    }
}

/// The operators of C by binding strength, the weakest first.
const OPERATORS: [&[&str]; 6] = [
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Nesting deeper than this is an error, so that hostile scripts cannot exhaust the stack.
const DEEPEST: usize = 32;

/// The most operators in a list, for the same reason: each is the root of those before it.
const MOST_OPERATORS: usize = 64;

/// Reads expressions with commas between them, up to `end`.
pub(super) fn list(cursor: &mut Cursor<'_>, end: &str) -> Result<Vec<Expression>, ParseError> {
    elements(cursor, end, 0, &mut 0)
}

fn elements(
    cursor: &mut Cursor<'_>,
    end: &str,
    depth: usize,
    operators: &mut usize,
) -> Result<Vec<Expression>, ParseError> {
    let mut list = Vec::new();
    if cursor.eat(end) {
        return Ok(list);
    }
    loop {
        list.push(element(cursor, depth, operators)?);
        if cursor.eat(end) {
            return Ok(list);
        }
        if !cursor.eat(",") {
            return Err(cursor.expected(&format!("`,` or `{end}`")));
        }
        // A comma may follow the last element, as in C.
        if cursor.eat(end) {
            return Ok(list);
        }
    }
}

fn element(
    cursor: &mut Cursor<'_>,
    depth: usize,
    operators: &mut usize,
) -> Result<Expression, ParseError> {
    // A field may begin with a dot, as in C.
    let mut ahead = cursor.clone();
    if !ahead.is_next("...") && ahead.eat(".") {
        *cursor = ahead;
    }
    let left = binary(cursor, 0, depth, operators)?;
    match cursor.eat("=") {
        true => Ok(Expression::Field(Box::new((
            left,
            binary(cursor, 0, depth, operators)?,
        )))),
        false => Ok(left),
    }
}

fn binary(
    cursor: &mut Cursor<'_>,
    level: usize,
    depth: usize,
    operators: &mut usize,
) -> Result<Expression, ParseError> {
    let Some(choices) = OPERATORS.get(level) else {
        return unary(cursor, depth, operators);
    };
    let mut left = binary(cursor, level + 1, depth, operators)?;
    loop {
        let operator = choices.iter().copied().find(|operator| {
            // The end of an argument such as `1)` or a comment is no operator.
            !cursor.is_next("//@") && !cursor.is_next("/*") && cursor.eat(operator)
        });
        let Some(operator) = operator else {
            return Ok(left);
        };
        *operators += 1;
        if *operators > MOST_OPERATORS {
            return Err(cursor.expected("an expression with fewer operators"));
        }
        let right = binary(cursor, level + 1, depth, operators)?;
        left = Expression::Binary(operator, Box::new((left, right)));
    }
}

fn unary(
    cursor: &mut Cursor<'_>,
    depth: usize,
    operators: &mut usize,
) -> Result<Expression, ParseError> {
    if depth >= DEEPEST {
        return Err(cursor.expected("an expression that is nested less deeply"));
    }
    if cursor.eat("...") {
        return Ok(Expression::Any);
    }
    if cursor.eat("-") {
        let zero = Expression::Integer(0);
        return Ok(match unary(cursor, depth + 1, operators)? {
            Expression::Integer(value) => Expression::Integer(value.wrapping_neg()),
            other => Expression::Binary("-", Box::new((zero, other))),
        });
    }
    if cursor.eat("~") {
        return Ok(Expression::Complement(Box::new(unary(
            cursor,
            depth + 1,
            operators,
        )?)));
    }
    if cursor.eat("&") {
        return unary(cursor, depth + 1, operators);
    }
    if cursor.eat("(") {
        let inside = binary(cursor, 0, depth + 1, operators)?;
        cursor.expect(")")?;
        return Ok(inside);
    }
    if cursor.eat("[") {
        return elements(cursor, "]", depth + 1, operators).map(Expression::List);
    }
    if cursor.eat("{") {
        return elements(cursor, "}", depth + 1, operators).map(Expression::Structure);
    }
    if cursor.eat("\"") {
        let text = cursor.until("\"", "a closing quotation mark")?;
        return Ok(Expression::Text(text.to_owned()));
    }
    if let Some(value) = cursor.number() {
        return Ok(Expression::Integer(value as i64));
    }
    let Some(name) = cursor.word() else {
        return Err(cursor.expected("a value"));
    };
    match cursor.eat("(") {
        true => elements(cursor, ")", depth + 1, operators)
            .map(|arguments| Expression::Function(name.to_owned(), arguments)),
        false => Ok(Expression::Name(name.to_owned())),
    }
}
