//! The repository's files, and Rust code without its comments and literals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{output, program, root};

/// Files under version control, or about to be: relative to the root. Without git, all files but
/// those below hidden directories and `target`.
pub(crate) fn files() -> Vec<PathBuf> {
    let tracked = ["ls-files", "--cached", "--others", "--exclude-standard"];
    match output(program("git", tracked)) {
        Ok(list) if !list.is_empty() => list.lines().map(PathBuf::from).collect(),
        _ => {
            let mut files = Vec::new();
            walk(Path::new(""), &mut files);
            files
        }
    }
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root().join(directory)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let path = directory.join(&name);
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let built = name == "target" || name.as_encoded_bytes().starts_with(b".git");
        if is_directory && !built {
            walk(&path, files);
        } else if !is_directory {
            files.push(path);
        }
    }
}

/// The text of a file; `None` if it is not text or is gone.
pub(crate) fn text(file: &Path) -> Option<String> {
    fs::read_to_string(root().join(file)).ok()
}

/// The identifiers of Rust source with their line numbers, comments and literals left out.
pub(crate) fn identifiers(source: &str) -> Vec<(usize, &str)> {
    let mut scanner = Scanner {
        rest: source,
        line: 1,
    };
    let mut found = Vec::new();
    while let Some(token) = scanner.next_token() {
        if let Token::Identifier(line, name) = token {
            found.push((line, name));
        }
    }
    found
}

/// The identifiers and signs of Rust source, each by itself; comments, literals and spaces left out.
pub(crate) fn tokens(source: &str) -> Vec<&str> {
    let mut scanner = Scanner {
        rest: source,
        line: 1,
    };
    let mut found = Vec::new();
    while let Some(token) = scanner.next_token() {
        match token {
            Token::Identifier(_, text) | Token::Sign(text) => found.push(text),
            Token::Other => {}
        }
    }
    found
}

enum Token<'a> {
    Identifier(usize, &'a str),
    Sign(&'a str),
    Other,
}

/// Just enough of Rust's lexical structure to tell code from text.
struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn next_token(&mut self) -> Option<Token<'a>> {
        let first = self.rest.chars().next()?;
        if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment(self.rest));
        } else if let Some(length) = raw_string(self.rest) {
            self.skip(length);
        } else if first == '"' {
            self.skip(quoted(self.rest, '"'));
        } else if first == '\'' {
            self.skip(character(self.rest));
        } else if first.is_alphanumeric() || first == '_' {
            let line = self.line;
            return Some(Token::Identifier(line, self.skip(word(self.rest))));
        } else {
            let sign = self.skip(first.len_utf8());
            if !first.is_whitespace() {
                return Some(Token::Sign(sign));
            }
        }
        Some(Token::Other)
    }

    fn skip(&mut self, length: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(length);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
        skipped
    }
}

fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

/// The length of a block comment, which may contain others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of `r"…"`, `br#"…"#` and the like, if `text` begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let opened = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - opened.len();
    let hashes = opened.strip_prefix('r')?;
    let body = hashes.trim_start_matches('#');
    let count = hashes.len() - body.len();
    let content = body.strip_prefix('"')?;
    if prefix > 1 {
        return None;
    }
    let end = format!("\"{}", "#".repeat(count));
    let length = content
        .find(&end)
        .map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// The length of a literal between two `quote`s, escapes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal, or of the quote alone where it begins a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.chars().skip(1);
    let (first, second) = (characters.next(), characters.next());
    if first == Some('\\') || second == Some('\'') {
        quoted(text, '\'')
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<&str> {
        identifiers(source).into_iter().map(|(_, n)| n).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(names("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(names(r#"a("b \" c", 'd', b'\'', '"') e"#), ["a", "b", "e"]);
        assert_eq!(names("a r#\"b\" c\"# d br\"e\" f"), ["a", "d", "f"]);
    }

    #[test]
    fn signs_stand_between_identifiers() {
        assert_eq!(
            tokens("use a::{b, 'c'}; // d"),
            ["use", "a", ":", ":", "{", "b", ",", "}", ";"]
        );
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(
            names("fn f<'a>(x: &'a str)"),
            ["fn", "f", "a", "x", "a", "str"]
        );
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let found = identifiers("\"one\ntwo\"\n/* three\n */ four\n");
        assert_eq!(found, [(4, "four")]);
    }
}
