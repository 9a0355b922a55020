//! Parses arguments: their part of packetdrill's grammar.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Fault, Parser};
use crate::ast::{EpollData, Expr, MessageExpr};
use crate::lexer::Token;

impl Parser {
    pub(super) fn expression(&mut self) -> Result<Expr, Fault> {
        let left = self.operand()?;
        if self.take_sign('|') {
            let right = self.expression()?;
            return Ok(Expr::Or(Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expr, Fault> {
        let Some(token) = self.peek().cloned() else {
            return Err(self.unexpected("an expression"));
        };
        match token {
            Token::Sign('[') => return self.list(),
            Token::Sign('{') => return self.braced(),
            _ => {}
        }
        self.at += 1;
        match token {
            Token::Ellipsis => Ok(Expr::Ellipsis),
            Token::Integer(value, _) | Token::Hex(value) => Ok(Expr::Integer(value)),
            Token::Text(text) => {
                self.take_ellipsis();
                Ok(Expr::Text(text.into_bytes()))
            }
            Token::Word(word) => self.after_word(word),
            _ => {
                self.at -= 1;
                Err(self.unexpected("an expression"))
            }
        }
    }

    fn after_word(&mut self, word: String) -> Result<Expr, Fault> {
        match word.as_str() {
            "inet_addr" => {
                let address: Ipv4Addr = self.quoted_address()?;
                Ok(Expr::Integer(i64::from(u32::from_ne_bytes(address.octets()))))
            }
            "inet6_addr" => {
                let address: Ipv6Addr = self.quoted_address()?;
                Ok(Expr::In6Addr(address.octets()))
            }
            _ if self.take_sign('=') => {
                let value = self.expression()?;
                Ok(Expr::Entry(Box::new(Expr::Word(word)), Box::new(value)))
            }
            _ => Ok(Expr::Word(word)),
        }
    }

    /// `("address")`
    fn quoted_address<A: std::str::FromStr>(&mut self) -> Result<A, Fault> {
        self.want_sign('(')?;
        let text = self.text()?;
        self.want_sign(')')?;
        text.parse().or_else(|_| self.fault(format!("'{text}' is not an address")))
    }

    fn list(&mut self) -> Result<Expr, Fault> {
        self.want_sign('[')?;
        if self.take_sign(']') {
            return Ok(Expr::List(Vec::new()));
        }
        let list = self.expressions()?;
        self.want_sign(']')?;
        Ok(Expr::List(list))
    }

    /// The first word in the braces tells which structure it is.
    fn braced(&mut self) -> Result<Expr, Fault> {
        self.want_sign('{')?;
        let first = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Ellipsis) => "...".to_owned(),
            _ => String::new(),
        };
        let expression = match first.as_str() {
            "sa_family" => self.address()?,
            "msg_name" => self.message()?,
            "..." => {
                self.at += 1;
                self.want_sign(',')?;
                Expr::IoVec(self.number("iov_len")?)
            }
            "fd" => self.poll()?,
            "events" => self.epoll()?,
            "onoff" => {
                let onoff = self.numeric_member("onoff")?;
                self.want_sign(',')?;
                Expr::Linger { onoff, linger: self.numeric_member("linger")? }
            }
            "cmsg_level" => {
                let level = Box::new(self.member("cmsg_level")?);
                self.want_sign(',')?;
                let kind = Box::new(self.member("cmsg_type")?);
                self.want_sign(',')?;
                Expr::Control { level, kind, data: Box::new(self.member("cmsg_data")?) }
            }
            "scm_sec" => {
                let seconds = self.numeric_member("scm_sec")?;
                self.want_sign(',')?;
                Expr::Timestamp { seconds, nanoseconds: self.numeric_member("scm_nsec")? }
            }
            "ee_errno" => self.extended_error()?,
            _ => Expr::List(self.expressions()?),
        };
        self.want_sign('}')?;
        Ok(expression)
    }

    /// `name=expression`
    fn member(&mut self, name: &str) -> Result<Expr, Fault> {
        self.want_word(name)?;
        self.want_sign('=')?;
        self.expression()
    }

    /// `name=n`
    fn numeric_member<T: TryFrom<i64>>(&mut self, name: &str) -> Result<T, Fault> {
        self.want_word(name)?;
        self.want_sign('=')?;
        self.number(name)
    }

    fn address(&mut self) -> Result<Expr, Fault> {
        self.want_word("sa_family")?;
        self.want_sign('=')?;
        let family = self.any_word()?;
        self.want_sign(',')?;
        self.want_word("sin_port")?;
        self.want_sign('=')?;
        self.want_word("htons")?;
        self.want_sign('(')?;
        let port = self.number("port")?;
        self.want_sign(')')?;
        self.want_sign(',')?;
        self.want_word("sin_addr")?;
        self.want_sign('=')?;
        self.want_word("inet_addr")?;
        let ip: IpAddr = self.quoted_address()?;
        match (family.as_str(), ip) {
            ("AF_INET", IpAddr::V4(_)) | ("AF_INET6", IpAddr::V6(_)) => {
                Ok(Expr::Address(SocketAddr::new(ip, port)))
            }
            _ => self.fault("address and family do not match"),
        }
    }

    fn message(&mut self) -> Result<Expr, Fault> {
        self.want_word("msg_name")?;
        self.want_sign('(')?;
        self.want_ellipsis()?;
        self.want_sign(')')?;
        self.want_sign('=')?;
        self.want_ellipsis()?;
        self.want_sign(',')?;
        self.want_word("msg_iov")?;
        self.want_sign('(')?;
        let vector_count = self.integer()?;
        self.want_sign(')')?;
        self.want_sign('=')?;
        let vectors = self.elements()?;
        self.want_sign(',')?;
        let flags = self.member("msg_flags")?;
        let mut control = Vec::new();
        if self.take_sign(',') {
            self.want_word("msg_control")?;
            self.want_sign('=')?;
            control = self.elements()?;
        }
        Ok(Expr::Message(Box::new(MessageExpr { vectors, vector_count, flags, control })))
    }

    fn want_ellipsis(&mut self) -> Result<(), Fault> {
        if self.take_ellipsis() { Ok(()) } else { Err(self.unexpected("...")) }
    }

    /// The elements of a list.
    fn elements(&mut self) -> Result<Vec<Expr>, Fault> {
        match self.list()? {
            Expr::List(elements) => Ok(elements),
            _ => self.fault("expected a list"),
        }
    }

    fn poll(&mut self) -> Result<Expr, Fault> {
        let fd = Box::new(self.member("fd")?);
        self.want_sign(',')?;
        let events = Box::new(self.member("events")?);
        let revents = if self.take_sign(',') { self.member("revents")? } else { Expr::Integer(0) };
        Ok(Expr::Poll { fd, events, revents: Box::new(revents) })
    }

    fn epoll(&mut self) -> Result<Expr, Fault> {
        let events = Box::new(self.member("events")?);
        self.want_sign(',')?;
        let name = self.any_word()?;
        let data = match name.as_str() {
            "fd" => EpollData::Fd,
            "ptr" => EpollData::Ptr,
            "u32" => EpollData::U32,
            "u64" => EpollData::U64,
            _ => return self.fault("expected fd, ptr, u32 or u64"),
        };
        self.want_sign('=')?;
        Ok(Expr::Epoll { events, data, value: Box::new(self.expression()?) })
    }

    fn extended_error(&mut self) -> Result<Expr, Fault> {
        let names = ["ee_errno", "ee_origin", "ee_type", "ee_code", "ee_info", "ee_data"];
        let mut members = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.want_sign(',')?;
            }
            members.push(self.member(name)?);
        }
        Ok(Expr::ExtendedError(members))
    }
}
