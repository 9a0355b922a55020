//! Neighbour discovery messages (RFC 4861 §4), as ICMPv6 carries them.
//!
//! Parsing applies the validity rules of RFC 4861 §6.1 and §7.1, so that what comes out may be
//! acted upon. Redirects are not among the messages: a host need not follow them, and we do not.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::ethernet::Mac;
use super::{Malformed, u16_at, u32_at};

/// The hop limit of every message: it has not been forwarded.
pub(crate) const HOP_LIMIT: u8 = 255;

/// Options walked at most in one message.
pub(crate) const MAX_OPTIONS: usize = 32;

/// Prefixes taken from one advertisement; the others are ignored.
pub(crate) const MAX_PREFIXES: usize = 4;

/// All nodes on the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link.
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// ICMPv6 message types.
pub(super) mod kind {
    pub(in super::super) const ROUTER_SOLICIT: u8 = 133;
    pub(in super::super) const ROUTER_ADVERTISEMENT: u8 = 134;
    pub(in super::super) const NEIGHBOUR_SOLICIT: u8 = 135;
    pub(in super::super) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

/// Option types.
mod option {
    pub(super) const SOURCE_LINK_LAYER: u8 = 1;
    pub(super) const TARGET_LINK_LAYER: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const MTU: u8 = 5;
    pub(super) const NONCE: u8 = 14;
}

/// The group to which solicitations for `address` are sent (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let (high, low) = (0xff00 | a as u16, (b as u16) << 8 | c as u16);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// A message, arrived or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Are there routers?
    RouterSolicit {
        /// The sender's hardware address.
        link_layer: Option<Mac>,
    },
    /// Here is one.
    RouterAdvertisement(RouterAdvertisement),
    /// Asks for the host that has `target`.
    NeighbourSolicit {
        /// The address asked for: not a group.
        target: Ipv6Addr,
        /// The sender's hardware address; absent when it only probes for duplicates.
        link_layer: Option<Mac>,
        /// What tells our own probe, looped back, from another's (RFC 7527 §4.1).
        nonce: Option<[u8; 6]>,
    },
    /// I have `target`.
    NeighbourAdvertisement {
        /// The address: not a group.
        target: Ipv6Addr,
        /// Its hardware address.
        link_layer: Option<Mac>,
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation.
        solicited: bool,
        /// O: it replaces what is known.
        overrides: bool,
    },
}

/// A router's description of itself and of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RouterAdvertisement {
    /// The hop limit to use; 0: not said.
    pub hop_limit: u8,
    /// M: addresses are to be had by DHCPv6.
    pub managed: bool,
    /// O: other things are to be had by DHCPv6.
    pub other: bool,
    /// For how many seconds it is a default router; 0: it is none.
    pub router_lifetime_s: u16,
    /// For how long a neighbour is reachable after a confirmation; 0: not said.
    pub reachable_ms: u32,
    /// The time between solicitations; 0: not said.
    pub retransmit_ms: u32,
    /// The router's hardware address.
    pub link_layer: Option<Mac>,
    /// The link's MTU.
    pub mtu: Option<u32>,
    /// The link's prefixes.
    pub prefixes: Prefixes,
}

/// A prefix of the link (RFC 4861 §4.6.2). A lifetime of all ones is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The prefix: bits beyond its length are to be ignored.
    pub prefix: Ipv6Addr,
    /// Its bits, at most 128.
    pub prefix_len: u8,
    /// L: addresses with this prefix are on the link.
    pub on_link: bool,
    /// A: make yourself an address of it (RFC 4862).
    pub autonomous: bool,
    /// For how many seconds all this holds.
    pub valid_s: u32,
    /// For how many seconds an address made of it is to be preferred.
    pub preferred_s: u32,
}

/// At most `MAX_PREFIXES` prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prefixes {
    prefixes: [Option<Prefix>; MAX_PREFIXES],
}

impl Prefixes {
    /// Adds one; false if there is no room.
    pub fn push(&mut self, prefix: Prefix) -> bool {
        let free = self.prefixes.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(prefix)).is_some()
    }

    /// The prefixes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.prefixes.iter().flatten().copied()
    }
}

/// The addresses of a message's packet: its validity depends on these as well as on its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) hop_limit: u8,
}

