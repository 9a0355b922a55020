//! What the host derives from its secret and its addresses: ISNs, cookies, ports, sources, MSS.

use core::net::{IpAddr, SocketAddr};

use super::Host;
use super::half_open::Begun;
use super::isn::Beginning;
use super::output::Reply;
use super::port::{Candidate, Search};
use super::syn_cookie::CookieFacts;
use super::tcp_input::{Incoming, bare_header};
use crate::config::Config;
use crate::event::ListenerId;
use crate::tcp::connection::{SynReceived, stamp_at};
use crate::tcp::time_wait::{Predecessor, Record};
use crate::tcp::{Marks, Seq, SocketOptions, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::options::mss_for_mtu;
use crate::wire::tcp::Flags;

/// A cookie is believed only this long after one was sent (two steps of its clock).
const COOKIES_VALID: Duration = Duration::from_secs(128);

/// Source addresses tried before an active open gives up for want of a free port.
const SOURCES_TRIED: u32 = 16;

/// A tuple that an active open may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) tuple: Tuple,
    pub(super) hash: u64,
    /// Of whom there is a record whose time is not over: TIME-WAIT is to be cut short.
    pub(super) predecessor: Option<Predecessor>,
    /// There is a record whose time is over, which ends.
    pub(super) is_over: bool,
}

/// What a [`Claim`] says of its tuple.
#[derive(Clone, Copy, Debug)]
struct Finding {
    hash: u64,
    predecessor: Option<Predecessor>,
    is_over: bool,
}

impl Finding {
    #[inline(always)]
    fn claim(self, tuple: Tuple) -> Claim {
        let Finding { hash, predecessor, is_over } = self;
        Claim { tuple, hash, predecessor, is_over }
    }
}

/// What our SYNs announce under some options: known before any is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    mss_ipv4: u16,
    mss_ipv6: u16,
    /// Bytes that a connection would start with; the budget may allow less.
    pub(super) window: u32,
}

impl Terms {
    /// The MSS (RFC 9293 §3.7.1, RFC 6691) by the device's MTU, or less by choice; the window by
    /// configuration, or by choice.
    pub(super) fn announced(config: &Config, options: &SocketOptions) -> Terms {
        let tcp = &config.tcp;
        // Zero is no limit.
        let limit = |mss: u16| if mss > 0 { mss } else { u16::MAX };
        let most = limit(tcp.mss_max).min(limit(options.mss_max));
        let mss = |ipv6| mss_for_mtu(config.device.mtu, ipv6).min(most);
        let usual = tcp.initial_receive_window_bytes.min(tcp.max_receive_window_bytes);
        let window = options.receive_buffer_bytes.unwrap_or(usual).max(1 << tcp.shift());
        Terms { mss_ipv4: mss(false), mss_ipv6: mss(true), window }
    }

    /// The MSS.
    #[inline]
    pub(super) fn mss(&self, ipv6: bool) -> u16 {
        if ipv6 { self.mss_ipv6 } else { self.mss_ipv4 }
    }
}

impl Host {
    #[inline(always)]
    pub(super) fn begin(&self, now: Instant, tuple: &Tuple) -> Beginning {
        self.isns.begin(now, tuple)
    }

    pub(super) fn stamp_offset(&self, tuple: &Tuple) -> u32 {
        self.isns.timestamp_offset(tuple)
    }

    pub(super) fn may_answer_stranger(&mut self, now: Instant) -> bool {
        self.strangers.take(now)
    }

    // ---- active opens

    /// `tuple`, if an active open may take it: no connection has it, and its TIME-WAIT, if any, is
    /// over or may be cut short, which takes timestamps (RFC 6191 §3).
    pub(super) fn claim(&self, now: Instant, tuple: &Tuple) -> Option<Claim> {
        let hash = self.hasher.hash(tuple);
        let record = self.time_wait_record(hash, tuple);
        Some(self.find_beside(now, hash, tuple, record)?.claim(*tuple))
    }

