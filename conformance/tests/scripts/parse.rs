//! Parses a script's text into its events: the grammar of packetdrill.

mod expression;
mod packet;

use crate::ast::{Action, CallSpec, Direction, Event, Expr, Script, When};
use crate::lexer::{Lexeme, Token, scan};

/// A fault in a script, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// Parses `text` into a script. `defines` are symbols set from outside; the script's own `--define`
/// lines add to them.
pub(crate) fn parse(text: &str, defines: &[(String, String)]) -> Result<Script, Fault> {
    let lexemes = scan(text).map_err(|(line, what)| Fault { line, what })?;
    let mut parser = Parser { lexemes, at: 0 };
    let mut script = Script { options: parser.options()?, ..Script::default() };
    let mut symbols = defines.to_vec();
    for (name, value) in &script.options {
        if let ("define", Some((symbol, value))) =
            (name.as_str(), value.as_ref().and_then(|value| value.split_once('=')))
        {
            symbols.push((symbol.to_owned(), value.to_owned()));
        }
    }
    parser.define(&symbols);
    script.init = parser.command();
    while !parser.is_done() {
        if let Some(command) = parser.command() {
            script.cleanup = Some(command);
            break;
        }
        let event = parser.event()?;
        script.events.push(event);
    }
    if !parser.is_done() {
        return Err(parser.unexpected("the end of the script after its cleanup command"));
    }
    if script.events.is_empty() {
        return Err(parser.unexpected("an event"));
    }
    Ok(script)
}

struct Parser {
    lexemes: Vec<Lexeme>,
    at: usize,
}

impl Parser {
    fn is_done(&self) -> bool {
        self.at >= self.lexemes.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.lexemes.get(self.at).map(|lexeme| &lexeme.token)
    }

    fn peek_at(&self, ahead: usize) -> Option<&Token> {
        self.lexemes.get(self.at + ahead).map(|lexeme| &lexeme.token)
    }

    /// The line of the next lexeme, or of the last.
    fn line(&self) -> usize {
        let at = self.at.min(self.lexemes.len().saturating_sub(1));
        self.lexemes.get(at).map_or(1, |lexeme| lexeme.line)
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        let what = match self.peek() {
            Some(token) => format!("expected {wanted}, found {token:?}"),
            None => format!("expected {wanted}, found the end"),
        };
        Fault { line: self.line(), what }
    }

    fn fault<T>(&self, what: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { line: self.line(), what: what.into() })
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    fn is_sign(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.at += usize::from(is);
        is
    }

    fn take_ellipsis(&mut self) -> bool {
        let is = self.peek() == Some(&Token::Ellipsis);
        self.at += usize::from(is);
        is
    }

