//! Which sockets are meant, in the words of `ss`: states, and an expression about both ends.
//!
//! ```text
//!   state established ( dport = :443 or dst 10.0.0.0/8 ) and not sport < :1024
//! ```
//!
//! The server reads it from a request, so its length is bounded and so is what it costs a socket.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use lightwait_core::address::Cidr;
use lightwait_core::tcp::State;

/// Words of a filter at most; parentheses and operators count.
const WORDS_MAX: usize = 128;

/// Which sockets are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    states: States,
    /// Both ends must be so.
    terms: Vec<Term>,
}

/// A set of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct States(u16);

/// The names of `ss` for single states, where they are not those of the RFC.
const SHORT: [(&str, State); 4] = [
    ("syn-recv", State::SynReceived),
    ("listening", State::Listen),
    ("established", State::Established),
    ("closed", State::Closed),
];

impl States {
    const NONE: States = States(0);
    /// All of them.
    pub(crate) const ALL: States = States((1 << State::ALL.len()) - 1);
    /// Listeners.
    pub(crate) const LISTENING: States = States(1 << State::Listen as u16);
    /// A socket in these states takes a few bytes: `bucket` of `ss`.
    const SMALL: States = States(1 << State::TimeWait as u16 | 1 << State::SynReceived as u16);
    /// All but LISTEN and CLOSED.
    const CONNECTED: States = States::ALL.without(States::LISTENING).without(States(1));
    /// What is meant where nothing is said: connections.
    pub(crate) const USUAL: States = States::CONNECTED.without(States::SMALL);

    const fn without(self, other: States) -> States {
        States(self.0 & !other.0)
    }

    fn with(self, other: States) -> States {
        States(self.0 | other.0)
    }

    fn has(self, state: State) -> bool {
        self.0 & 1 << state as u16 != 0
    }

    /// The states of that name: one, or a group.
    pub(crate) fn named(name: &str) -> Result<States, String> {
        let name = name.to_ascii_lowercase();
        let one = |state: State| States(1 << state as u16);
        let short = SHORT.iter().find(|(short, _)| *short == name).map(|(_, state)| one(*state));
        let long = || State::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(&name));
        let group = || match name.as_str() {
            "all" => Some(States::ALL),
            "connected" => Some(States::CONNECTED),
            "synchronized" => Some(States::CONNECTED.without(one(State::SynSent))),
            "bucket" => Some(States::SMALL),
            "big" => Some(States::ALL.without(States::SMALL)),
            _ => None,
        };
        short.or_else(|| long().map(one)).or_else(group).ok_or_else(|| {
            let names = State::ALL.map(|state| state.name().to_ascii_lowercase()).join(", ");
            format!(
                "there is no state {name:?}: give one of {names}, or a group: all, connected, \
                 synchronized, bucket, big"
            )
        })
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// A part of an expression, behind what it is about: operands come before their operator, so that
/// judging a socket takes no recursion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Network(End, Cidr),
    Port(End, Comparison, u16),
    Not,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Comparison {
    fn named(word: &str) -> Option<Comparison> {
        Some(match word {
            "=" | "==" | "eq" => Comparison::Equal,
            "!=" | "ne" | "neq" => Comparison::Unequal,
            ">=" | "ge" | "geq" => Comparison::AtLeast,
            "<=" | "le" | "leq" => Comparison::AtMost,
            ">" | "gt" => Comparison::Above,
            "<" | "lt" => Comparison::Below,
            _ => return None,
        })
    }

    fn holds(self, port: u16, other: u16) -> bool {
        match self {
            Comparison::Equal => port == other,
            Comparison::Unequal => port != other,
            Comparison::AtLeast => port >= other,
            Comparison::AtMost => port <= other,
            Comparison::Above => port > other,
            Comparison::Below => port < other,
        }
    }
}

impl Filter {
    /// True if a socket in this state between these ends is meant. A listener has no peer.
    pub(crate) fn has(&self, state: State, local: SocketAddr, remote: Option<SocketAddr>) -> bool {
        self.states.has(state) && self.is_between(local, remote)
    }

