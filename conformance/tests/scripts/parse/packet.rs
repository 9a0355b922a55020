//! Parses packets: their part of packetdrill's grammar.

use super::{Fault, Parser};
use crate::ast::{
    BodySpec, Cut, Direction, IcmpSpec, IpSpec, OptionsSpec, PacketSpec, Quoted, SumSpec, TcpSpec,
    TosSpec, UdpSpec,
};
use crate::lexer::Token;
use crate::packet::flag;

/// The most that TCP options may take.
const MAX_OPTION_BYTES: usize = 40;

impl Parser {
    pub(super) fn packet(&mut self) -> Result<PacketSpec, Fault> {
        let direction = if self.take_sign('<') { Direction::Inbound } else { Direction::Outbound };
        if direction == Direction::Outbound {
            self.want_sign('>')?;
        }
        if ["ipv4", "ipv6", "gre", "GREv0", "mpls"].iter().any(|word| self.is_word(word)) {
            return self.fault("encapsulated packets are not known here");
        }
        let line = self.line();
        let ip = self.ip()?;
        let body = if self.take_word("icmp") {
            BodySpec::Icmp(self.icmp()?)
        } else if self.take_word("udp") {
            BodySpec::Udp(self.udp(direction)?)
        } else {
            BodySpec::Tcp(self.tcp(direction)?)
        };
        let misplaced = match (&body, ip.tos) {
            (BodySpec::Udp(_), TosSpec::Ecn(_) | TosSpec::Ect01) => true,
            (_, TosSpec::Ect01) => direction == Direction::Inbound,
            _ => false,
        };
        if misplaced {
            return Err(Fault { line, what: "that ECN code point cannot stand here".into() });
        }
        let is_tcp = matches!(body, BodySpec::Tcp(_));
        let has_ends = ip.source.is_some() || ip.destination.is_some();
        if is_tcp && (has_ends || ip.cut.is_some() || ip.dont_fragment.is_some()) {
            return Err(Fault { line, what: "that field of IP is for datagrams alone".into() });
        }
        if direction == Direction::Inbound && ip.dont_fragment.is_some() {
            return Err(Fault { line, what: "DF is for outbound packets alone".into() });
        }
        Ok(PacketSpec { direction, ip, body })
    }

    /// `[ect0]`, `(ttl 3)`, `[tos 0x2, flowlabel 0x1]`, or nothing.
    fn ip(&mut self) -> Result<IpSpec, Fault> {
        let close = match self.peek() {
            Some(Token::Sign('(')) => ')',
            Some(Token::Sign('[')) => ']',
            _ => return Ok(IpSpec::default()),
        };
        self.at += 1;
        let mut ip = IpSpec::default();
        loop {
            if self.take_word("ttl") {
                ip.ttl = Some(self.number("ttl")?);
            } else if self.take_word("flowlabel") {
                ip.flow_label = self.hex()?;
            } else if self.take_word("tos") {
                let line = self.line();
                let value = u8::try_from(self.hex()?);
                let value = value.map_err(|_| Fault { line, what: "tos out of range".into() })?;
                ip.tos = TosSpec::Whole(value);
            } else if self.is_own_field() {
                self.own_field(&mut ip)?;
            } else {
                ip.tos = match self.any_word()?.as_str() {
                    "noecn" => TosSpec::Ecn(0),
                    "ect1" => TosSpec::Ecn(1),
                    "ect0" => TosSpec::Ecn(2),
                    "ce" => TosSpec::Ecn(3),
                    "ect01" => TosSpec::Ect01,
                    other => return self.fault(format!("unknown IP field '{other}'")),
                };
            }
            if !self.take_sign(',') {
                break;
            }
        }
        self.want_sign(close)?;
        Ok(ip)
    }

    fn is_own_field(&self) -> bool {
        let words = ["from", "to", "df", "nodf", "cut", "backwards", "lost"];
        words.iter().any(|word| self.is_word(word))
    }

    /// A field of IP that packetdrill's grammar does not have.
    fn own_field(&mut self, ip: &mut IpSpec) -> Result<(), Fault> {
        match self.any_word()?.as_str() {
            "from" => ip.source = Some(self.plain_address()?),
            "to" => ip.destination = Some(self.plain_address()?),
            "df" => ip.dont_fragment = Some(true),
            "nodf" => ip.dont_fragment = Some(false),
            "cut" => {
                let bytes: u16 = self.number("payload of a fragment")?;
                if bytes == 0 || !bytes.is_multiple_of(8) {
                    return self.fault("fragments carry a multiple of 8 bytes");
                }
                ip.cut = Some(Cut { bytes, ..Cut::default() });
            }
            other => {
                let is_order = other == "backwards";
                let lost = if is_order { None } else { Some(self.number("a fragment")?) };
                let Some(cut) = &mut ip.cut else {
                    return self.fault(format!("'{other}' comes behind 'cut'"));
                };
                cut.backwards |= is_order;
                cut.lost = lost.or(cut.lost);
            }
        }
        Ok(())
    }

