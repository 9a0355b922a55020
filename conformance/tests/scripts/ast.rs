//! The content of a script: its options, and its events in order.

use std::net::{IpAddr, SocketAddr};

/// A parsed script.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// `--name=value` lines at the head.
    pub(crate) options: Vec<(String, Option<String>)>,
    /// A command before the first event.
    pub(crate) init: Option<String>,
    pub(crate) events: Vec<Event>,
    /// A command after the last event, run whatever happened.
    pub(crate) cleanup: Option<String>,
}

/// When an event should happen, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Absolute(i64),
    /// After the event before it.
    Relative(i64),
    /// At any time; for outbound packets alone.
    Any,
    AbsoluteRange(i64, i64),
    RelativeRange(i64, i64),
}

#[derive(Debug)]
pub(crate) struct Event {
    /// The line of its time.
    pub(crate) line: usize,
    pub(crate) when: When,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Packet(PacketSpec),
    Call(CallSpec),
    Command(String),
    Code(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `<`: a packet that we inject.
    Inbound,
    /// `>`: a packet that the stack should send.
    Outbound,
}

#[derive(Clone, Debug)]
pub(crate) struct PacketSpec {
    pub(crate) direction: Direction,
    pub(crate) ip: IpSpec,
    pub(crate) body: BodySpec,
}

/// A script's description of the IP header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IpSpec {
    pub(crate) tos: TosSpec,
    /// 0: nothing said.
    pub(crate) flow_label: u32,
    pub(crate) ttl: Option<u8>,
    /// Ours alone, for datagrams: `from ADDRESS` and `to ADDRESS` in place of the socket's ends.
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: Option<IpAddr>,
    /// `df` or `nodf`: IPv4's DF.
    pub(crate) dont_fragment: Option<bool>,
    /// `cut n`: it goes in fragments.
    pub(crate) cut: Option<Cut>,
}

/// The fragments of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Payload bytes of each but the last.
    pub(crate) bytes: u16,
    /// `backwards`: the last one comes first.
    pub(crate) backwards: bool,
    /// `lost n`: that one is missing, counted from 1.
    pub(crate) lost: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TosSpec {
    #[default]
    Unchecked,
    /// The two ECN bits.
    Ecn(u8),
    /// Either ECT code point.
    Ect01,
    /// The whole byte.
    Whole(u8),
}

#[derive(Clone, Debug)]
pub(crate) enum BodySpec {
    Tcp(TcpSpec),
    Udp(UdpSpec),
    Icmp(IcmpSpec),
}

/// A script's description of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UdpSpec {
    /// Source and destination; 0: the socket's own.
    pub(crate) ports: (u16, u16),
    pub(crate) length: u16,
    /// Ours alone: `sum none` or `sum wrong`.
    pub(crate) sum: SumSpec,
    /// Ours alone: `len n` stands in the header.
    pub(crate) claimed: Option<u16>,
}

/// The checksum of an injected datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SumSpec {
    #[default]
    Right,
    /// Zero.
    None,
    Wrong,
}

/// A script's description of a segment.
#[derive(Clone, Debug)]
pub(crate) struct TcpSpec {
    /// Source and destination; 0: the connection's own.
    pub(crate) ports: (u16, u16),
    /// The low twelve bits of the header's fourth half-word without the data offset.
    pub(crate) flags: u16,
    /// The three ECN flags were written as one number (AccECN's ACE field).
    pub(crate) ace: bool,
    pub(crate) seq: u32,
    pub(crate) length: u16,
    pub(crate) ack: u32,
    /// None: unchecked.
    pub(crate) window: Option<u16>,
    pub(crate) urgent: u16,
    /// None: unchecked (`<...>`).
    pub(crate) options: Option<OptionsSpec>,
}

/// TCP options in wire format.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionsSpec {
    pub(crate) bytes: Vec<u8>,
    /// Some were written as bytes, so that they need not be options at all.
    pub(crate) is_raw: bool,
    /// `wscale *`
    pub(crate) any_wscale: bool,
}

/// A script's description of an ICMP message.
#[derive(Clone, Debug)]
pub(crate) struct IcmpSpec {
    pub(crate) kind: String,
    pub(crate) code: Option<String>,
    pub(crate) mtu: Option<u32>,
    pub(crate) echo_id: u16,
    pub(crate) quoted: Quoted,
}

/// The packet that an ICMP message quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quoted {
    Tcp {
        seq: u32,
        length: u16,
    },
    Udp {
        /// Ours alone: source and destination; 0: the socket's own.
        ports: (u16, u16),
        length: u16,
    },
    /// Nothing: the message is that many bytes long.
    Raw(u16),
}

#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    /// When a call that blocks should return; None: it does not block.
    pub(crate) end: Option<i64>,
    pub(crate) name: String,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) result: Expr,
    /// The name of the errno that it should set.
    pub(crate) errno: Option<String>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Ellipsis,
    Integer(i64),
    /// A symbol, before evaluation.
    Word(String),
    /// Bytes; escapes as written before evaluation.
    Text(Vec<u8>),
    Or(Box<Expr>, Box<Expr>),
    /// `KEY = value`
    Entry(Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
    In6Addr([u8; 16]),
    Address(SocketAddr),
    Linger {
        onoff: i32,
        linger: i32,
    },
    /// `{..., n}`: a buffer of n bytes.
    IoVec(usize),
    Poll {
        fd: Box<Expr>,
        events: Box<Expr>,
        revents: Box<Expr>,
    },
    Epoll {
        events: Box<Expr>,
        data: EpollData,
        value: Box<Expr>,
    },
    Message(Box<MessageExpr>),
    Control {
        level: Box<Expr>,
        kind: Box<Expr>,
        data: Box<Expr>,
    },
    /// `{scm_sec=…, scm_nsec=…}`
    Timestamp {
        seconds: i64,
        nanoseconds: i64,
    },
    /// errno, origin, type, code, info, data.
    ExtendedError(Vec<Expr>),
}

/// The member of `epoll_data` that a script names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpollData {
    Fd,
    Ptr,
    U32,
    U64,
}

/// A `struct msghdr`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageExpr {
    pub(crate) vectors: Vec<Expr>,
    pub(crate) vector_count: i64,
    pub(crate) flags: Expr,
    /// Its control messages.
    pub(crate) control: Vec<Expr>,
}