    /// The same, beside what TIME-WAIT has of the tuple.
    #[inline(always)]
    fn find_beside(
        &self,
        now: Instant,
        hash: u64,
        tuple: &Tuple,
        record: Option<Record>,
    ) -> Option<Finding> {
        let is_taken =
            self.find(hash, tuple).is_some() || self.fin_wait_2.find(now, hash, tuple).is_some();
        if is_taken {
            return None;
        }
        let free = Finding { hash, predecessor: None, is_over: false };
        let Some(record) = record else { return Some(free) };
        if record.is_over(now) {
            return Some(Finding { is_over: true, ..free });
        }
        let may_open = self.shared.config.timestamps && record.may_open(now);
        may_open.then(|| Finding { predecessor: Some(record.predecessor()), ..free })
    }

    /// `tuple` with an ephemeral port: one that is not in TIME-WAIT, if there is any, else one
    /// whose TIME-WAIT may be cut short.
    #[inline(always)]
    pub(super) fn pick_port(&mut self, now: Instant, tuple: &Tuple) -> Option<Claim> {
        self.port_for(now, *tuple, false).or_else(|| self.port_for(now, *tuple, true))
    }

    #[inline(always)]
    fn port_for(&mut self, now: Instant, mut tuple: Tuple, cut_short: bool) -> Option<Claim> {
        let finding = self.find_port(now, &mut tuple, cut_short)?;
        Some(finding.claim(tuple))
    }

    /// Looks for a port of ours, which `tuple` has then.
    #[inline(never)]
    fn find_port(&mut self, now: Instant, tuple: &mut Tuple, cut_short: bool) -> Option<Finding> {
        let mut search = self.ports.search(tuple);
        // Nearly always the first will do.
        let finding = match self.try_port(now, tuple, &mut search, cut_short)? {
            Some(finding) => finding,
            None => self.try_ports(now, tuple, search, cut_short)?,
        };
        self.read_likely_ahead();
        Some(finding)
    }

    /// Tries one port after the other.
    #[inline(never)]
    fn try_ports(
        &mut self,
        now: Instant,
        tuple: &mut Tuple,
        mut search: Search,
        cut_short: bool,
    ) -> Option<Finding> {
        loop {
            let finding = self.try_port(now, tuple, &mut search, cut_short)?;
            if finding.is_some() {
                return finding;
            }
        }
    }

    /// Tries the next port of `search`; `None` if it was the last.
    #[inline(always)]
    fn try_port(
        &mut self,
        now: Instant,
        tuple: &mut Tuple,
        search: &mut Search,
        cut_short: bool,
    ) -> Option<Option<Finding>> {
        let Candidate { port, hash } = self.ports.next(search)?;
        *tuple = tuple.with_local_port(port);
        let hash = hash.unwrap_or_else(|| self.hasher.hash(tuple));
        let record = self.time_wait_record(hash, tuple);
        if !cut_short && record.is_some_and(|record| !record.is_over(now)) {
            self.shared.counters.ports_in_time_wait += 1;
            return Some(None);
        }
        let is_listened = self.listeners.has_port(port);
        Some(if is_listened { None } else { self.find_beside(now, hash, tuple, record) })
    }

