//! A sender and a receiver, whose segments are handed over one at a time, and the server's part of
//! the paper's model (§2): it holds the *pending* segments, which do not fit into the send buffer.

use std::collections::VecDeque;
use std::net::SocketAddr;

use lightwait_core::config::SendRule;
use lightwait_core::tcp::{SendInfo, Supply};
use lightwait_core::time::{Duration, Instant};
use lightwait_core::{Capabilities, Config, ConnectionId, Host, Medium, Outbox, RxFrame};

use crate::plan::Failure;
use crate::plans::newreno;

/// Bytes of a segment.
const SEGMENT: u32 = 1000;
/// Segments of a buffer that does not follow the window.
const FIXED_SEGMENTS: u32 = 4;
/// Bytes of the headers of a segment with data, or of an ACK.
const HEADERS: usize = 40;

/// Between two acknowledgements.
const STEP: Duration = Duration::from_millis(1);

pub(super) struct Walk {
    sender: Host,
    receiver: Host,
    sending: ConnectionId,
    receiving: ConnectionId,
    now: Instant,
    /// Segments with data on their way.
    wire: VecDeque<Vec<u8>>,
    pending: u32,
    sent: u32,
}

/// Lets a host speak.
fn frames_of(host: &mut Host, now: Instant) -> Vec<Vec<u8>> {
    let mut outbox = Outbox::new(1024);
    host.emit(now, &mut outbox);
    let next = || outbox.take();
    let copied = std::iter::from_fn(next).map(|frame| {
        let mut bytes = Vec::new();
        frame.copy_to(&mut bytes);
        bytes
    });
    copied.collect()
}

fn host(address: &str, rule: SendRule, factor: u8) -> Result<Host, Failure> {
    let device = Capabilities::plain(Medium::Ip, 1500);
    let mut config = Config::new(device, address.parse()?, [7; 32]);
    config.tcp = newreno().with(|tcp| {
        (tcp.timestamps, tcp.sack) = (false, false);
        tcp.mss_max = SEGMENT as u16;
        tcp.congestion.initial_window = 1;
        tcp.ack.quick = u8::MAX;
        (tcp.buffers.send_size, tcp.buffers.send_factor) = (rule, factor);
        if rule == SendRule::Fixed {
            tcp.buffers.send = FIXED_SEGMENTS * SEGMENT;
        }
    });
    Ok(Host::new(config)?)
}

impl Walk {
    /// A connection in congestion avoidance with a window of two segments, and nothing to send. A
    /// read takes `factor` round trips.
    pub(super) fn new(rule: SendRule, factor: u8) -> Result<Walk, Failure> {
        let (mut sender, mut receiver) =
            (host("10.0.0.2/24", rule, factor)?, host("10.0.0.1/24", rule, 1)?);
        let (now, address) = (Instant::from_millis(1000), SocketAddr::from(([10, 0, 0, 2], 80)));
        let listener = sender.listen(address, 1)?;
        let any = lightwait_core::host::any_local(&address);
        let receiving = receiver.connect(now, any, address)?;
        for _ in 0..2 {
            for frame in frames_of(&mut receiver, now) {
                sender.on_frame(now, RxFrame::plain(&frame));
            }
            for frame in frames_of(&mut sender, now) {
                receiver.on_frame(now, RxFrame::plain(&frame));
            }
        }
        let sending = sender.accept(now, listener)?;
        let (wire, pending, sent) = Default::default();
        let mut walk = Walk { sender, receiver, sending, receiving, now, wire, pending, sent };
        // A segment that is lost ends slow start at two segments, the least threshold.
        walk.pending = 1;
        walk.append();
        walk.wire.clear();
        while walk.wire.is_empty() {
            walk.now = walk.sender.deadline().ok_or("nothing is sent again")?;
            walk.sender.on_time(walk.now);
            walk.emit();
        }
        walk.acknowledge();
        walk.sender.set_supply(walk.now, sending, Supply { read_time: Duration::ZERO, more: true });
        Ok(walk)
    }

    /// Reads until one segment is pending.
    pub(super) fn fill(&mut self) {
        while self.pending == 0 {
            self.complete(1);
        }
    }

    /// Keeps the buffer full until the window has just grown to so many segments.
    pub(super) fn grow_to(&mut self, segments: u32) {
        self.fill();
        while self.cwnd() < f64::from(segments) {
            self.acknowledge();
            self.append();
            self.fill();
        }
    }

    /// A read of so many segments is complete.
    pub(super) fn complete(&mut self, segments: u32) {
        self.pending += segments;
        self.append();
    }

    /// Pending segments go into the buffer as far as they fit, and what the window allows leaves.
    pub(super) fn append(&mut self) {
        while self.pending > 0 {
            let segment = [7; SEGMENT as usize];
            match self.sender.write(self.now, self.sending, &segment) {
                Ok(taken) => assert_eq!(taken, segment.len(), "whole segments"),
                Err(_) => break,
            }
            self.pending -= 1;
        }
        self.emit();
    }

    /// The oldest segment arrives, and so does its acknowledgement. Time passes: a buffer miss is
    /// one that lasts.
    pub(super) fn acknowledge(&mut self) {
        self.now = self.now + STEP;
        let segment = self.wire.pop_front().expect("a segment on its way");
        self.receiver.on_frame(self.now, RxFrame::plain(&segment));
        let read = self.receiver.read(self.now, self.receiving, &mut [0; SEGMENT as usize]);
        assert_eq!(read.ok(), Some(SEGMENT as usize));
        for frame in frames_of(&mut self.receiver, self.now) {
            self.sender.on_frame(self.now, RxFrame::plain(&frame));
        }
        self.emit();
    }

    fn emit(&mut self) {
        let frames = frames_of(&mut self.sender, self.now);
        let segments = frames.into_iter().filter(|frame| frame.len() > HEADERS);
        let before = self.wire.len();
        self.wire.extend(segments);
        self.sent += (self.wire.len() - before) as u32;
    }

    /// What a read should bring that begins now.
    pub(super) fn access(&self) -> u32 {
        self.sender.send_demand(self.now, self.sending).read as u32 / SEGMENT
    }

    fn info(&self) -> SendInfo {
        self.sender.send_info(self.now, self.sending).unwrap_or_default()
    }

    /// The congestion window, in segments.
    pub(super) fn cwnd(&self) -> f64 {
        let info = self.sender.info(self.sending).unwrap_or_default();
        f64::from(info.cwnd_bytes) / f64::from(SEGMENT)
    }

    pub(super) fn hiwat(&self) -> u32 {
        self.info().hiwat as u32 / SEGMENT
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.info().outstanding as u32 / SEGMENT
    }

    pub(super) fn fresh(&self) -> u32 {
        self.info().fresh as u32 / SEGMENT
    }

    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    /// Segments sent since the connection began.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    pub(super) fn misses(&self) -> u64 {
        self.info().misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_begins_at_two_segments_and_grows_by_one_a_window() {
        let mut walk = Walk::new(SendRule::Los, 1).unwrap();
        assert_eq!((walk.cwnd(), walk.outstanding(), walk.fresh()), (2.0, 0, 0));
        walk.fill();
        let mut windows = Vec::new();
        for _ in 0..5 {
            walk.acknowledge();
            walk.append();
            walk.fill();
            windows.push(walk.cwnd());
        }
        assert_eq!(windows, [2.0, 3.0, 3.0, 3.0, 4.0]);
    }
}
