//! Cuts a script's text into lexemes, each with its line.
//!
//! The rules are those of packetdrill's own scanner: the longest match wins. Its keywords are
//! ordinary words here; the parser asks for them where the grammar does.

use std::net::{Ipv4Addr, Ipv6Addr};

/// One lexeme.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// `--name`, without the dashes.
    Flag(String),
    /// A number with a point.
    Float(f64),
    /// A decimal number, with its spelling (a cookie of decimal digits keeps its zeros).
    Integer(i64, String),
    /// A number after `0x`.
    Hex(i64),
    /// Letters, digits and underscores.
    Word(String),
    /// A quoted string, its escapes as written.
    Text(String),
    /// A shell command between back quotes.
    Command(String),
    /// The text between `%{` and `}%`, without the spaces at its ends.
    Code(String),
    /// An IPv4 address.
    Ipv4(String),
    /// An IPv6 address.
    Ipv6(String),
    /// `...`
    Ellipsis,
    /// Any other sign.
    Sign(char),
}

/// A lexeme and the line on which it begins.
#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) line: usize,
}

/// The whole text.
///
/// # Errors
///
/// `line: what` for a string, comment or snippet that does not end.
pub(crate) fn scan(text: &str) -> Result<Vec<Lexeme>, (usize, String)> {
    let mut scanner = Scanner { rest: text, line: 1 };
    let mut lexemes = Vec::new();
    while let Some(lexeme) = scanner.next()? {
        lexemes.push(lexeme);
    }
    Ok(lexemes)
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Result<Option<Lexeme>, (usize, String)> {
        self.skip_blank()?;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let line = self.line;
        let token = match first {
            '"' => Token::Text(self.delimited('"')?),
            '`' => Token::Command(self.delimited('`')?),
            '%' if self.rest.starts_with("%{") => Token::Code(self.snippet()?),
            _ => self.plain(first),
        };
        Ok(Some(Lexeme { token, line }))
    }

    /// Spaces and comments.
    fn skip_blank(&mut self) -> Result<(), (usize, String)> {
        loop {
            let blank =
                self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            if blank > 0 {
                self.take(blank);
            } else if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(end);
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest.find("*/") else {
                    return Err((self.line, "a comment that does not end".into()));
                };
                self.take(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// Take `bytes` bytes, counting lines.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// The text between two of `quote`; a backslash takes the next character with it.
    fn delimited(&mut self, quote: char) -> Result<String, (usize, String)> {
        let mut escaped = false;
        for (at, character) in self.rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == quote {
                let taken = self.take(at + 1);
                return Ok(taken[1..at].to_owned());
            }
        }
        Err((self.line, format!("no closing {quote}")))
    }

    fn snippet(&mut self) -> Result<String, (usize, String)> {
        let Some(end) = self.rest.find("}%") else {
            return Err((self.line, "a code snippet that does not end".into()));
        };
        let taken = self.take(end + 2);
        Ok(taken[2..end].trim_matches([' ', '\t']).to_owned())
    }

    /// The longest of all that may stand here without delimiters.
    fn plain(&mut self, first: char) -> Token {
        let candidates = [
            self.flag(),
            self.float(),
            self.integer(),
            self.hex(),
            self.word(),
            self.address(),
            self.rest.starts_with("...").then_some((3, Token::Ellipsis)),
        ];
        let mut best = (0, Token::Sign(first));
        for candidate in candidates.into_iter().flatten() {
            if candidate.0 > best.0 {
                best = candidate;
            }
        }
        self.take(best.0.max(first.len_utf8()));
        best.1
    }

    fn flag(&self) -> Option<(usize, Token)> {
        let name = self.rest.strip_prefix("--")?;
        let length = prefix(name, is_word);
        (length > 0).then(|| (length + 2, Token::Flag(name[..length].to_owned())))
    }

    fn float(&self) -> Option<(usize, Token)> {
        let sign = usize::from(self.rest.starts_with('-'));
        let whole = prefix(&self.rest[sign..], |c| c.is_ascii_digit());
        let fraction = self.rest[sign + whole..].strip_prefix('.')?;
        let digits = prefix(fraction, |c| c.is_ascii_digit());
        if digits == 0 {
            return None;
        }
        let length = sign + whole + 1 + digits;
        let value = self.rest[..length].parse().ok()?;
        Some((length, Token::Float(value)))
    }

    fn integer(&self) -> Option<(usize, Token)> {
        let sign = usize::from(self.rest.starts_with('-'));
        let digits = prefix(&self.rest[sign..], |c| c.is_ascii_digit());
        if digits == 0 {
            return None;
        }
        let spelling = &self.rest[..sign + digits];
        let value = spelling.parse().unwrap_or(i64::MAX);
        Some((sign + digits, Token::Integer(value, spelling.to_owned())))
    }

    fn hex(&self) -> Option<(usize, Token)> {
        let digits = self.rest.strip_prefix("0x")?;
        let length = prefix(digits, |c| c.is_ascii_hexdigit());
        let value = i64::from_str_radix(&digits[..length], 16).ok()?;
        Some((length + 2, Token::Hex(value)))
    }

    fn word(&self) -> Option<(usize, Token)> {
        let length = prefix(self.rest, is_word);
        (length > 0).then(|| (length, Token::Word(self.rest[..length].to_owned())))
    }

    /// An address: the longest prefix that is one. `1:1001` is none, having no `::`.
    fn address(&self) -> Option<(usize, Token)> {
        let mut length = prefix(self.rest, |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        while length > 1 {
            let text = &self.rest[..length];
            if text.parse::<Ipv4Addr>().is_ok() {
                return Some((length, Token::Ipv4(text.to_owned())));
            }
            if text.parse::<Ipv6Addr>().is_ok() {
                return Some((length, Token::Ipv6(text.to_owned())));
            }
            length -= 1;
        }
        None
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The length of the longest prefix whose characters all pass.
fn prefix(text: &str, passes: impl Fn(char) -> bool) -> usize {
    text.find(|c| !passes(c)).unwrap_or(text.len())
}