    /// A tuple to `remote` from any of our addresses: of the range, if there is one, in random
    /// order, so that all of its ports are used before any comes again.
    pub(super) fn pick_claim(&mut self, now: Instant, remote: SocketAddr) -> Option<Claim> {
        let tries = if self.config.ranges.is_empty() { 1 } else { SOURCES_TRIED };
        for attempt in 0..2 * tries {
            let local = self.source_for(remote.ip())?;
            let tuple = Tuple::new((local, 0), (remote.ip(), remote.port()));
            let claim = self.port_for(now, tuple, attempt >= tries);
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    /// An address of ours to reach `remote` from.
    pub(super) fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        let of_version =
            |cidr: &&super::address::Cidr| cidr.address().is_ipv4() == remote.is_ipv4();
        if let Some(range) = self.config.ranges.iter().find(of_version) {
            // The first and last of an IPv4 range may be taken for broadcasts.
            let size = range.size();
            let inner = if size > 2 { size - 2 } else { size };
            let offset = u128::from(self.rng.next_u64()) % inner;
            return Some(range.nth(offset + u128::from(size > 2)));
        }
        self.routes.source_for(remote)
    }

    // ---- SYN cookies

    /// Answers a SYN without remembering it (RFC 4987 §3.6).
    #[cold]
    pub(super) fn send_cookie(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        received: SynReceived,
        (window, marks): (u32, Marks),
    ) {
        let facts = CookieFacts {
            mss: received.peer_mss,
            window_scale: received.peer_scale,
            sack: received.sack,
            timestamps: received.stamp.is_some(),
        };
        let tuple = incoming.tuple;
        let iss = self.cookies.encode(now, tuple, incoming.segment.seq, facts);
        let carried = facts.carried();
        let syn = SynReceived {
            iss,
            peer_scale: carried.window_scale,
            sack: carried.sack,
            ecn: false,
            stamp: received.stamp.filter(|_| carried.timestamps),
            offer: window.min(65_535) as u16,
            ..received
        };
        let clock = stamp_at(now, syn.stamp_offset);
        self.cookie_sent = now;
        self.shared.counters.cookies_sent += 1;
        let header = syn.header_stamped(tuple.ports(), facts.stamp(clock), &self.shared.config);
        self.reply(Reply::syn(tuple, header, marks));
    }

    /// An ACK that belongs to nothing may bring a cookie back.
    pub(super) fn accept_cookie(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        listener: ListenerId,
    ) -> bool {
        if self.cookie_sent == Instant::ZERO || now.since(self.cookie_sent) > COOKIES_VALID {
            return false;
        }
        let (segment, tuple) = (incoming.segment, incoming.tuple);
        let echo = segment.options.timestamps.map(|stamps| stamps.echo);
        let (irs, iss) = (segment.seq - 1, segment.ack - 1);
        let facts = self.cookies.check(now, tuple, irs, iss, echo);
        let Some(facts) = facts else {
            self.shared.counters.cookies_rejected += 1;
            return false;
        };
        let terms = self.listener_terms(listener);
        let syn = SynReceived {
            iss,
            irs,
            peer_mss: facts.mss.max(self.shared.config.mss_min),
            mss: terms.mss(tuple.is_ipv6()),
            // The same as beside the cookie, whatever the budget does.
            offer: terms.window.min(65_535) as u16,
            peer_scale: facts.window_scale,
            sack: facts.sack,
            ecn: false,
            stamp: segment.options.timestamps.filter(|_| facts.timestamps).map(|s| s.value),
            stamp_offset: self.stamp_offset(tuple),
            attempts: 1,
        };
        self.shared.counters.cookies_accepted += 1;
        // Where the accept queue is full the ACK is as if lost, and no RST must answer it.
        let begun = Begun { entry: None, answered: now, in_time_wait: true };
        self.establish_passive(now, &incoming.completing(), &syn, listener, begun);
        true
    }

    /// RFC 9293 §3.10.7.4 in SYN-RECEIVED: what is unacceptable is answered with an ACK.
    pub(super) fn acknowledge_half_open(&mut self, now: Instant, tuple: &Tuple, syn: &SynReceived) {
        let bare = bare_header(tuple, Seq(0), Seq(0), Flags::ACK);
        let header = syn.answer(bare, now, &self.shared.config);
        self.reply(Reply::segment(tuple, header));
    }

    #[inline(always)]
    pub(super) fn reply_syn_ack(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        syn: &SynReceived,
        marks: Marks,
    ) {
        let header = syn.header(tuple.ports(), now, &self.shared.config);
        self.owe(Reply::syn(tuple, header, marks));
    }

    /// Again, as the listener wants it now.
    #[cold]
    pub(super) fn repeat_syn_ack(&mut self, now: Instant, tuple: &Tuple, syn: &SynReceived) {
        let listener = self.listeners.find(tuple);
        let marks = listener.map(|(_, listener)| listener.options.marks());
        self.reply_syn_ack(now, tuple, syn, marks.unwrap_or_default());
    }

    /// What our SYNs to `listener` announce.
    fn listener_terms(&self, listener: ListenerId) -> Terms {
        self.listeners.get(listener).map_or(self.default_terms, |listener| listener.terms)
    }
}