    /// An address without quotes.
    fn plain_address(&mut self) -> Result<std::net::IpAddr, Fault> {
        let address = match self.peek() {
            Some(Token::Ipv4(text) | Token::Ipv6(text)) => text.parse().ok(),
            _ => None,
        };
        let address = address.ok_or_else(|| self.unexpected("an address"))?;
        self.at += 1;
        Ok(address)
    }

    /// `5000>6000 sum none len 10 (100)`; all but the length may be left out.
    fn udp(&mut self, direction: Direction) -> Result<UdpSpec, Fault> {
        let ports = self.ports()?;
        let line = self.line();
        let sum = match self.take_word("sum") {
            false => SumSpec::Right,
            true => match self.any_word()?.as_str() {
                "none" => SumSpec::None,
                "wrong" => SumSpec::Wrong,
                other => return Err(Fault { line, what: format!("unknown sum '{other}'") }),
            },
        };
        let claimed = if self.take_word("len") { Some(self.number("len")?) } else { None };
        if direction == Direction::Outbound && (sum != SumSpec::Right || claimed.is_some()) {
            return Err(Fault { line, what: "faults are for inbound datagrams alone".into() });
        }
        Ok(UdpSpec { ports, length: self.parenthesised()?, sum, claimed })
    }

    fn hex(&mut self) -> Result<u32, Fault> {
        let Some(Token::Hex(value)) = self.peek() else {
            return Err(self.unexpected("a hexadecimal number"));
        };
        let value = u32::try_from(*value);
        self.at += 1;
        value.or_else(|_| self.fault("number out of range"))
    }

    /// `5000 > 6000`, or nothing.
    fn ports(&mut self) -> Result<(u16, u16), Fault> {
        if !(matches!(self.peek(), Some(Token::Integer(..)))
            && self.peek_at(1) == Some(&Token::Sign('>')))
        {
            return Ok((0, 0));
        }
        let source = self.number("source port")?;
        self.want_sign('>')?;
        Ok((source, self.number("destination port")?))
    }

    /// `(n)`
    fn parenthesised(&mut self) -> Result<u16, Fault> {
        self.want_sign('(')?;
        let length = self.number("payload size")?;
        self.want_sign(')')?;
        Ok(length)
    }

    fn tcp(&mut self, direction: Direction) -> Result<TcpSpec, Fault> {
        let ports = self.ports()?;
        let (flags, ace) = self.flags()?;
        let (seq, length) = self.sequence()?;
        let ack = if self.take_word("ack") { self.number("ack")? } else { 0 };
        let window = if self.take_word("win") { Some(self.number("window")?) } else { None };
        if window.is_none() && direction == Direction::Inbound {
            return self.fault("window must be specified for inbound packets");
        }
        let urgent = if self.take_word("urg") { self.number("urg_ptr")? } else { 0 };
        let options = self.tcp_options()?;
        if options.is_none() && direction == Direction::Inbound {
            return self.fault("<...> for TCP options can only be used with outbound packets");
        }
        Ok(TcpSpec { ports, flags, ace, seq, length, ack, window, urgent, options })
    }

