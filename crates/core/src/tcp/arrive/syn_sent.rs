//! SYN-SENT: RFC 9293 §3.10.7.3, its numbered steps in order.

use crate::error::Error;
use crate::tcp::State;
use crate::tcp::arrive::Facts;
use crate::tcp::connection::{
    Connection, Context, Early, OurSyn, Reset, Shape, Step, SynReceived, SynSent, WindowUpdate,
};
use crate::tcp::time_wait::negotiate::{End, Holder, HolderTerms, NAMING_BEGINS, Outcome};
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Segment};

impl Connection {
    #[inline(always)]
    pub(super) fn on_syn_sent(
        &mut self,
        cx: &mut Context,
        syn: SynSent,
        s: &Segment<'_>,
        facts: Facts,
    ) {
        // First: an ACK must be for our SYN.
        let acks = s.flags.contains(Flags::ACK);
        if acks && s.ack != syn.iss + 1 {
            if !s.flags.contains(Flags::RST) {
                self.owe_reset(Reset { seq: s.ack, ack: None, stamps: None }, cx);
            }
            return;
        }
        // Second: RST counts only with an acceptable ACK (RFC 5961 §3 leaves this rule).
        if s.flags.contains(Flags::RST) {
            if acks {
                cx.counters.resets_received += 1;
                cx.counters.failed_opens += 1;
                self.end(State::Closed, Some(Error::ConnectionRefused), cx);
            }
            return;
        }
        // Fourth: SYN.
        if !s.flags.contains(Flags::SYN) {
            return;
        }
        if syn.predecessor.is_some_and(|predecessor| !predecessor.is_followed_by(s)) {
            return self.on_unsafe_reuse(cx, acks, s);
        }
        let SynSent { iss, stamp_offset, mss, offer, attempts, ipv6, asks_ecn, .. } = syn;
        let ours = OurSyn { iss, stamp_offset, mss, offer, attempts, ipv6, asks_ecn };
        let received = ours.negotiate(s, &cx.config);
        if syn.asks.is_some() {
            return self.on_answer_about_holder(cx, received, &syn, acks, s, facts);
        }
        if acks {
            self.complete_open(cx, received, syn.sent_at, s);
        } else {
            self.open_simultaneously(cx, received, s);
        }
    }

    /// Takes in the answer to a SYN that has asked which end shall hold TIME-WAIT.
    fn on_answer_about_holder(
        &mut self,
        cx: &mut Context,
        mut received: SynReceived,
        syn: &SynSent,
        acks: bool,
        s: &Segment<'_>,
        facts: Facts,
    ) {
        let terms = self.terms(syn, cx);
        let outcome = match acks {
            true => terms.judge(facts.named),
            false => terms.judge_crossed(facts.named, facts.are_larger),
        };
        let agreed = match outcome {
            Outcome::Refused => return self.refuse_holder(cx, &received, acks),
            Outcome::None => None,
            Outcome::Agreed(end) => Some(end),
        };
        cx.counters.negotiation_fallen_back += u64::from(agreed.is_none());
        if acks {
            self.complete_open(cx, received, syn.sent_at, s);
            self.keep_agreement(agreed, cx);
        } else {
            received.names = agreed;
            self.open_simultaneously(cx, received, s);
        }
    }

    /// What we ask about TIME-WAIT.
    fn terms(&self, syn: &SynSent, cx: &Context) -> HolderTerms {
        HolderTerms {
            wish: syn.asks,
            required: self.options.requires_agreement(),
            disagreement: cx.config.time_wait.disagreement,
        }
    }

    /// Step 3 of Faber, Touch & Yue 1999 §3: the connection is aborted as one that has failed to
    /// synchronize. Where the peer has opened as well, it may be in SYN-SENT, and an RST counts
    /// there only with the ACK of its SYN; or in SYN-RECEIVED, and it counts at its RCV.NXT.
    fn refuse_holder(&mut self, cx: &mut Context, received: &SynReceived, acks: bool) {
        let ack = (!acks).then_some(received.irs + 1);
        cx.counters.negotiation_refused += 1;
        cx.counters.failed_opens += 1;
        self.owe_reset(Reset { seq: received.iss + 1, ack, stamps: None }, cx);
        self.end(State::Closed, Some(Error::ConnectionAborted), cx);
    }

    /// The peer's SYN, ACK names the end that we agree to, if we do: every segment of ours says so
    /// until the peer has heard it.
    fn keep_agreement(&mut self, agreed: Option<End>, cx: &mut Context) {
        if let Some((end, s)) = agreed.zip(self.synchronized_mut()) {
            s.holder = Holder::agreed(end);
            s.naming = NAMING_BEGINS;
            cx.counters.negotiation_agreed += 1;
        }
    }

    /// The peer's SYN does not tell the new connection from the one in TIME-WAIT whose place it was
    /// to take. Without ACK it may be an old one. With ACK it answers ours: the ends are in use for
    /// as long as TIME-WAIT goes on.
    fn on_unsafe_reuse(&mut self, cx: &mut Context, acks: bool, s: &Segment<'_>) {
        cx.counters.paws_rejected += 1;
        if acks {
            cx.counters.failed_opens += 1;
            self.owe_reset(Reset { seq: s.ack, ack: None, stamps: None }, cx);
            self.end(State::Closed, Some(Error::AddressInUse), cx);
        }
    }

    /// SYN, ACK: the connection is established, and the ACK leaves at once.
    #[inline(always)]
    fn complete_open(
        &mut self,
        cx: &mut Context,
        received: SynReceived,
        sent_at: Instant,
        s: &Segment<'_>,
    ) {
        let told = WindowUpdate { window: s.window.into(), seq: s.seq, ack: s.ack };
        let synchronized = received.synchronize(cx, &self.options, told);
        self.establish(synchronized, cx);
        if let Some(Step { cx, s, .. }) = self.step(cx) {
            s.recv.ack.now = true;
            if let Some(ledger) = s.send.ledger_mut() {
                ledger.on_opened(received.attempts);
            }
            if received.attempts == 1 {
                s.send.rtt.on_sample(sent_at, cx.now, 1);
                s.send.begin_pacing();
            }
        }
    }

    /// SYN without ACK: both ends have sent one (RFC 9293 §3.5, Figure 8). What else it carries is
    /// queued.
    fn open_simultaneously(&mut self, cx: &mut Context, received: SynReceived, s: &Segment<'_>) {
        let early = Early::of(s, received.offer, cx);
        self.shape = Shape::SynReceived(SynReceived { attempts: 0, ..received }, early);
        self.state.transition(State::SynReceived);
        self.deadlines.cancel(Timer::Retransmit);
        self.syn_due = true;
        debug_assert!(self.deadlines.is_set(Timer::Lifetime), "{:?}", cx.now);
    }
}
