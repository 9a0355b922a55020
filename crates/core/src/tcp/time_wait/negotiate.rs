//! TW-Negotiate: which end holds TIME-WAIT is agreed on when a connection is opened (Faber, Touch &
//! Yue 1999 §3).
//!
//! ```text
//!   client ──▶ SYN       the end it wishes to hold, by address
//!          ◀── SYN, ACK  the server's choice               (without: TCP as ever)
//!          ──▶ ACK       the same, if it agrees; else RST
//!              …         in every segment, until one comes that is no SYN
//! ```
//!
//! The option is one of RFC 6994's experiments, laid out so that it fits beside all that a SYN
//! offers:
//!
//! ```text
//!   bytes  0  kind 253   1  length   2  ExID   4  address: 4 bytes, or 16 of IPv6
//!
//!   SYN     MSS 4, SACK permitted 2, timestamps 10, nop, scale 3  = 20  + 8 (IPv4) or 20 (IPv6)
//!   later   nop, nop, timestamps 10                               = 12  + 8 or 20
//! ```
//!
//! Over IPv6 a SYN is full to its 40th byte, and nothing gives way. The client's segments that
//! repeat the option have nothing to acknowledge selectively, but for text of a SYN, ACK that came
//! twice (RFC 2883): over IPv6 that is not reported. If the experiments together are too long for
//! the parser, the first ones count.
//!
//! **Which end holds.** Losses, repetitions and middleboxes that strip the option must never leave
//! both ends believing that the other holds. So:
//! - an end that has named *itself* in a SYN, ACK or an ACK holds, whatever it hears: the peer may
//!   have taken that for a proof ([`Holder::Ourselves`]);
//! - an end leaves TIME-WAIT to the peer only once the peer has named itself in such a segment
//!   ([`Holder::Peer`]). Until then it holds if it closes first ([`Holder::Unproven`]).
//!
//! An address in a SYN is a wish and no promise. An address that is neither end's, as behind a
//! translator of addresses, is as if there were no option.
//!
//! **Closing.** FINs are exchanged as ever. Then the holder enters TIME-WAIT, and the other end
//! CLOSED, whichever closed first. If the last ACK of the latter is lost, the holder's FIN comes
//! again and draws an RST, which the holder takes for the ACK. Only its FIN can be missing then: an
//! end to which text came behind its own FIN keeps TIME-WAIT as well, since the holder may have
//! heard none of its later ACKs.

mod memory;

pub use memory::Unheard;

use core::net::IpAddr;

use crate::config::{Disagreement, TcpConfig, Wish};
use crate::wire::options::{Experimental, Options};

/// SYNs that carry the option, at the beginning of an open: some networks drop what they do not
/// know (a lone lost SYN shall not cost the agreement).
pub(crate) const ASKING_SYNS: u8 = 2;

/// Bytes of the option, as long as no segment has been laid out that carries it.
pub(crate) const NAMING_BEGINS: u8 = Code::padded_len(true);

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Ours.
    Ourselves,
    /// The peer's.
    Peer,
}

/// Which end holds TIME-WAIT when a connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Holder {
    /// The end that closes first, or both (RFC 9293 §3.6).
    #[default]
    Closer,
    /// The end that closes first: we have named the peer, which has not proved yet that it knows.
    Unproven,
    /// We, by agreement.
    Ourselves,
    /// The peer, by agreement.
    Peer,
}

/// Why TIME-WAIT is held here, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Holding {
    /// We closed first, or both ends did at once (RFC 9293 §3.6).
    #[default]
    Closer,
    /// We take it over from the peer, which closed first and is to forget its own (Faber, Touch &
    /// Yue 1999 §4.1).
    Swapped,
    /// Both ends have agreed on us.
    Agreed,
    /// It is not: the peer holds it, by agreement.
    ByPeer,
}

impl Holding {
    /// True if the peer relies on us, so that no RST may end it.
    pub(crate) fn is_promised(self) -> bool {
        matches!(self, Holding::Swapped | Holding::Agreed)
    }
}

/// The outcome of the peer's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no agreement: TCP as ever.
    None,
    /// This end holds.
    Agreed(End),
    /// The connection is not to be.
    Refused,
}

/// What an end asks for when it opens or listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderTerms {
    /// Which end it wishes to hold; `None`: it does not negotiate.
    pub wish: Option<End>,
    /// Without an agreement there is to be no connection.
    pub required: bool,
    /// The action after another choice.
    pub disagreement: Disagreement,
}

/// How the option is known on the wire (RFC 6994).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// 253 or 254.
    pub kind: u8,
    /// The experiment's identifier.
    pub exid: u16,
}

impl Wish {
    /// The end that is wished for, of a connection that we open or accept.
    pub fn end(self, opens: bool) -> Option<End> {
        match self {
            Wish::Off => None,
            Wish::Ourselves => Some(End::Ourselves),
            Wish::Peer => Some(End::Peer),
            Wish::Client => Some(if opens { End::Ourselves } else { End::Peer }),
            Wish::Server => Some(if opens { End::Peer } else { End::Ourselves }),
        }
    }
}