    fn is_between(&self, local: SocketAddr, remote: Option<SocketAddr>) -> bool {
        // A bit for each operand; there are no more than words.
        let mut stack: u128 = 1;
        for term in &self.terms {
            let end = |end: End| match end {
                End::Source => Some(local),
                End::Destination => remote,
            };
            match *term {
                Term::Network(side, network) => {
                    let is_in = end(side).is_some_and(|end| network.contains(end.ip()));
                    stack = stack << 1 | u128::from(is_in);
                }
                Term::Port(side, comparison, port) => {
                    let is_so = end(side).is_some_and(|end| comparison.holds(end.port(), port));
                    stack = stack << 1 | u128::from(is_so);
                }
                Term::Not => stack ^= 1,
                Term::And => stack = (stack >> 1) & (!1 | stack & 1),
                Term::Or => stack = (stack >> 1) | stack & 1,
            }
        }
        stack & 1 == 1
    }

    /// A filter that passes what both this one and `other` pass.
    pub(crate) fn and(mut self, other: &Filter) -> Result<Filter, String> {
        if !self.terms.is_empty() && !other.terms.is_empty() {
            self.terms.extend(&other.terms);
            self.terms.push(Term::And);
        } else {
            self.terms.extend(&other.terms);
        }
        bounded(self.terms.len())?;
        Ok(self)
    }

    /// Reads words such as those of a command line. Where no state is given, `usual` is meant.
    pub(crate) fn parse(text: &str, usual: States) -> Result<Filter, String> {
        let words = words(text)?;
        let mut states = None;
        let mut rest = words.as_slice();
        while let [keyword @ ("state" | "exclude"), behind @ ..] = rest {
            let [name, behind @ ..] = behind else {
                return Err(format!("{keyword}: name a state behind it, such as established"));
            };
            let named = States::named(name)?;
            states = Some(match *keyword {
                "state" => states.unwrap_or(States::NONE).with(named),
                _ => states.unwrap_or(States::ALL).without(named),
            });
            rest = behind;
        }
        let mut parser = Parser { rest, terms: Vec::new() };
        if !rest.is_empty() {
            parser.any_of()?;
        }
        if let [word, ..] = parser.rest {
            return Err(match *word {
                ")" => "a `)` too many".to_owned(),
                word => format!("{word:?} is not expected here: join two tests by `and` or `or`"),
            });
        }
        Ok(Filter { states: states.unwrap_or(usual), terms: parser.terms })
    }
}

fn bounded(words: usize) -> Result<(), String> {
    let refuse = || format!("the filter has {words} words, and {WORDS_MAX} at most are read");
    (words <= WORDS_MAX).then_some(()).ok_or_else(refuse)
}

/// The words of a filter: spaces need not be around parentheses and comparisons.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let kind = |c: char| match c {
        '(' | ')' => 0,
        '=' | '!' | '<' | '>' | '&' | '|' => 1,
        _ => 2,
    };
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut begin = 0;
        for (at, c) in part.char_indices().skip(1) {
            let before = part[..at].chars().next_back().unwrap_or(c);
            if kind(c) != kind(before) || kind(c) == 0 {
                words.push(&part[begin..at]);
                begin = at;
            }
        }
        words.push(&part[begin..]);
    }
    bounded(words.len())?;
    Ok(words)
}

