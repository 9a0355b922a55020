//! Listening for every address and port, and the verdict of a listener's user on each SYN before it
//! is answered.

use alloc::sync::Arc;
use core::net::SocketAddr;

use super::Host;
use super::lookup::UnmatchedSegment;
use super::reply::Reply;
use crate::error::Error;
use crate::event::{ConnectionId, Event, ListenerId, SynId};
use crate::flow::Seq;
use crate::ip::icmp::Unreachable;
use crate::tcp::SocketOptions;
use crate::tcp::connection::{Identity, SynReceived};
use crate::tcp::held::{Held, Keeping};
use crate::tcp::slot::{Seat, SlotFlags};
use crate::tcp::terms::Terms;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

/// A SYN that waits for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSyn {
    /// Its name.
    pub id: SynId,
    /// The address and port that it was sent to.
    pub local: SocketAddr,
    /// Its sender.
    pub remote: SocketAddr,
}

/// How a SYN is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// By RST: its sender hears that nobody listens.
    Reset,
    /// By ICMP: there is no way to the network (RFC 792; over IPv6 RFC 4443 §3.1, "no route").
    NetworkUnreachable,
    /// By ICMP: the host does not answer (over IPv6 "address unreachable").
    HostUnreachable,
    /// By ICMP: it may not be reached (RFC 1812 §5.2.7.1, RFC 4443 §3.1).
    Prohibited,
    /// By nothing. Its sender sends it again, and it is a new one.
    Ignored,
}

impl Host {
    /// Listens on every address that is ours or that we take
    /// ([`Config::destinations`](crate::Config::destinations)), and on every port, for what no
    /// other listener hears. [`Host::local_address`] of a connection is where its peer meant to go.
    /// Else as [`Host::listen_with`].
    ///
    /// # Errors
    ///
    /// [`Error::AddressInUse`] if there is such a listener.
    pub fn listen_any(
        &mut self,
        backlog: usize,
        options: SocketOptions,
    ) -> Result<ListenerId, Error> {
        self.add_any(false, backlog, options)
    }

    /// Listens as [`Host::listen_any`] does, but answers no SYN before it is judged:
    /// [`Host::next_syn`] returns each, [`Host::admit_syn`] and [`Host::refuse_syn`] end its wait.
    /// Nothing comes to [`Host::accept`]. At most [`held_syns`](crate::config::Limits::held_syns)
    /// wait, and no cookie stands for one.
    ///
    /// # Errors
    ///
    /// As that.
    pub fn listen_any_asking(&mut self, options: SocketOptions) -> Result<ListenerId, Error> {
        self.add_any(true, 1, options)
    }

    fn add_any(
        &mut self,
        asks: bool,
        backlog: usize,
        options: SocketOptions,
    ) -> Result<ListenerId, Error> {
        let terms = Terms::announced(&self.config, &options);
        let listener = self.opening.listeners.insert_any(asks, backlog, Arc::new(options), terms);
        listener.ok_or(Error::AddressInUse)
    }

    /// The oldest SYN that waits for a verdict and was not returned before.
    /// [`Event::Acceptable`] tells that there is one.
    pub fn next_syn(&mut self) -> Option<HeldSyn> {
        let (id, tuple) = self.opening.held.tell()?;
        Some(HeldSyn { id, local: tuple.local(), remote: tuple.remote() })
    }

    /// True if the SYN still waits: its sender has not reset it, and its time is not over.
    pub fn is_held(&self, id: SynId) -> bool {
        self.opening.held.is_held(id)
    }

    /// Answers a SYN. The connection becomes writable once the peer's ACK has come; a failure shows
    /// as [`Readiness::CLOSED`](crate::Readiness::CLOSED), and in [`Host::take_error`].
    ///
    /// # Errors
    ///
    /// [`Error::ConnectionAborted`] if the SYN waits no more, [`Error::Limit`] if there are as many
    /// connections as may be. Its wait is over in both cases.
    pub fn admit_syn(&mut self, now: Instant, id: SynId) -> Result<ConnectionId, Error> {
        let held = self.opening.held.take(id).ok_or(Error::ConnectionAborted)?;
        let Held { tuple, hash, syn, listener, is_ours } = held;
        let listener = self.opening.listeners.get(listener).ok_or(Error::ConnectionAborted)?;
        let options = Arc::clone(&listener.options);
        if self.find_unexpected(hash, &tuple).is_some() {
            // The user has opened one between these ends from here.
            return Err(Error::ConnectionAborted);
        }
        if self.connections() >= self.limits().connections {
            self.shared.counters.connections_over_limit += 1;
            return Err(Error::Limit("connections"));
        }
        let in_time_wait = self.time_wait_record(hash, &tuple).is_some();
        let mut block = self.take_block();
        let identity = Identity { hash, ports: tuple.ports() };
        block.admit(identity, &options, syn, now);
        let flags = SlotFlags::OURSELVES.only_if(is_ours).with(SlotFlags::REUSE, in_time_wait);
        let counters = &mut self.shared.counters;
        counters.passive_opens += 1;
        counters.syns_admitted += 1;
        counters.time_wait_reopened += u64::from(in_time_wait);
        Ok(self.add_connection(block, Seat { tuple: &tuple, flags, accepting: None }))
    }

    /// Refuses a SYN, if it still waits. Each is answered once, so that the limit on answers to
    /// strangers does not apply: the user, who was told of the SYN, decides.
    pub fn refuse_syn(&mut self, now: Instant, id: SynId, refusal: Refusal) {
        let Some(Held { tuple, syn, .. }) = self.opening.held.take(id) else { return };
        self.shared.counters.syns_refused += 1;
        let unreachable = match refusal {
            Refusal::Ignored => return,
            Refusal::Reset => {
                let flags = Flags::RST | Flags::ACK;
                let header = Header::new(tuple.ports(), Seq(0), syn.irs + 1, flags);
                return self.reply(Reply::segment(&tuple, header));
            }
            Refusal::NetworkUnreachable => Unreachable::Network,
            Refusal::HostUnreachable => Unreachable::Host,
            Refusal::Prohibited => Unreachable::Prohibited,
        };
        self.ip.on_refused(&tuple, syn.irs, unreachable);
        self.after_ip(now);
    }

    /// Holds a SYN until its listener's user judges it.
    pub(super) fn hold_syn(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        listener: ListenerId,
        syn: SynReceived,
    ) {
        let &UnmatchedSegment { tuple, hash, is_ours, .. } = unmatched;
        let syn = SynReceived { attempts: 0, ..syn };
        let held = Held { tuple: *tuple, hash, syn, listener, is_ours };
        let keeping = self.opening.held.insert(held, now);
        let counters = &mut self.shared.counters;
        counters.syns_held_over_limit += u64::from(keeping != Keeping::Kept);
        if keeping != Keeping::Dropped {
            counters.syns_held += 1;
            self.events.push_back(Event::Acceptable(listener));
        }
    }

    /// An RST has come for no connection: perhaps for a SYN that is held.
    pub(super) fn on_held_reset(&mut self, unmatched: &UnmatchedSegment<'_>) {
        let &UnmatchedSegment { tuple, hash, head, .. } = unmatched;
        if self.opening.held.on_reset(hash, tuple, head.seq) {
            self.shared.counters.resets_received += 1;
            self.shared.counters.syns_held_ended += 1;
        }
    }
}
