//! Lets the host negotiate which end holds TIME-WAIT: only the host knows the addresses that the
//! option names, and remembers peers that are not to be asked.

use alloc::sync::Arc;

use super::Host;
use crate::config::{TimeWaitState, Wish};
use crate::flow::Tuple;
use crate::tcp::SocketOptions;
use crate::tcp::arrive::Facts;
use crate::tcp::connection::Shape;
use crate::tcp::slot::SlotFlags;
use crate::tcp::time_wait::negotiate::{ASKING_SYNS, Code, End, Holder};
use crate::time::Instant;
use crate::wire::parsed::ParsedSegment;

/// The peer does not negotiate, and there is to be no connection without an agreement.
pub(super) struct Unwilling;

impl Host {
    /// `facts`, with the end that a segment between the ends of `tuple` names.
    #[inline(always)]
    pub(super) fn with_named(
        &self,
        tuple: &Tuple,
        parsed: ParsedSegment<'_>,
        facts: Facts,
    ) -> Facts {
        if parsed.has_experiments() { self.with_end(tuple, parsed, facts) } else { facts }
    }

    fn with_end(&self, tuple: &Tuple, parsed: ParsedSegment<'_>, facts: Facts) -> Facts {
        let (segment, ours, theirs) = (parsed.segment(), tuple.local_ip(), tuple.remote_ip());
        let named = Code::of(&self.shared.config).named(&segment.options, ours, theirs);
        Facts { named, are_larger: ours > theirs, ..facts }
    }

    /// The end that sockets with these options wish to hold TIME-WAIT. A host that keeps nothing in
    /// TIME-WAIT must not promise to.
    fn wish(&self, options: &SocketOptions, opens: bool) -> Option<End> {
        let keeps_none = self.config.limits.time_wait == 0
            || self.shared.config.time_wait.state == TimeWaitState::Skip;
        options.negotiate.end(opens).filter(|_| !keeps_none)
    }

    /// True if our SYN, ACKs for a listener with these options may name us.
    pub(super) fn may_name_us(&self, options: &SocketOptions) -> bool {
        self.wish(options, false) == Some(End::Ourselves)
    }

    /// The end that a SYN of ours, between the ends of `tuple`, shall name, by these options or the
    /// host's.
    pub(super) fn asks(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        options: Option<&Arc<SocketOptions>>,
    ) -> Option<End> {
        let options = options.unwrap_or(&self.opening.options);
        if options.negotiate == Wish::Off {
            return None;
        }
        let wish = self.wish(options, true).filter(|_| tuple.local_ip() != tuple.remote_ip())?;
        let is_unheard =
            self.opening.unheard.has(tuple.remote_ip(), now) && !options.require_agreement;
        self.shared.counters.negotiation_not_asked += u64::from(is_unheard);
        (!is_unheard).then_some(wish)
    }

    /// Step 2: the end that our SYN, ACK is to name, in answer to a SYN for a listener with these
    /// options. The choice is the server's; whether that suits the peer is for the peer to say.
    pub(super) fn choose_holder(
        &self,
        options: &SocketOptions,
        tuple: &Tuple,
        syn: ParsedSegment<'_>,
    ) -> Result<Option<End>, Unwilling> {
        if options.negotiate == Wish::Off {
            return Ok(None);
        }
        let facts = self.with_named(tuple, syn, Facts::default());
        let names = self.wish(options, false).filter(|_| facts.named.is_some());
        if names.is_none() && options.require_agreement { Err(Unwilling) } else { Ok(names) }
    }

    /// How many SYNs the connection in slot `index` has sent, if it has asked; to be noted before a
    /// segment is delivered.
    pub(super) fn asked(&self, index: u32) -> Option<u8> {
        let slot = self.slots.get(index).filter(|slot| slot.flags.has(SlotFlags::ASKS))?;
        match &slot.awake()?.shape {
            Shape::SynSent(syn) => Some(syn.attempts),
            _ => Some(0),
        }
    }

    /// Notes the answer once the segment is delivered. If the connection is open, the peer has
    /// answered one of `syns` SYNs. If the first SYNs, which asked, were in vain, and the one that
    /// did not ask is answered, something on the way drops what it does not know.
    pub(super) fn note_answered(&mut self, now: Instant, index: u32, syns: u8) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(holder) = slot.awake().and_then(|c| c.synchronized()).map(|s| s.holder) else {
            return;
        };
        slot.flags = slot.flags.with(SlotFlags::ASKS, false);
        let peer = slot.tuple.remote_ip();
        if syns > ASKING_SYNS && holder == Holder::Closer {
            self.shared.counters.negotiation_unheard += 1;
            self.opening.unheard.note(peer, now);
        }
    }
}