/// Reads an expression: `or` binds less than `and`, which may be left out, and that less than
/// `not`. As many parentheses and negations are open as there are words, at most.
struct Parser<'a> {
    rest: &'a [&'a str],
    terms: Vec<Term>,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is_next = self.rest.first().is_some_and(|word| words.contains(word));
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn any_of(&mut self) -> Result<(), String> {
        self.all_of()?;
        while self.takes(&["or", "|", "||"]) {
            self.all_of()?;
            self.terms.push(Term::Or);
        }
        Ok(())
    }

    fn all_of(&mut self) -> Result<(), String> {
        self.one()?;
        loop {
            let is_said = self.takes(&["and", "&", "&&"]);
            let ends = [")", "or", "|", "||"];
            if !is_said && self.rest.first().is_none_or(|word| ends.contains(word)) {
                return Ok(());
            }
            self.one()?;
            self.terms.push(Term::And);
        }
    }

    fn one(&mut self) -> Result<(), String> {
        match self.next() {
            Some("not" | "!") => {
                self.one()?;
                self.terms.push(Term::Not);
                Ok(())
            }
            Some("(") => {
                self.any_of()?;
                if self.takes(&[")"]) { Ok(()) } else { Err("a `)` is missing".to_owned()) }
            }
            Some("src") => self.host(End::Source),
            Some("dst") => self.host(End::Destination),
            Some("sport") => self.port(End::Source),
            Some("dport") => self.port(End::Destination),
            Some("state" | "exclude") => {
                Err("states come first: state established dport = :443".to_owned())
            }
            Some(word) => Err(format!(
                "{word:?}: give a test such as dst 10.0.0.0/8, src 10.0.0.1:80, sport = :80 or \
                 dport >= :1024"
            )),
            None => Err("the filter ends where a test is expected".to_owned()),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let comparison = Comparison::named(self.rest.first()?)?;
        self.rest = &self.rest[1..];
        Some(comparison)
    }

    fn port(&mut self, end: End) -> Result<(), String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        let word = self.next().unwrap_or_default();
        let port = word.strip_prefix(':').unwrap_or(word);
        let port = port.parse().map_err(|_| {
            format!("{word:?} is no port: give a number from 0 to 65535, such as :443")
        })?;
        self.terms.push(Term::Port(end, comparison, port));
        Ok(())
    }

    fn host(&mut self, end: End) -> Result<(), String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        if !matches!(comparison, Comparison::Equal | Comparison::Unequal) {
            return Err("addresses are compared by = and != alone".to_owned());
        }
        let word = self.next().unwrap_or_default();
        let Host { network, port } = word.parse()?;
        let network = network.map(|network| Term::Network(end, network));
        let port = port.map(|port| Term::Port(end, Comparison::Equal, port));
        let count = self.terms.len();
        self.terms.extend(network.into_iter().chain(port));
        if self.terms.len() - count == 2 {
            self.terms.push(Term::And);
        }
        if self.terms.len() == count {
            return Err(format!("{word:?} names every end: leave it out"));
        }
        if comparison == Comparison::Unequal {
            self.terms.push(Term::Not);
        }
        Ok(())
    }
}

/// An address or network, and a port. Either may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    network: Option<Cidr>,
    port: Option<u16>,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        let refuse = || {
            format!(
                "{text:?}: give an address, a network such as 10.0.0.0/8 or fd00::/64, or one with \
                 its port: 10.0.0.1:80, [fd00::1]:80, *:80"
            )
        };
        let network = |text: &str| {
            let text = text.replace(['[', ']'], "");
            let one = |it: IpAddr| Cidr::new(it, if it.is_ipv4() { 32 } else { 128 });
            (text.parse().ok()).or_else(|| text.parse().ok().and_then(one)).ok_or_else(refuse)
        };
        let is_bare_ipv6 = text.matches(':').count() > 1 && !text.starts_with('[');
        // The colon of a port is behind the address and its brackets.
        let port_at = text.rfind(':').filter(|at| !is_bare_ipv6 && !text[*at..].contains(']'));
        let (address, port) = match port_at {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let port = port.filter(|port| *port != "*").map(|port| port.parse().map_err(|_| refuse()));
        let is_any = address == "*" || address.is_empty() && port_at.is_some();
        let network = (!is_any).then(|| network(address)).transpose()?;
        Ok(Host { network, port: port.transpose()? })
    }
}

#[cfg(test)]
mod tests;