/// True if the ICMPv6 message `bytes` says that it is one of these.
pub(crate) fn is_message(bytes: &[u8]) -> bool {
    let kinds = kind::ROUTER_SOLICIT..=kind::NEIGHBOUR_ADVERTISEMENT;
    bytes.first().is_some_and(|kind| kinds.contains(kind))
}

impl Message {
    /// The message of type `kind` and `code` whose `body` follows the checksum; `None` if the type
    /// is not one of these.
    pub(super) fn parse(
        kind: u8,
        code: u8,
        body: &[u8],
        envelope: Envelope,
    ) -> Option<Result<Message, Malformed>> {
        let parse = match kind {
            kind::ROUTER_SOLICIT => parse_router_solicit,
            kind::ROUTER_ADVERTISEMENT => parse_router_advertisement,
            kind::NEIGHBOUR_SOLICIT => parse_neighbour_solicit,
            kind::NEIGHBOUR_ADVERTISEMENT => parse_neighbour_advertisement,
            _ => return None,
        };
        Some(match () {
            () if envelope.hop_limit != HOP_LIMIT => Err(Malformed::NdpHopLimit),
            () if code != 0 => Err(Malformed::NdpRule),
            () => parse(body, envelope),
        })
    }

    /// The message's ICMPv6 type.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Message::RouterSolicit { .. } => kind::ROUTER_SOLICIT,
            Message::RouterAdvertisement(_) => kind::ROUTER_ADVERTISEMENT,
            Message::NeighbourSolicit { .. } => kind::NEIGHBOUR_SOLICIT,
            Message::NeighbourAdvertisement { .. } => kind::NEIGHBOUR_ADVERTISEMENT,
        }
    }

    /// Appends what follows the checksum.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Message::RouterSolicit { link_layer } => {
                out.extend_from_slice(&[0; 4]);
                emit_eight(option::SOURCE_LINK_LAYER, *link_layer, out);
            }
            Message::RouterAdvertisement(advertisement) => advertisement.emit(out),
            Message::NeighbourSolicit { target, link_layer, nonce } => {
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&target.octets());
                emit_eight(option::SOURCE_LINK_LAYER, *link_layer, out);
                emit_eight(option::NONCE, *nonce, out);
            }
            Message::NeighbourAdvertisement {
                target,
                link_layer,
                router,
                solicited,
                overrides,
            } => {
                let flags =
                    u8::from(*router) << 7 | u8::from(*solicited) << 6 | u8::from(*overrides) << 5;
                out.extend_from_slice(&[flags, 0, 0, 0]);
                out.extend_from_slice(&target.octets());
                emit_eight(option::TARGET_LINK_LAYER, *link_layer, out);
            }
        }
    }
}

/// Appends an option of 8 bytes, if there is one.
fn emit_eight(kind: u8, value: Option<[u8; 6]>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.extend_from_slice(&[kind, 1]);
        out.extend_from_slice(&value);
    }
}

impl RouterAdvertisement {
    fn emit(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        out.extend_from_slice(&[self.hop_limit, flags]);
        out.extend_from_slice(&self.router_lifetime_s.to_be_bytes());
        out.extend_from_slice(&self.reachable_ms.to_be_bytes());
        out.extend_from_slice(&self.retransmit_ms.to_be_bytes());
        emit_eight(option::SOURCE_LINK_LAYER, self.link_layer, out);
        let mtu = self.mtu.map(|mtu| {
            let [a, b, c, d] = mtu.to_be_bytes();
            [0, 0, a, b, c, d]
        });
        emit_eight(option::MTU, mtu, out);
        for prefix in self.prefixes.iter() {
            let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
            out.extend_from_slice(&[option::PREFIX, 4, prefix.prefix_len, flags]);
            out.extend_from_slice(&prefix.valid_s.to_be_bytes());
            out.extend_from_slice(&prefix.preferred_s.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&prefix.prefix.octets());
        }
    }
}

fn parse_router_solicit(body: &[u8], envelope: Envelope) -> Result<Message, Malformed> {
    let options = body.get(4..).ok_or(Malformed::NdpLength)?;
    let link_layer = Options::parse(options)?.source_link_layer;
    if envelope.source.is_unspecified() && link_layer.is_some() {
        return Err(Malformed::NdpRule);
    }
    Ok(Message::RouterSolicit { link_layer })
}