    fn want_sign(&mut self, sign: char) -> Result<(), Fault> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn want_word(&mut self, word: &str) -> Result<(), Fault> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn any_word(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("a word")),
        }
    }

    fn integer(&mut self) -> Result<i64, Fault> {
        match self.peek() {
            Some(Token::Integer(value, _)) => {
                let value = *value;
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected("a number")),
        }
    }

    /// A number that `T` can hold.
    fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Fault> {
        let line = self.line();
        let value = self.integer()?;
        T::try_from(value)
            .map_err(|_| Fault { line, what: format!("{what} out of range: {value}") })
    }

    fn text(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::Text(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.unexpected("a string")),
        }
    }

    fn command(&mut self) -> Option<String> {
        let Some(Token::Command(command)) = self.peek() else { return None };
        let command = command.clone();
        self.at += 1;
        Some(command)
    }

    /// Replace every word that is a defined symbol by its value.
    fn define(&mut self, symbols: &[(String, String)]) {
        for lexeme in &mut self.lexemes[self.at..] {
            let Token::Word(word) = &lexeme.token else { continue };
            let Some((_, value)) = symbols.iter().rev().find(|(symbol, _)| symbol == word) else {
                continue;
            };
            let inner = || value.get(1..value.len().saturating_sub(1)).unwrap_or("").to_owned();
            lexeme.token = match value.chars().next() {
                Some('"') => Token::Text(inner()),
                Some('`') => Token::Command(inner()),
                _ => Token::Word(value.clone()),
            };
        }
    }

    fn options(&mut self) -> Result<Vec<(String, Option<String>)>, Fault> {
        let mut options = Vec::new();
        while let Some(Token::Flag(name)) = self.peek() {
            let name = name.clone();
            self.at += 1;
            let value = if self.take_sign('=') { Some(self.option_value()?) } else { None };
            options.push((name, value));
        }
        Ok(options)
    }

    fn option_value(&mut self) -> Result<String, Fault> {
        let value = match self.peek() {
            Some(Token::Integer(_, spelling)) => spelling.clone(),
            Some(Token::Word(text) | Token::Text(text)) => text.clone(),
            Some(Token::Ipv4(text) | Token::Ipv6(text)) => text.clone(),
            _ => return Err(self.unexpected("an option's value")),
        };
        let is_word = matches!(self.peek(), Some(Token::Word(_)));
        self.at += 1;
        if !(is_word && self.take_sign('=')) {
            return Ok(value);
        }
        match self.next() {
            Some(Token::Word(word)) => Ok(format!("{value}={word}")),
            Some(Token::Text(text)) => Ok(format!("{value}=\"{text}\"")),
            Some(Token::Command(text)) => Ok(format!("{value}=`{text}`")),
            _ => self.fault("bad definition"),
        }
    }

    fn event(&mut self) -> Result<Event, Fault> {
        let relative = self.take_sign('+');
        let line = self.line();
        let when = if !relative && self.take_sign('*') {
            When::Any
        } else {
            let from = self.time()?;
            match (relative, self.take_sign('~')) {
                (true, false) => When::Relative(from),
                (false, false) => When::Absolute(from),
                (true, true) => {
                    self.want_sign('+')?;
                    When::RelativeRange(from, self.time()?)
                }
                (false, true) => When::AbsoluteRange(from, self.time()?),
            }
        };
        let action = self.action()?;
        let outbound =
            matches!(&action, Action::Packet(packet) if packet.direction == Direction::Outbound);
        match when {
            When::Any if !outbound => {
                Err(Fault { line, what: "time * is for outbound packets alone".into() })
            }
            When::AbsoluteRange(from, to) | When::RelativeRange(from, to) if to < from => {
                Err(Fault { line, what: "time range is backwards".into() })
            }
            When::AbsoluteRange(..) | When::RelativeRange(..) if !outbound => {
                Err(Fault { line, what: "a time range is for outbound packets alone".into() })
            }
            _ => Ok(Event { line, when, action }),
        }
    }

    /// Seconds, as microseconds; smaller parts are cut off.
    #[expect(clippy::cast_possible_truncation, reason = "as the original does; scripts are short")]
    fn time(&mut self) -> Result<i64, Fault> {
        let line = self.line();
        let usecs = match self.next() {
            Some(Token::Float(seconds)) => (seconds * 1.0e6) as i64,
            Some(Token::Integer(seconds, _)) => seconds.saturating_mul(1_000_000),
            other => return Err(Fault { line, what: format!("expected a time, found {other:?}") }),
        };
        if usecs < 0 { Err(Fault { line, what: "negative time".into() }) } else { Ok(usecs) }
    }

    fn action(&mut self) -> Result<Action, Fault> {
        match self.peek() {
            Some(Token::Sign('<' | '>')) => self.packet().map(Action::Packet),
            Some(Token::Command(command)) => {
                let command = command.clone();
                self.at += 1;
                Ok(Action::Command(command))
            }
            Some(Token::Code(code)) => {
                let code = code.clone();
                self.at += 1;
                Ok(Action::Code(code))
            }
            _ => self.call().map(Action::Call),
        }
    }

    fn call(&mut self) -> Result<CallSpec, Fault> {
        let end = if self.take_ellipsis() { Some(self.time()?) } else { None };
        let name = self.any_word()?;
        self.want_sign('(')?;
        let arguments = if self.is_sign(')') { Vec::new() } else { self.expressions()? };
        self.want_sign(')')?;
        self.want_sign('=')?;
        let result = self.expression()?;
        let errno = self.errno()?;
        Ok(CallSpec { end, name, arguments, result, errno })
    }

    /// `EAGAIN (Resource temporarily unavailable)`, or a note alone, or nothing.
    fn errno(&mut self) -> Result<Option<String>, Fault> {
        let errno = match self.peek() {
            Some(Token::Word(name)) => {
                let name = name.clone();
                self.at += 1;
                if !self.is_sign('(') {
                    return Err(self.unexpected("a note after the errno"));
                }
                Some(name)
            }
            _ => None,
        };
        while self.take_sign('(') {
            while let Some(Token::Word(_)) = self.peek() {
                self.at += 1;
            }
            self.want_sign(')')?;
        }
        Ok(errno)
    }

    fn expressions(&mut self) -> Result<Vec<Expr>, Fault> {
        let mut list = vec![self.expression()?];
        while self.take_sign(',') {
            list.push(self.expression()?);
        }
        Ok(list)
    }
}
