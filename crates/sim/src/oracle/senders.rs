//! What a host's senders may do, from what each was when its host had last sent to what it is now
//! that the host has sent again.
//!
//! - The pipe stays within the congestion window, or is one segment. Beyond it leaves what the RFCs
//!   name: a FIN, the first retransmission of a recovery (RFC 6675 §5 step 4.3), a
//!   loss probe (RFC 8985 §7.3), and by proportional rate reduction a part of what has arrived
//!   (RFC 6937).
//! - What is lost is sent again or acknowledged within a few timeouts.
//! - What is in flight or waits to be sent has a timer, and the host wakes up for it. What waits
//!   for its pace has a place in the schedule.
//!
//! The peer's window is judged by what is seen on the wire, in [`super::half`].

use std::mem;
use std::time::Duration;

use lightwait_core::flow::Seq;
use lightwait_core::host::Sender;
use lightwait_core::{Host, Instant};

/// Slots that are looked at each time. A host with more of them is looked at part by part.
const SLOTS: u32 = 16;
/// Looks at one part before the next one.
const LOOKS: u32 = 256;
/// Timeouts within which something must become of what is lost.
const TIMEOUTS: u32 = 3;
/// How late a timer may fire: the longest tick of any scheme, and as much again.
const LATE: Duration = Duration::from_secs(1);

/// The senders of one host.
#[derive(Debug, Default)]
pub(super) struct Senders {
    /// The first slot that is looked at.
    first: u32,
    /// Looks at the slots from there on.
    looks: u32,
    /// In order of slots.
    known: Vec<Known>,
}

/// A sender as it was at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    sender: Sender,
    /// When something last became of what is lost.
    moved: Instant,
    /// Bytes that were in flight when this recovery began, at least, and those that have arrived
    /// and that have left since.
    flight: u64,
    arrived: u64,
    left: u64,
}

/// A broken rule, and who broke it.
type Fault = Box<(&'static str, Sender)>;

impl Senders {
    /// The host has sent what it could.
    pub(super) fn on_emitted(&mut self, now: Instant, host: &Host) -> Result<(), Fault> {
        if self.looks >= LOOKS && host.connections() > SLOTS as usize {
            let is_last = (self.first + SLOTS) as usize >= host.connections();
            self.first = if is_last { 0 } else { self.first + SLOTS };
            (self.looks, self.known) = (0, Vec::new());
        }
        let is_first = self.looks == 0;
        self.looks = self.looks.saturating_add(1);
        let mut old = mem::take(&mut self.known).into_iter().peekable();
        for sender in host.senders(self.first..self.first + SLOTS) {
            while old.next_if(|known| known.sender.id.index() < sender.id.index()).is_some() {}
            let known = match old.next_if(|known| known.sender.id == sender.id) {
                Some(known) => known.on_sent(now, sender),
                None if is_first => Ok(Known::new(now, sender)),
                // It was not there, or rested: nothing was in flight.
                None => Known::new(now, idle(sender)).on_sent(now, sender),
            };
            let known = known.map_err(|rule| Box::new((rule, sender)))?;
            known.check_lost(now).map_err(|rule| Box::new((rule, sender)))?;
            check_wakes(&sender, host.deadline()).map_err(|rule| Box::new((rule, sender)))?;
            self.known.push(known);
        }
        Ok(())
    }
}

/// The sender before it has sent anything.
fn idle(sender: Sender) -> Sender {
    Sender { nxt: sender.una, point: None, is_forced: false, is_probed: false, ..sender }
}

/// Which recovery it is in. One that is undone may begin again at the same place.
fn recovery(sender: &Sender) -> (Option<Seq>, u32, u32) {
    (sender.point, sender.timeouts, sender.undone)
}

impl Known {
    /// At the first look. What has arrived in a recovery that is under way is not known, and may be
    /// anything.
    pub(super) fn new(now: Instant, sender: Sender) -> Known {
        Known { sender, moved: now, flight: 1, arrived: u64::from(u32::MAX), left: 0 }
    }

    /// The host has sent again, and this is the sender now.
    pub(super) fn on_sent(self, now: Instant, after: Sender) -> Result<Known, &'static str> {
        let before = self.sender;
        // A probe's byte that is acknowledged counts as sent from then on.
        let new = after.nxt.distance(before.nxt.max(after.una)).max(0) as u64;
        let again = after.resent_bytes - before.resent_bytes;
        let mut known = Known { sender: after, ..self };
        if recovery(&after) != recovery(&before) || !after.is_reduced {
            let flight = u64::from(after.nxt.since(after.una) - after.sacked) - new;
            (known.flight, known.arrived, known.left) = (flight, 0, 0);
        }
        known.left += new + again;
        let (una, sacked) = (after.una.since(before.una), i64::from(after.sacked));
        let arrived = i64::from(una) + sacked - i64::from(before.sacked);
        known.arrived += match arrived {
            1.. => arrived as u64,
            // What the timer finds lost lets a segment go, as if it had arrived.
            _ if u64::from(after.lost) + again > before.lost.into() => after.mss.into(),
            _ => 0,
        };
        let lost = |sender: &Sender| (sender.first_lost, sender.lost, sender.retransmits);
        if after.lost == 0 || lost(&before) != lost(&after) || before.una != after.una {
            known.moved = now;
        }
        known.check_window(&before, new + again)?;
        Ok(known)
    }

    /// `sent` bytes have left since the sender was as `before`.
    fn check_window(&self, before: &Sender, sent: u64) -> Result<(), &'static str> {
        let after = &self.sender;
        // A segment may always be out, and a FIN beside it: it has a number, and no byte.
        let most = after.window.max(after.mss).saturating_add(1);
        if sent <= 1 || after.pipe <= most {
            return Ok(());
        }
        let segment = u64::from(after.mss) + 1;
        let is_partial = after.by_duplicates && after.una != before.una;
        let is_anew = recovery(after) != recovery(before);
        let begins = after.point.is_some() && (is_anew || is_partial);
        let is_probe = after.is_probed && !before.is_probed;
        if sent <= segment && (begins || before.is_forced || is_probe) {
            return Ok(());
        }
        let threshold = u64::from(after.threshold);
        let due = (self.arrived * threshold.min(self.flight)).div_ceil(self.flight.max(1));
        if after.is_reduced && (self.left <= due + segment || after.pipe <= after.threshold) {
            return Ok(());
        }
        Err("sends more than its congestion window allows")
    }

    fn check_lost(&self, now: Instant) -> Result<(), &'static str> {
        match now > self.moved + self.sender.rto * TIMEOUTS + LATE {
            true => Err("does not send again what is lost"),
            false => Ok(()),
        }
    }
}

/// `deadline`: when the host wakes up.
fn check_wakes(sender: &Sender, deadline: Option<Instant>) -> Result<(), &'static str> {
    let is_in_flight = sender.nxt != sender.una;
    if sender.is_listed || (!is_in_flight && sender.unsent == 0) {
        return Ok(());
    }
    let timer = if is_in_flight { sender.retransmit } else { sender.persist.min(sender.pace) };
    if timer == Instant::FAR_FUTURE {
        return Err("waits without a timer");
    }
    if sender.pace != Instant::FAR_FUTURE && !sender.is_in_schedule {
        return Err("waits for its pace and is not in the schedule");
    }
    let deadline = deadline.unwrap_or(Instant::FAR_FUTURE);
    if deadline > timer + LATE {
        return Err("has a timer for which its host does not wake up");
    }
    if deadline > sender.pace {
        return Err("has a pace for which its host does not wake up");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