    fn flags(&mut self) -> Result<(u16, bool), Fault> {
        if self.take_sign('-') {
            return Ok((0, false));
        }
        let line = self.line();
        let mut letters = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            // A lone digit is the ACE field.
            Some(Token::Integer(_, spelling)) => spelling.clone(),
            _ => String::new(),
        };
        self.at += usize::from(!letters.is_empty());
        if self.take_sign('.') {
            letters.push('.');
        }
        if letters.is_empty() {
            return Err(self.unexpected("TCP flags"));
        }
        let mut flags = 0;
        let mut digits = 0;
        for letter in letters.chars() {
            flags |= match letter {
                'F' => flag::FIN,
                'S' => flag::SYN,
                'R' => flag::RST,
                'P' => flag::PSH,
                '.' => flag::ACK,
                'U' => flag::URG,
                'E' => flag::ECE,
                'W' => flag::CWR,
                'A' => flag::AE,
                '0'..='7' => {
                    digits += 1;
                    let count = letter as u16 - '0' as u16;
                    [flag::ECE, flag::CWR, flag::AE]
                        .into_iter()
                        .enumerate()
                        .filter(|(bit, _)| count >> bit & 1 == 1)
                        .map(|(_, flag)| flag)
                        .sum()
                }
                other => {
                    let what = format!("invalid TCP flag '{other}'");
                    return Err(Fault { line, what });
                }
            };
        }
        if digits > 1 || digits == 1 && letters.contains(['E', 'W', 'A']) {
            return Err(Fault { line, what: "conflicting TCP flags".into() });
        }
        Ok((flags, digits == 1 && flags & (flag::ECE | flag::CWR | flag::AE) != 0))
    }

    /// `1:1001(1000)`
    fn sequence(&mut self) -> Result<(u32, u16), Fault> {
        let start: u32 = self.number("sequence number")?;
        self.want_sign(':')?;
        let end: u32 = self.number("sequence number")?;
        let line = self.line();
        let length = self.parenthesised()?;
        if u64::from(end) != u64::from(start) + u64::from(length) {
            let what = "inconsistent TCP sequence numbers and payload size".into();
            return Err(Fault { line, what });
        }
        Ok((start, length))
    }

    fn tcp_options(&mut self) -> Result<Option<OptionsSpec>, Fault> {
        let mut options = OptionsSpec::default();
        if !self.take_sign('<') {
            return Ok(Some(options));
        }
        if self.take_ellipsis() {
            self.want_sign('>')?;
            return Ok(None);
        }
        loop {
            self.tcp_option(&mut options)?;
            if !self.take_sign(',') {
                break;
            }
        }
        self.want_sign('>')?;
        if options.bytes.len() > MAX_OPTION_BYTES {
            return self.fault("TCP option list too long");
        }
        if options.bytes.len() % 4 != 0 {
            return self.fault("TCP options are not padded to a multiple of 4 bytes");
        }
        Ok(Some(options))
    }

    fn tcp_option(&mut self, options: &mut OptionsSpec) -> Result<(), Fault> {
        let name = self.any_word()?;
        let bytes = &mut options.bytes;
        match name.as_str() {
            "nop" => bytes.push(1),
            "eol" => bytes.push(0),
            "mss" => {
                bytes.extend([2, 4]);
                bytes.extend(self.number::<u16>("mss")?.to_be_bytes());
            }
            "wscale" => {
                options.any_wscale |= self.is_sign('*');
                let shift = if self.take_sign('*') { 0 } else { self.number("shift count")? };
                bytes.extend([3, 3, shift]);
            }
            "sackOK" => bytes.extend([4, 2]),
            "sack" => self.sack(bytes)?,
            "TS" => {
                self.want_word("val")?;
                let value: u32 = self.number("ts val")?;
                self.want_word("ecr")?;
                let echo: u32 = self.number("ts ecr")?;
                bytes.extend([8, 10]);
                bytes.extend(value.to_be_bytes());
                bytes.extend(echo.to_be_bytes());
            }
            // Ours alone: what no option may look like.
            "raw" => {
                options.is_raw = true;
                let more = self.hex_blob()?;
                options.bytes.extend(more);
            }
            "md5" => {
                let digest = self.hex_blob()?;
                push_option(bytes, 19, &digest);
            }
            "FO" => {
                let cookie = self.hex_blob()?;
                push_option(bytes, 34, &cookie);
            }
            "FOEXP" => {
                let mut body = vec![0xf9, 0x89];
                body.extend(self.hex_blob()?);
                push_option(bytes, 254, &body);
            }
            other => return self.fault(format!("unknown TCP option '{other}'")),
        }
        Ok(())
    }

    /// `1:2 3:4`
    fn sack(&mut self, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let mut blocks = Vec::new();
        while let Some(Token::Integer(..)) = self.peek() {
            blocks.extend(self.number::<u32>("SACK left edge")?.to_be_bytes());
            self.want_sign(':')?;
            blocks.extend(self.number::<u32>("SACK right edge")?.to_be_bytes());
        }
        if blocks.is_empty() {
            return Err(self.unexpected("a SACK block"));
        }
        if blocks.len() + 2 > MAX_OPTION_BYTES {
            return self.fault("too many SACK blocks");
        }
        push_option(bytes, 5, &blocks);
        Ok(())
    }

    /// Pairs of hexadecimal digits, or nothing.
    fn hex_blob(&mut self) -> Result<Vec<u8>, Fault> {
        let digits = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Integer(_, spelling)) => spelling.clone(),
            _ => return Ok(Vec::new()),
        };
        let pairs = digits.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| match pair {
                [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
                }
                _ => None,
            })
            .collect();
        let Some(bytes) = bytes.filter(|bytes| bytes.len() + 4 <= MAX_OPTION_BYTES) else {
            return self.fault("not a string of hexadecimal bytes, or too long a one");
        };
        self.at += 1;
        Ok(bytes)
    }

    /// `unreachable frag_needed mtu 1200 id 1 [1:1001(1000)]`
    fn icmp(&mut self) -> Result<IcmpSpec, Fault> {
        let kind = self.any_word()?;
        let code = match self.peek() {
            Some(Token::Word(word)) if word != "mtu" && word != "id" => {
                let code = word.clone();
                self.at += 1;
                Some(code)
            }
            _ => None,
        };
        let mtu = if self.take_word("mtu") { Some(self.number("mtu")?) } else { None };
        let echo_id = if self.take_word("id") { self.number("id")? } else { 0 };
        let mut quoted = Quoted::Tcp { seq: 0, length: 0 };
        if self.take_sign('[') {
            quoted = if self.take_word("udp") {
                Quoted::Udp { ports: self.ports()?, length: self.parenthesised()? }
            } else if self.take_word("raw") {
                Quoted::Raw(self.parenthesised()?)
            } else {
                let (seq, length) = self.sequence()?;
                Quoted::Tcp { seq, length }
            };
            self.want_sign(']')?;
        }
        Ok(IcmpSpec { kind, code, mtu, echo_id, quoted })
    }
}

/// An option with its length.
fn push_option(bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
    let length = u8::try_from(body.len() + 2).unwrap_or(u8::MAX);
    bytes.extend([kind, length]);
    bytes.extend(body);
}
