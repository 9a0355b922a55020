//! SYN-RECEIVED after a simultaneous open, or after a passive one that its user has admitted: RFC
//! 9293 §3.10.7.4 for that state. (Any other passive SYN-RECEIVED is an entry of the SYN cache, in
//! `host/half_open.rs`.)

use crate::error::Error;
use crate::flow::stamp::stamp_distance;
use crate::tcp::State;
use crate::tcp::arrive::Facts;
use crate::tcp::connection::{
    Connection, Context, Early, Meaning, Paws, Reset, Shape, SynReceived, WindowUpdate,
};
use crate::tcp::time_wait::negotiate::NAMING_BEGINS;
use crate::wire::parsed::ParsedSegment;
use crate::wire::tcp::{Flags, Segment};

impl Connection {
    pub(super) fn on_syn_received(
        &mut self,
        cx: &mut Context,
        syn: SynReceived,
        s: &Segment<'_>,
        facts: Facts,
    ) {
        // The peer's own SYN, ACK lies before the window and is answered with what acknowledges it;
        // so both ends become established (Figure 8).
        let repeats_syn = s.flags.contains(Flags::SYN | Flags::ACK) && s.seq == syn.irs;
        if repeats_syn && syn.is_acknowledged_by(&s.head()) {
            self.complete_simultaneous(cx, &syn, s, facts, true);
            return self.take_rest_of_syn(cx, s, facts);
        }
        match syn.judge(&s.head(), Paws::Later, &cx.config) {
            Meaning::Nothing => {}
            Meaning::Unacceptable => {
                self.answer_due |= cx.challenges.take(self.identity.hash, cx.now);
            }
            Meaning::Reset => {
                cx.counters.resets_received += 1;
                cx.counters.failed_opens += 1;
                self.end(State::Closed, Some(Error::ConnectionRefused), cx);
            }
            Meaning::Alien => self.owe_reset(Reset { seq: s.ack, ack: None, stamps: None }, cx),
            Meaning::Completes => {
                self.complete_simultaneous(cx, &syn, s, facts, false);
                // The rest of the steps, now as an established connection.
                self.take_in(cx, ParsedSegment::Fields(s), facts);
            }
        }
    }

    fn complete_simultaneous(
        &mut self,
        cx: &mut Context,
        syn: &SynReceived,
        s: &Segment<'_>,
        facts: Facts,
        unscaled: bool,
    ) {
        if syn.names != facts.named && self.options.requires_agreement() {
            // Our SYN, ACK named an end, and this ACK does not name the same.
            cx.counters.negotiation_refused += 1;
            cx.counters.failed_opens += 1;
            return self.abort(Error::ConnectionAborted, cx);
        }
        let scale = if unscaled { 0 } else { syn.peer_scale.unwrap_or(0) };
        // RFC 7323 §4.3, rule 2: its number is not beyond what we have acknowledged.
        let newer = s.options.timestamps.map(|stamps| stamps.value);
        let newer = newer.filter(|new| syn.stamp.is_some_and(|old| stamp_distance(*new, old) > 0));
        let syn = &SynReceived { stamp: newer.or(syn.stamp), ..*syn };
        let window = u32::from(s.window) << scale;
        let told = WindowUpdate { window, seq: s.seq, ack: s.ack };
        let mut synchronized = syn.synchronize(cx, &self.options, told);
        synchronized.recv.ack.now |= unscaled;
        if let Some(ledger) = synchronized.send.ledger_mut() {
            ledger.on_opened(syn.attempts);
        }
        let early = match &mut self.shape {
            Shape::SynReceived(_, early) => core::mem::take(early),
            _ => Early::default(),
        };
        if syn.names.is_some() {
            synchronized.naming = NAMING_BEGINS;
            let is_proof = synchronized.holder.hear(facts.named);
            cx.counters.negotiation_agreed += u64::from(is_proof);
        }
        self.establish(synchronized, cx);
        if !early.is_empty() {
            self.take_early(cx, early, syn.irs, s);
        }
    }
}
