//! Takes in runs of one connection's text. Much of what arrives together is the text of one
//! connection, and each segment goes on where the last one ended. Their connection is found once,
//! and a change that all of them would make alike is made once.
//!
//! Only predicted segments are taken in here. The first segment that is not predicted is left to
//! the input of single frames, so that every segment has the effect that it would have had alone.

use super::Host;
use super::after_input::publish;
use crate::event::ConnectionId;
use crate::frame::{Medium, RxChecksum, RxFrame};
use crate::tcp::slot::guessed;
use crate::time::Instant;
use crate::wire::ethernet::{self, ethertype};
use crate::wire::fast::FastSegment;
use crate::wire::peek::is_alike;

/// Bytes of a frame from which on it is worth a look whether the next one belongs to it.
const LONG: usize = 256;

impl Host {
    /// Takes in the frames at the front of `burst` that bring a connection's next text, if there
    /// seem to be several; how many that were.
    #[inline(always)]
    pub(super) fn coalesce(&mut self, now: Instant, burst: &[RxFrame<'_>]) -> usize {
        match burst {
            [first, second, ..] if first.bytes.len() >= LONG => {
                let link = self.link_bytes();
                let is_alike = is_alike(first.bytes, second.bytes, link);
                if is_alike { self.take_front(now, burst, link) } else { 0 }
            }
            _ => 0,
        }
    }

    /// Bytes of a frame's link header.
    pub(super) fn link_bytes(&self) -> usize {
        match self.config.device.medium {
            Medium::Ip => 0,
            Medium::Ethernet => ethernet::HEADER_BYTES,
        }
    }

    /// Takes in the text at the front of `burst`, behind a link header of `link` bytes; returns how
    /// many segments that were.
    fn take_front(&mut self, now: Instant, burst: &[RxFrame<'_>], link: usize) -> usize {
        let Some(first) = burst.first() else { return 0 };
        let (link, packet) = first.bytes.split_at_checked(link).unwrap_or_default();
        let Some(fast) = FastSegment::parse(packet).filter(|_| self.is_ipv4_to_us(link)) else {
            return 0;
        };
        let tuple = fast.tuple();
        let index = self.live.demux.first_guess(self.live.hasher.hash(&tuple));
        let Some((slot, generation)) = guessed(&mut self.slots, index, &tuple, false) else {
            return 0;
        };
        // One that rests is woken only by what is known to be sound.
        let Some(connection) = slot.awake_mut() else { return 0 };
        let Some(mut coalesced) = connection.coalesced(self.shared.at(now)) else { return 0 };
        for frame in burst {
            let Some(fast) = packet_behind(link, frame.bytes).and_then(FastSegment::parse) else {
                break;
            };
            let trusted = frame.checksum == RxChecksum::Good;
            if fast.tuple() != tuple || !coalesced.take(&fast, trusted, frame.segment_size) {
                break;
            }
        }
        let taken = coalesced.end();
        self.shared.counters.frames_in += taken as u64;
        // Text alone ends nothing.
        let id = ConnectionId { index, generation };
        let _is_over = publish(slot, id, &mut self.live.ready, &mut self.events);
        taken
    }

    /// True if a frame with this link header, if frames have one, holds an IPv4 packet to us alone.
    fn is_ipv4_to_us(&self, link: &[u8]) -> bool {
        link.is_empty()
            || ethernet::Frame::parse(link).is_ok_and(|frame| {
                frame.destination == self.config.hardware && frame.ethertype == ethertype::IPV4
            })
    }
}

/// The packet in `frame`, if that has this link header.
fn packet_behind<'a>(link: &[u8], frame: &'a [u8]) -> Option<&'a [u8]> {
    if link.is_empty() { Some(frame) } else { frame.strip_prefix(link) }
}