fn parse_router_advertisement(body: &[u8], envelope: Envelope) -> Result<Message, Malformed> {
    let short = Malformed::NdpLength;
    let (fixed, options) = body.split_first_chunk::<12>().ok_or(short)?;
    if !envelope.source.is_unicast_link_local() {
        return Err(Malformed::NdpRule);
    }
    let options = Options::parse(options)?;
    Ok(Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: fixed[0],
        managed: fixed[1] & 0x80 != 0,
        other: fixed[1] & 0x40 != 0,
        router_lifetime_s: u16_at(fixed, 2).ok_or(short)?,
        reachable_ms: u32_at(fixed, 4).ok_or(short)?,
        retransmit_ms: u32_at(fixed, 8).ok_or(short)?,
        link_layer: options.source_link_layer,
        mtu: options.mtu,
        prefixes: options.prefixes,
    }))
}

/// The four bytes of flags, the target and the options of a neighbour message.
fn parse_target(body: &[u8]) -> Result<(u8, Ipv6Addr, Options), Malformed> {
    let (fixed, options) = body.split_first_chunk::<20>().ok_or(Malformed::NdpLength)?;
    let target = Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| fixed[4 + i]));
    if target.is_multicast() {
        return Err(Malformed::NdpRule);
    }
    Ok((fixed[0], target, Options::parse(options)?))
}

fn parse_neighbour_solicit(body: &[u8], envelope: Envelope) -> Result<Message, Malformed> {
    let (_, target, options) = parse_target(body)?;
    let link_layer = options.source_link_layer;
    // A probe for duplicates goes to the solicited-node group, and comes from the unspecified
    // address.
    let to_group = envelope.destination == solicited_node(target);
    if envelope.source.is_unspecified() && (!to_group || link_layer.is_some()) {
        return Err(Malformed::NdpRule);
    }
    Ok(Message::NeighbourSolicit { target, link_layer, nonce: options.nonce })
}

fn parse_neighbour_advertisement(body: &[u8], envelope: Envelope) -> Result<Message, Malformed> {
    let (flags, target, options) = parse_target(body)?;
    let solicited = flags & 0x40 != 0;
    if solicited && envelope.destination.is_multicast() {
        return Err(Malformed::NdpRule);
    }
    Ok(Message::NeighbourAdvertisement {
        target,
        link_layer: options.target_link_layer,
        router: flags & 0x80 != 0,
        solicited,
        overrides: flags & 0x20 != 0,
    })
}

/// The options that we understand; of those that may come once the last counts.
#[derive(Default)]
struct Options {
    source_link_layer: Option<Mac>,
    target_link_layer: Option<Mac>,
    mtu: Option<u32>,
    nonce: Option<[u8; 6]>,
    prefixes: Prefixes,
}

impl Options {
    fn parse(mut bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::default();
        for _ in 0..MAX_OPTIONS {
            let [kind, units, ..] = *bytes else {
                return if bytes.is_empty() { Ok(options) } else { Err(Malformed::NdpOption) };
            };
            let len = 8 * usize::from(units);
            let value = bytes.get(2..len).ok_or(Malformed::NdpOption)?;
            options.take(kind, value);
            bytes = &bytes[len..];
        }
        if bytes.is_empty() { Ok(options) } else { Err(Malformed::NdpOptionLimit) }
    }

    /// Takes in one option of known shape; ignores any other.
    fn take(&mut self, kind: u8, value: &[u8]) {
        let six = || <[u8; 6]>::try_from(value).ok();
        match kind {
            option::SOURCE_LINK_LAYER => self.source_link_layer = six(),
            option::TARGET_LINK_LAYER => self.target_link_layer = six(),
            option::NONCE => self.nonce = six(),
            option::MTU => self.mtu = six().and_then(|value| u32_at(&value, 2)),
            option::PREFIX => {
                if let Some(prefix) = parse_prefix(value) {
                    self.prefixes.push(prefix);
                }
            }
            _ => {}
        }
    }
}

fn parse_prefix(value: &[u8]) -> Option<Prefix> {
    let fixed = <&[u8; 30]>::try_from(value).ok()?;
    Some(Prefix {
        prefix: Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| fixed[14 + i])),
        prefix_len: Some(fixed[0]).filter(|len| *len <= 128)?,
        on_link: fixed[1] & 0x80 != 0,
        autonomous: fixed[1] & 0x40 != 0,
        valid_s: u32_at(fixed, 2)?,
        preferred_s: u32_at(fixed, 6)?,
    })
}

#[cfg(test)]
mod tests;
