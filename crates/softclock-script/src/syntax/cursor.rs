//! A place in the text of a script, and the tokens that are read from there.

use std::fmt;

/// A line and a column of a script, both counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a script cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The place.
    pub at: Position,
    /// The reason.
    pub reason: Reason,
}

/// The kinds of [`ParseError`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The text is not in the language: what the parser expects at this place.
    Expected(String),
    /// The language has this construct, but it is about a feature that the runner does not have.
    Unsupported(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Expected(what) => write!(f, "{}: expected {what}", self.at),
            Reason::Unsupported(what) => write!(f, "{}: {what}", self.at),
        }
    }
}

impl std::error::Error for ParseError {}

/// The unread rest of a script. Tokens may be preceded by white space and comments.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    /// The text that is not read yet, including white space and comments.
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    /// Skips white space and comments, then returns whether the script ends here.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    /// The place of the next token.
    pub(super) fn position(&mut self) -> Position {
        self.skip_space();
        let before = self.text.get(..self.offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        }
    }

    /// The error at the next token. A comment without an end is what is wrong there, whatever else is expected.
    pub(super) fn expected(&mut self, what: &str) -> ParseError {
        let at = self.position();
        let what = match self.rest().starts_with("/*") {
            true => "`*/` behind this comment",
            false => what,
        };
        ParseError {
            at,
            reason: Reason::Expected(what.to_owned()),
        }
    }

    pub(super) fn unsupported(&mut self, what: impl Into<String>) -> ParseError {
        ParseError {
            at: self.position(),
            reason: Reason::Unsupported(what.into()),
        }
    }

    /// Whether the next token begins with `token`.
    pub(super) fn is_next(&mut self, token: &str) -> bool {
        self.skip_space();
        self.rest().starts_with(token)
    }

    /// Reads `token` if it comes next; a token that is a word must end there.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        if !self.is_next(token) {
            return false;
        }
        let after = self.rest().get(token.len()..).unwrap_or_default();
        let is_word = token.ends_with(is_word_character);
        if is_word && after.starts_with(is_word_character) {
            return false;
        }
        self.offset += token.len();
        true
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{token}`"))),
        }
    }

    /// Reads the characters that `is_part` accepts; may return an empty string.
    pub(super) fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.offset += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Reads a name: letters, digits and underscores, beginning with no digit.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.skip_space();
        match self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            true => None,
            false => Some(self.take_while(is_word_character)).filter(|word| !word.is_empty()),
        }
    }

    /// Reads up to `end`, which it consumes; `what` names `end` in the error if it does not come.
    pub(super) fn until(&mut self, end: &str, what: &str) -> Result<&'a str, ParseError> {
        let rest = self.rest();
        match rest.split_once(end) {
            Some((inside, _)) => {
                self.offset += inside.len() + end.len();
                Ok(inside)
            }
            None => {
                self.offset = self.text.len();
                Err(self.expected(what))
            }
        }
    }

    /// Reads the rest of the line.
    pub(super) fn line(&mut self) -> &'a str {
        let rest = self.rest();
        let line = rest.split('\n').next().unwrap_or_default();
        self.offset += line.len();
        line
    }

    /// Reads a number: decimal, octal with a leading 0, or hexadecimal with a leading 0x.
    pub(super) fn number(&mut self) -> Option<u64> {
        self.skip_space();
        let start = self.offset;
        let digits = self.take_while(|c| c.is_ascii_alphanumeric());
        let value = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
            (Some(hex), _) => u64::from_str_radix(hex, 16),
            (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8),
            _ => digits.parse(),
        };
        if value.is_err() {
            self.offset = start;
        }
        value.ok()
    }

    /// Reads a decimal number of 32 bits.
    pub(super) fn decimal(&mut self, what: &str) -> Result<u32, ParseError> {
        let mut ahead = self.clone();
        let value = ahead.take_while(|c| c.is_ascii_digit()).parse();
        match value {
            Ok(value) => {
                *self = ahead;
                Ok(value)
            }
            Err(_) => Err(self.expected(what)),
        }
    }

    /// Skips white space and comments: `//` and `#` to the end of the line, and `/* */`. A comment that begins with
    /// `//@` is a directive, which remains, as does a `/*` without an end, which no token begins with.
    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.offset += rest.len() - trimmed.len();
            let is_line = trimmed.starts_with("//") && !trimmed.starts_with("//@");
            let length = if is_line || trimmed.starts_with('#') {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if let Some(end) = trimmed.strip_prefix("/*").and_then(|rest| rest.find("*/")) {
                end + 4
            } else {
                return;
            };
            self.offset += length;
        }
    }
}

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
