//! The handshake's shapes (RFC 9293 §3.10.7.3, §3.10.7.4): what is known of a peer whose SYN has
//! come, and the connection that its ACK makes of it.

use super::{Context, Passage, Synchronized};
use crate::config::{Ecn, TcpConfig};
use crate::flow::Seq;
use crate::flow::stamp::{Stamps, stamp_at, stamp_distance};
use crate::tcp::congestion::Congestion;
use crate::tcp::ecn::EcnState;
use crate::tcp::recv::RecvHalf;
use crate::tcp::recv::ack::AckState;
use crate::tcp::recv::buffer::RecvBuffer;
use crate::tcp::recv::window::{RecvWindow, Sizes};
use crate::tcp::send::SendHalf;
use crate::tcp::send::rare::Rare;
use crate::tcp::send::recovery::Detection;
use crate::tcp::send::rtt::Rtt;
use crate::tcp::time_wait::Predecessor;
use crate::tcp::time_wait::negotiate::{ASKING_SYNS, End, Holder};
use crate::tcp::{Settings, SocketOptions};
use crate::time::Instant;
use crate::wire::fast::Syn;
use crate::wire::options::{Options, Timestamps};
use crate::wire::tcp::{Flags, Header, PlainSegment, Segment};

/// Our SYN is out (RFC 9293 §3.10.7.3).
#[derive(Clone, Copy, Debug)]
pub struct SynSent {
    /// ISS.
    pub iss: Seq,
    /// Added to our timestamps.
    pub stamp_offset: u32,
    /// When the first SYN left.
    pub sent_at: Instant,
    /// SYNs sent so far, those that answered a challenge apart.
    pub attempts: u8,
    /// The MSS that we announce.
    pub mss: u16,
    /// The window that we announce, never scaled.
    pub offer: u16,
    /// The path is IPv6.
    pub ipv6: bool,
    /// The first SYN asks for ECN.
    pub asks_ecn: bool,
    /// The connection whose TIME-WAIT it cuts short.
    pub(crate) predecessor: Option<Predecessor>,
    /// The end that we ask to hold TIME-WAIT, if we ask.
    pub asks: Option<End>,
}

/// A SYN has come and our SYN, ACK is out: what is known of the peer. A SYN-cache entry holds
/// one, and so does a simultaneous open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynReceived {
    /// ISS.
    pub iss: Seq,
    /// IRS.
    pub irs: Seq,
    /// The largest payload we may send, as the peer announced it.
    pub peer_mss: u16,
    /// The MSS that we announce.
    pub mss: u16,
    /// The window that we announce, never scaled.
    pub offer: u16,
    /// The peer's shift count, if both ends scale.
    pub peer_scale: Option<u8>,
    /// Both ends use SACK.
    pub sack: bool,
    /// Both ends use ECN.
    pub ecn: bool,
    /// TS.Recent, if both ends use timestamps.
    pub stamp: Option<u32>,
    /// Added to our timestamps.
    pub stamp_offset: u32,
    /// SYN, ACKs sent so far, those that answered a challenge apart.
    pub attempts: u8,
    /// The end that our SYN, ACK names as the holder of TIME-WAIT.
    pub names: Option<End>,
}

/// The peer's window, as a segment has announced it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowUpdate {
    /// In bytes.
    pub(crate) window: u32,
    /// SEG.SEQ.
    pub(crate) seq: Seq,
    /// SEG.ACK.
    pub(crate) ack: Seq,
}

/// What our SYN says, to be held against the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OurSyn {
    /// ISS.
    pub iss: Seq,
    /// Added to our timestamps.
    pub stamp_offset: u32,
    /// The MSS that we announce.
    pub mss: u16,
    /// The window that we announce, never scaled.
    pub offer: u16,
    /// How often it was sent.
    pub attempts: u8,
    /// The path is IPv6.
    pub ipv6: bool,
    /// The first one asked for ECN.
    pub asks_ecn: bool,
}

impl OurSyn {
    /// The abilities of both ends, from their SYNs (RFC 7323 §1.3, RFC 2018 §2, RFC 3168 §6.1.1).
    #[inline(always)]
    pub(crate) fn negotiate(self, syn: &Segment<'_>, config: &TcpConfig) -> SynReceived {
        let (options, OurSyn { iss, stamp_offset, mss, offer, attempts, ipv6, .. }) =
            (&syn.options, self);
        SynReceived {
            iss,
            irs: syn.seq,
            peer_mss: peer_mss(options, ipv6, config.mss_min),
            mss,
            offer,
            peer_scale: options.window_scale.filter(|_| config.window_scaling).map(|s| s.min(14)),
            sack: config.sack && options.sack_permitted,
            ecn: self.agrees_on_ecn(syn.flags, config),
            stamp: options.timestamps.filter(|_| config.timestamps).map(|stamps| stamps.value),
            stamp_offset,
            attempts,
            names: None,
        }
    }

