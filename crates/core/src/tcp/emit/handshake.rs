//! What a connection sends that is not synchronized: SYN, SYN, ACK, and the answer to an
//! unacceptable segment. It also sends the RST of any connection.

use super::Flushed;
use crate::flow::Seq;
use crate::tcp::Settings;
use crate::tcp::connection::{Common, Connection, Context, Shape};
use crate::tcp::egress::Egress;
use crate::tcp::time_wait::negotiate::{Code, End};
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::fast::Syn;
use crate::wire::tcp::{Flags, Header};

impl Common {
    /// Sends the RST that is due, if one is. False if there was no room.
    pub(super) fn send_reset(&mut self, egress: &mut Egress<'_>) -> bool {
        let Some(reset) = self.reset_due.as_deref() else { return true };
        let flags = if reset.ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST };
        let mut header =
            Header::new(self.identity.ports, reset.seq, reset.ack.unwrap_or_default(), flags);
        header.options.timestamps = reset.stamps;
        let sent = egress.send(&header, None);
        if sent {
            self.reset_due = None;
        }
        sent
    }
}

impl Connection {
    pub(super) fn emit_unsynchronized(&mut self, cx: &Context, egress: &mut Egress<'_>) -> Flushed {
        let is_sent =
            self.send_reset(egress) && self.send_syn(cx, egress) && self.send_answer(cx, egress);
        if is_sent { Flushed::Done } else { Flushed::More }
    }

    /// SYN in SYN-SENT; SYN, ACK in SYN-RECEIVED. Each sending arms the next (RFC 6298 §5).
    fn send_syn(&mut self, cx: &Context, egress: &mut Egress<'_>) -> bool {
        let Some(syn) = self.syn_header(cx.now, &cx.config) else { return true };
        let mut header = syn.header();
        if let Some(end) = self.names() {
            let address = egress.path.base.address(end == End::Ourselves);
            header.options.experimental = Code::of(&cx.config).option(address);
        }
        let sent = egress.send(&header, None);
        if sent {
            self.on_syn_built(cx.now, &cx.config);
        }
        sent
    }

    /// The header of the SYN that is due.
    pub(super) fn syn_header(&self, now: Instant, config: &Settings) -> Option<Syn> {
        match &self.shape {
            _ if !self.syn_due => None,
            Shape::SynSent(syn) => Some(syn.header(self.identity.ports, now, config)),
            Shape::SynReceived(syn, _) => Some(syn.header(self.identity.ports, now, config)),
            Shape::Synchronized(_) | Shape::Ended(_) => None,
        }
    }

    /// The end that the SYN, or SYN, ACK, that is due names as the holder of TIME-WAIT.
    fn names(&self) -> Option<End> {
        match &self.shape {
            Shape::SynSent(syn) => syn.names(self.options.requires_agreement()),
            Shape::SynReceived(syn, _) => syn.names,
            Shape::Synchronized(_) | Shape::Ended(_) => None,
        }
    }

    /// A SYN has left.
    pub(super) fn on_syn_built(&mut self, now: Instant, config: &Settings) {
        let Connection { common, shape } = self;
        common.syn_due = false;
        let attempts = match shape {
            Shape::SynSent(syn) => {
                if syn.attempts == 0 {
                    syn.sent_at = now;
                }
                &mut syn.attempts
            }
            Shape::SynReceived(syn, _) => &mut syn.attempts,
            _ => return,
        };
        *attempts = (*attempts).max(1);
        // One that only answers a challenge leaves the timer as it is.
        if !common.deadlines.is_set(Timer::Retransmit) {
            let at = now.plus_nanos(config.rto_bounds.syn_rto_ns(*attempts));
            common.deadlines.set(Timer::Retransmit, at);
        }
    }

    /// In SYN-RECEIVED: the ACK that answers what was unacceptable.
    fn send_answer(&mut self, cx: &Context, egress: &mut Egress<'_>) -> bool {
        let Connection { common, shape } = self;
        let Shape::SynReceived(syn, _) = shape else { return true };
        if common.answer_due {
            let header = Header::new(common.identity.ports, Seq(0), Seq(0), Flags::ACK);
            common.answer_due = !egress.send(&syn.answer(header, cx.now, &cx.config), None);
        }
        !common.answer_due
    }
}
