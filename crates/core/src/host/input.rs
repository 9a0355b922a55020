//! A frame arrives: from the link header to TCP or UDP, by the fast layout at once, or through IP.

use super::Host;
use super::prefetch::Guesses;
use crate::frame::{BURST, Medium, RxFrame};
use crate::ip::Context;
use crate::ip::input::Origin;
use crate::ip::shards::Hop;
use crate::time::Instant;
use crate::wire::ethernet::{self, ethertype};
use crate::wire::ip::protocol;
use crate::wire::{Malformed, arp};

impl Host {
    /// A frame has arrived.
    pub fn on_frame(&mut self, now: Instant, frame: RxFrame<'_>) {
        self.take_frame::<true>(now, &frame, None);
    }

    /// Frames have arrived, the oldest first. What they do is what they would do one by one; but
    /// where there is much to look among, the memory that they lead to is waited for together.
    pub fn on_frames(&mut self, now: Instant, frames: &[RxFrame<'_>]) {
        match frames {
            [frame] => self.on_frame(now, *frame),
            _ => self.take_frames::<true>(now, frames),
        }
    }

    /// `FAST`: the fast paths are open. Without them everything goes by the steps, to which a test
    /// compares them.
    pub(super) fn take_frames<const FAST: bool>(&mut self, now: Instant, frames: &[RxFrame<'_>]) {
        if self.is_crowded() {
            frames.chunks(BURST).for_each(|burst| self.take_prefetched::<FAST>(now, burst));
        } else {
            self.take_each::<FAST>(now, frames, None);
        }
    }

    pub(super) fn take_prefetched<const FAST: bool>(
        &mut self,
        now: Instant,
        burst: &[RxFrame<'_>],
    ) {
        let mut guesses = self.live.guesses.take().unwrap_or_default();
        self.prefetch_burst(burst, &mut guesses);
        self.take_each::<FAST>(now, burst, Some(&guesses));
        self.live.guesses = Some(guesses);
    }

    /// `guesses`: those about these frames, if they were made before.
    fn take_each<const FAST: bool>(
        &mut self,
        now: Instant,
        frames: &[RxFrame<'_>],
        guesses: Option<&Guesses>,
    ) {
        let mut left = frames;
        while let Some((frame, others)) = left.split_first() {
            let taken = if FAST { self.coalesce(now, left) } else { 0 };
            if taken > 0 {
                left = &left[taken..];
                continue;
            }
            let guess = guesses.map(|guesses| (guesses, frames.len() - left.len()));
            self.take_frame::<FAST>(now, frame, guess);
            left = others;
        }
    }

    /// `guess`: the guess about it, and its place there, if that was made before.
    #[inline(always)]
    fn take_frame<const FAST: bool>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'_>,
        guess: Option<(&Guesses, usize)>,
    ) {
        self.shared.counters.frames_in += 1;
        match self.config.device.medium {
            Medium::Ip => {
                self.take_packet::<FAST>(now, frame, Origin::Link(None), Hop::First, guess);
            }
            Medium::Ethernet => self.take_ethernet::<FAST>(now, frame, guess),
        }
    }

    pub(super) fn note_malformed(&mut self, reason: Malformed) {
        self.shared.counters.frames_malformed += 1;
        self.ip.note_malformed(reason);
    }

    /// Claims and configures our addresses at the first sign of time.
    #[inline(always)]
    pub(super) fn begin_link(&mut self, now: Instant) {
        if !self.ip.has_begun() {
            self.ip.begin(now);
            self.after_ip(now);
        }
    }

    fn take_ethernet<const FAST: bool>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'_>,
        guess: Option<(&Guesses, usize)>,
    ) {
        self.begin_link(now);
        let link = match ethernet::Frame::parse(frame.bytes) {
            Ok(link) => link,
            Err(reason) => return self.note_malformed(reason),
        };
        if link.destination != self.config.hardware && !ethernet::is_group(link.destination) {
            self.shared.counters.not_ours += 1;
            return;
        }
        let link = match ethertype::is_vlan(link.ethertype).then(|| link.outside_vlans()) {
            None => link,
            Some(Ok(Some(link))) => link,
            Some(Ok(None)) => {
                self.shared.counters.vlan_unknown += 1;
                return;
            }
            Some(Err(reason)) => return self.note_malformed(reason),
        };
        let inner = &RxFrame { bytes: link.payload, ..*frame };
        match link.ethertype {
            ethertype::IPV4 | ethertype::IPV6 => {
                let from = Origin::Link(Some(link.source));
                self.take_packet::<FAST>(now, inner, from, Hop::First, guess);
            }
            ethertype::ARP => match arp::Packet::parse(link.payload) {
                Ok(packet) => {
                    let cx = &mut Context { now, counters: &mut self.shared.counters };
                    self.ip.on_arp(cx, &packet);
                    self.after_ip(now);
                }
                Err(reason) => self.note_malformed(reason),
            },
            _ => self.shared.counters.protocol_unknown += 1,
        }
    }

    /// Takes in a packet that has not come over our link: from ourselves, or from another shard.
    pub(super) fn take_packet_within<const FAST: bool>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'_>,
        from: Origin,
        hop: Hop,
    ) {
        self.take_packet::<FAST>(now, frame, from, hop, None);
    }

    /// Takes in the packet in `frame`, whose link header is gone. `guess`: as in
    /// [`Host::take_frame`].
    #[inline(always)]
    fn take_packet<const FAST: bool>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'_>,
        from: Origin,
        hop: Hop,
        guess: Option<(&Guesses, usize)>,
    ) {
        self.shared.arrived = frame.arrived;
        let found = match guess {
            Some((guesses, place)) => guesses.of(place, frame.bytes),
            None => self.parse_and_guess(frame.bytes),
        };
        match found {
            Some((fast, guess)) if FAST => {
                self.take_fast_segment(now, fast, guess, frame, from);
            }
            _ => self.take_any_packet(now, frame, from, hop),
        }
    }

    /// Takes in a packet of any layout.
    fn take_any_packet(&mut self, now: Instant, frame: &RxFrame<'_>, from: Origin, hop: Hop) {
        let cx = &mut Context { now, counters: &mut self.shared.counters };
        match self.ip.on_packet(cx, frame, from) {
            Ok(Some(packet)) if packet.protocol == protocol::UDP => {
                self.take_datagram(now, &packet, frame, from, hop);
            }
            Ok(Some(packet)) => self.take_any_segment(now, &packet, frame, from),
            Ok(None) => match self.ip.reassembled() {
                Some(bytes) => self.take_any_packet(now, &RxFrame::plain(&bytes), from, hop),
                None => self.after_ip(now),
            },
            Err(reason) => {
                self.note_malformed(reason);
                self.after_ip(now);
            }
        }
    }
}