impl HolderTerms {
    /// What a client makes of `choice`, in the SYN, ACK: step 3.
    pub(crate) fn judge(&self, choice: Option<End>) -> Outcome {
        let is_lenient = !self.required && self.disagreement == Disagreement::FallBack;
        match (self.wish, choice) {
            (None, _) => Outcome::None,
            (Some(_), None) if self.required => Outcome::Refused,
            (Some(_), None) => Outcome::None,
            (Some(wish), Some(choice)) if wish == choice => Outcome::Agreed(choice),
            (Some(_), Some(_)) if is_lenient => Outcome::None,
            (Some(_), Some(_)) => Outcome::Refused,
        }
    }

    /// What an end makes of a SYN that crossed its own: Table 1 makes the choice, of our wish and
    /// of what the peer's SYN names. `are_larger`: our address is the larger one.
    pub(crate) fn judge_crossed(&self, theirs: Option<End>, are_larger: bool) -> Outcome {
        let larger = if are_larger { End::Ourselves } else { End::Peer };
        let choice =
            self.wish.zip(theirs).map(|(ours, theirs)| if ours == theirs { ours } else { larger });
        self.judge(choice)
    }
}

impl Holder {
    /// Which end holds once we have sent a SYN, ACK or an ACK that names `end`.
    pub(crate) fn having_named(end: Option<End>) -> Holder {
        match end {
            None => Holder::Closer,
            Some(End::Ourselves) => Holder::Ourselves,
            Some(End::Peer) => Holder::Unproven,
        }
    }

    /// Which end holds once we have agreed to the choice of a SYN, ACK: the proof is that the peer
    /// has named itself in it.
    pub fn agreed(end: End) -> Holder {
        match end {
            End::Ourselves => Holder::Ourselves,
            End::Peer => Holder::Peer,
        }
    }

    /// The peer has named `end` in a segment that is no SYN, or a SYN, ACK. True if that is the
    /// proof that was waited for.
    pub fn hear(&mut self, end: Option<End>) -> bool {
        let proves = *self == Holder::Unproven && end == Some(End::Peer);
        if proves {
            *self = Holder::Peer;
        }
        proves
    }

    /// Why we hold, or that we do not, where an end that closes first would.
    pub fn holding(self) -> Holding {
        match self {
            Holder::Closer | Holder::Unproven => Holding::Closer,
            Holder::Ourselves => Holding::Agreed,
            Holder::Peer => Holding::ByPeer,
        }
    }

    /// The end that our segments name as long as they have to.
    pub fn named(self) -> Option<End> {
        match self {
            Holder::Closer => None,
            Holder::Ourselves => Some(End::Ourselves),
            Holder::Unproven | Holder::Peer => Some(End::Peer),
        }
    }
}

impl Code {
    /// The code that is configured.
    pub fn of(config: &TcpConfig) -> Code {
        Code { kind: config.time_wait.option_kind, exid: config.time_wait.option_exid }
    }

    /// Bytes of the option that names an address of this version, with its filler.
    pub(crate) const fn padded_len(ipv6: bool) -> u8 {
        if ipv6 { 20 } else { 8 }
    }

    /// The option that names `address`.
    pub fn option(self, address: IpAddr) -> Experimental {
        let mut data = [0; 18];
        let [a, b] = self.exid.to_be_bytes();
        (data[0], data[1]) = (a, b);
        let len = match address {
            IpAddr::V4(address) => {
                data[2..6].copy_from_slice(&address.octets());
                6
            }
            IpAddr::V6(address) => {
                data[2..].copy_from_slice(&address.octets());
                18
            }
        };
        let mut option = Experimental::EMPTY;
        option.push(self.kind, &data[..len]);
        option
    }

    /// The address that `options` name.
    pub fn address(self, options: &Options) -> Option<IpAddr> {
        let exid = self.exid.to_be_bytes();
        let of_ours = |(kind, data): (u8, &[u8])| {
            let value = data.strip_prefix(&exid).filter(|_| kind == self.kind)?;
            let v4 = || <[u8; 4]>::try_from(value).map(IpAddr::from).ok();
            <[u8; 16]>::try_from(value).map(IpAddr::from).ok().or_else(v4)
        };
        options.experimental.iter().find_map(of_ours)
    }

    /// Which of the ends `options` name. `None` also if it is neither, or if one address is both
    /// ends'.
    pub fn named(self, options: &Options, ours: IpAddr, theirs: IpAddr) -> Option<End> {
        let address = self.address(options).filter(|_| ours != theirs)?;
        if address == ours {
            Some(End::Ourselves)
        } else {
            (address == theirs).then_some(End::Peer)
        }
    }
}

#[cfg(test)]
mod tests;