    /// RFC 3168 §6.1.1: a SYN asks with ECE and CWR, a SYN, ACK agrees with ECE alone.
    fn agrees_on_ecn(self, flags: Flags, config: &TcpConfig) -> bool {
        if flags.contains(Flags::ACK) {
            let agreed = flags.contains(Flags::ECE) && !flags.contains(Flags::CWR);
            return self.asks_ecn && self.attempts == 1 && agreed;
        }
        config.ecn != Ecn::Off && flags.contains(Flags::ECE | Flags::CWR)
    }
}

/// RFC 9293 §3.7.1: without an MSS option, 536 bytes over IPv4 and 1220 over IPv6.
pub(crate) fn peer_mss(options: &Options, ipv6: bool, floor: u16) -> u16 {
    options.mss.unwrap_or(if ipv6 { 1220 } else { 536 }).max(floor)
}

/// The verdict of PAWS on a segment in SYN-RECEIVED (RFC 7323 §5.3 R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paws {
    /// Its timestamp is older than that of the peer's SYN.
    Old,
    /// It is not, or one of both has none.
    Passed,
    /// It is asked later: what completes a simultaneous open goes through the steps of the
    /// established connection, which begin with PAWS.
    Later,
}

/// The meaning of a segment in SYN-RECEIVED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing.
    Nothing,
    /// It is unacceptable, and to be answered with an ACK, within the limit.
    Unacceptable,
    /// The peer resets the connection.
    Reset,
    /// It acknowledges what was never sent, and is to be answered with an RST.
    Alien,
    /// It acknowledges our SYN: the connection is established.
    Completes,
}

impl SynSent {
    /// The end that the next SYN names. Where `required` all do; else the first ones, since some
    /// networks drop what they do not know.
    pub fn names(&self, required: bool) -> Option<End> {
        self.asks.filter(|_| required || self.attempts <= ASKING_SYNS)
    }

    /// Our SYN that leaves at `now`. `ports`: both, ours in the high half.
    pub(crate) fn header(&self, ports: u32, now: Instant, config: &Settings) -> Syn {
        // Asked for once: what drops a SYN that asks shall pass the next.
        let asks = self.asks_ecn && self.attempts <= 1;
        let ecn = if asks { Flags::ECE | Flags::CWR } else { Flags::default() };
        let stamps = || Timestamps { value: stamp_at(now, self.stamp_offset), echo: 0 };
        Syn {
            ports,
            seq: self.iss,
            ack: Seq(0),
            flags: Flags::SYN | ecn,
            window: self.offer,
            mss: self.mss,
            scale: config.window_scaling.then_some(config.shift),
            sack: config.sack,
            stamps: config.timestamps.then(stamps),
            layout: config.quirks.syn_layout,
        }
    }
}

impl SynReceived {
    /// True if our SYN, ACK names us as the holder of TIME-WAIT.
    pub(crate) fn names_ourselves(&self) -> bool {
        self.names == Some(End::Ourselves)
    }

    /// Our SYN, ACK that leaves at `now`. `ports`: both, ours in the high half.
    pub(crate) fn header(&self, ports: u32, now: Instant, config: &Settings) -> Syn {
        self.header_stamped(ports, stamp_at(now, self.stamp_offset), config)
    }

    /// Our SYN, ACK with `value` for our timestamp, if it carries one.
    pub(crate) fn header_stamped(&self, ports: u32, value: u32, config: &Settings) -> Syn {
        // RFC 3168 §6.1.1: with ECE if ECN is agreed on.
        let ecn = if self.ecn { Flags::ECE } else { Flags::default() };
        Syn {
            ports,
            seq: self.iss,
            ack: self.irs + 1,
            flags: Flags::SYN | Flags::ACK | ecn,
            window: self.offer,
            mss: self.mss,
            scale: self.peer_scale.map(|_| config.shift),
            sack: self.sack,
            stamps: self.stamp.map(|echo| Timestamps { value, echo }),
            layout: config.quirks.syn_layout,
        }
    }

    /// What `segment` means: RFC 9293 §3.10.7.4 for SYN-RECEIVED, up to the fifth step.
    pub(crate) fn judge(
        &self,
        segment: &PlainSegment<'_>,
        paws: Paws,
        config: &TcpConfig,
    ) -> Meaning {
        let (flags, rcv_nxt) = (segment.flags, self.irs + 1);
        let is_reset = flags.contains(Flags::RST);
        // First: sequence number, and PAWS, by which an RST is not judged (RFC 7323 §5.2).
        if paws == Paws::Old && !is_reset || !segment.seq.within(rcv_nxt, self.offer.into()) {
            return if is_reset { Meaning::Nothing } else { Meaning::Unacceptable };
        }
        // Second: RST; RFC 5961 §3.2 wants it exactly at RCV.NXT.
        if is_reset {
            let is_exact = segment.seq == rcv_nxt || config.quirks.insecure_rst;
            return if is_exact { Meaning::Reset } else { Meaning::Unacceptable };
        }
        // Fourth: SYN. Fifth: ACK.
        if flags.contains(Flags::SYN) {
            Meaning::Unacceptable
        } else if !flags.contains(Flags::ACK) {
            Meaning::Nothing
        } else if self.is_acknowledged_by(segment) {
            Meaning::Completes
        } else {
            Meaning::Alien
        }
    }

