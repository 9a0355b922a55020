//! What the simulator's oracle reads of the connections that send. Nothing of it is kept: each look
//! gathers it anew.

use core::ops::Range;

use super::Host;
use crate::event::ConnectionId;
use crate::flow::Seq;
use crate::tcp::congestion::pacer::Pacer;
use crate::tcp::connection::Synchronized;
use crate::tcp::send::recovery::{Detection, Probe};
use crate::tcp::slot::Slot;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};

/// A synchronized connection that does not rest, as it sends.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub id: ConnectionId,
    /// SND.UNA and SND.NXT.
    pub una: Seq,
    pub nxt: Seq,
    /// Numbers that are queued and were never sent, FIN included.
    pub unsent: u32,
    /// Bytes believed to be in the network.
    pub pipe: u32,
    /// Bytes in flight that the peer holds, and those that are lost and wait to be sent again.
    pub sacked: u32,
    pub lost: u32,
    /// The first lost number, if one is.
    pub first_lost: Option<Seq>,
    /// Since the connection began: segments and bytes of data sent again, timeouts, and recoveries
    /// that were not needed.
    pub retransmits: u32,
    pub resent_bytes: u64,
    pub timeouts: u32,
    pub undone: u32,
    /// Congestion window and slow-start threshold, bytes.
    pub window: u32,
    pub threshold: u32,
    /// The largest payload, without options.
    pub mss: u32,
    /// Where the recovery ends; another number is another recovery.
    pub point: Option<Seq>,
    /// The first retransmission of a recovery is due, whatever the window says.
    pub is_forced: bool,
    /// Proportional rate reduction lets out what leaves.
    pub is_reduced: bool,
    /// Losses are found by duplicate ACKs.
    pub by_duplicates: bool,
    /// A loss probe was sent, and is not answered.
    pub is_probed: bool,
    /// The timeout in force, back-off included.
    pub rto: Duration,
    /// When the retransmission timer and the persist timer fire; [`Instant::FAR_FUTURE`]: never.
    pub retransmit: Instant,
    pub persist: Instant,
    /// Until when it waits for its next burst; [`Instant::FAR_FUTURE`]: it does not.
    pub pace: Instant,
    /// The schedule has an entry for it.
    pub is_in_schedule: bool,
    /// It is to be flushed, or waits for a neighbour.
    pub is_listed: bool,
}

impl Host {
    /// The senders in these slots.
    #[doc(hidden)]
    pub fn senders(&self, slots: Range<u32>) -> impl Iterator<Item = Sender> {
        let slots = slots.start..slots.end.min(self.slots.end());
        slots.filter_map(|index| {
            let (slot, generation) = self.slots.named(index)?;
            self.sender(ConnectionId { index, generation }, slot)
        })
    }

    /// Entries of the schedule of paced connections.
    #[doc(hidden)]
    pub fn paced_len(&self) -> usize {
        self.live.paces.len()
    }

    fn sender(&self, id: ConnectionId, slot: &Slot) -> Option<Sender> {
        let connection = slot.awake()?;
        let s: &Synchronized = connection.synchronized()?;
        let (send, deadlines) = (&s.send, &connection.deadlines);
        let recovery = send.recovery.as_deref();
        let pacer = send.pacer();
        let tally = send.tally();
        Some(Sender {
            id,
            una: send.una,
            nxt: send.nxt,
            unsent: send.queued_end().distance(send.nxt).max(0) as u32,
            pipe: send.pipe(),
            sacked: send.sent.sacked(),
            lost: send.sent.lost(send.una),
            first_lost: send.sent.next_lost(send.una, 1).map(|lost| lost.0),
            retransmits: tally.retransmits,
            resent_bytes: tally.resent_bytes,
            timeouts: tally.timeouts,
            undone: tally.undone,
            window: send.congestion.window(),
            threshold: send.congestion.threshold(),
            mss: send.mss.into(),
            point: recovery.filter(|recovery| recovery.is_active()).map(|recovery| recovery.point),
            is_forced: recovery.is_some_and(|recovery| recovery.force),
            is_reduced: recovery.is_some_and(|recovery| recovery.prr.is_some()),
            by_duplicates: send.detection == Detection::Duplicates,
            is_probed: recovery.is_some_and(|r| matches!(r.probe, Probe::Sent { .. })),
            rto: send.rtt.rto(&self.shared.config),
            retransmit: deadlines.at(Timer::Retransmit),
            persist: deadlines.at(Timer::Persist),
            pace: pacer.and_then(Pacer::awaited).unwrap_or(Instant::FAR_FUTURE),
            is_in_schedule: self.live.paces.has(id.index),
            is_listed: slot.ready || slot.awaits_neighbour,
        })
    }
}