    /// True if `segment` acknowledges exactly our SYN.
    pub(crate) fn is_acknowledged_by(&self, segment: &PlainSegment<'_>) -> bool {
        segment.ack == self.iss + 1
    }

    /// What the timestamps of a segment say of it, beside those of the SYN.
    pub(crate) fn paws(&self, stamps: Option<Timestamps>) -> Paws {
        match (self.stamp, stamps) {
            (Some(old), Some(new)) if stamp_distance(new.value, old) < 0 => Paws::Old,
            _ => Paws::Passed,
        }
    }

    /// The largest payload that we send, by the peer's MSS and our user's.
    pub(crate) fn send_mss(&self, options: &SocketOptions) -> u16 {
        let chosen = if options.mss_max > 0 { options.mss_max } else { u16::MAX };
        self.peer_mss.min(chosen)
    }

    /// Our shift count; 0 if not both ends scale.
    fn shift(&self, config: &Settings) -> u8 {
        self.peer_scale.map_or(0, |_| config.shift)
    }

    /// The ACK that answers what is unacceptable, from a `header` with the ports and ACK (RFC 9293
    /// §3.10.7.4). It has no SYN, so that its window is scaled, and what is less than a unit is not
    /// announced (RFC 7323 §2.3). Rounded up it would promise more than the SYN, ACK, which comes
    /// again and would take that back. What was offered is accepted all the same.
    pub fn answer(&self, header: Header, now: Instant, config: &Settings) -> Header {
        let value = stamp_at(now, self.stamp_offset);
        Header {
            seq: self.iss + 1,
            ack: self.irs + 1,
            window: self.offer >> self.shift(config),
            options: Options {
                timestamps: self.stamp.map(|echo| Timestamps { value, echo }),
                ..Options::default()
            },
            ..header
        }
    }

    /// The synchronized connection that the peer's ACK makes of it, which tells its window.
    #[inline(always)]
    pub(crate) fn synchronize(
        &self,
        cx: &mut Context,
        options: &SocketOptions,
        told: WindowUpdate,
    ) -> Synchronized {
        let stamps = self.stamp.map(|recent| Stamps::new(self.stamp_offset, recent, cx.now));
        Synchronized {
            send: self.send_half(cx, options, told),
            recv: self.recv_half(cx, options),
            passed: Passage::default(),
            stamps,
            ecn: self.ecn.then(|| EcnState::new(self.iss + 1)),
            holder: Holder::having_named(self.names),
            naming: 0,
            keepalive_probes: 0,
            last_heard: cx.now,
            probe_due: false,
            keepalive_due: false,
            push_due: false,
        }
    }

    #[inline(always)]
    fn send_half(
        &self,
        cx: &Context,
        options: &SocketOptions,
        WindowUpdate { window, seq: wl1, ack: wl2 }: WindowUpdate,
    ) -> SendHalf {
        let mss = self.send_mss(options);
        let next = self.iss + 1;
        let mut congestion = Congestion::new(options.congestion, &cx.config, mss.into(), next);
        let mut rtt = Rtt::new(&cx.config.rto_bounds);
        if self.attempts > 1 {
            congestion.on_handshake_loss(mss.into());
            rtt.on_syn_retransmitted();
        }
        let mut send = SendHalf {
            window,
            max_window: window,
            wl1,
            wl2,
            scale: self.peer_scale.unwrap_or(0),
            detection: Detection::of(self.sack, &cx.config),
            last_sent: cx.now,
            rare: options.accounting.then(|| Rare::with_account(cx.now)),
            ..SendHalf::new(next, mss, congestion, rtt)
        };
        send.set_pacing(cx.now, options);
        send
    }

    fn recv_half(&self, cx: &mut Context, options: &SocketOptions) -> RecvHalf {
        let next = self.irs + 1;
        let config = &cx.config;
        let scaled = self.peer_scale.is_some();
        let largest = options.receive_buffer_bytes.unwrap_or(config.buffers.receive_max);
        let whole = scaled || config.quirks.unannounced_window;
        let size_max = if whole { largest } else { largest.min(65_535) };
        let first = options.receive_buffer_bytes.unwrap_or(config.buffers.receive);
        let segment = u32::from(self.mss.min(self.peer_mss)).max(1);
        let rounded = |size: u32| {
            if config.quirks.window_in_segments { size.next_multiple_of(segment) } else { size }
        };
        let sizes = Sizes { first: rounded(first.min(size_max)), largest: rounded(size_max) };
        RecvHalf {
            nxt: next,
            buffer: RecvBuffer::default(),
            disorder: None,
            window: RecvWindow::new(
                next,
                self.offer,
                sizes,
                self.shift(config),
                cx.now,
                &mut cx.budget,
            ),
            ack: AckState::new(config.ack.quick, next, self.stamp_offset),
            mss: self.mss,
            fin: None,
        }
    }
}
