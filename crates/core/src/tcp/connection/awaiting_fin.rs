//! An orphan in FIN-WAIT-2 on which nothing moves needs no more state than TIME-WAIT does: it sends
//! only ACKs, and no user reads from it. It becomes such a record here, and a connection again.

use alloc::sync::Arc;

use super::{Connection, Context, FinalState, Identity, SynReceived, Synchronized, WindowUpdate};
use crate::tcp::recv::window::WindowBudget;
use crate::tcp::time_wait::Record;
use crate::tcp::time_wait::negotiate::{Holder, Holding};
use crate::tcp::timers::Timer;
use crate::tcp::{SocketOptions, State};

impl Connection {
    /// What is to be kept of it, and whether both ends use SACK, if it is an orphan in FIN-WAIT-2
    /// on which nothing moves: its window is given back to `budget`, and it must not be used any
    /// more.
    pub(crate) fn leave_for_record(
        &mut self,
        budget: &mut WindowBudget,
    ) -> Option<(FinalState, bool)> {
        let s = self.synchronized().filter(|s| self.is_at_rest(s))?;
        let is_acknowledged = s.recv.ack.at_rest(s.recv.nxt).is_some();
        if self.state() != State::FinWait2 || !is_acknowledged {
            return None;
        }
        let s = self.synchronized_mut()?;
        // A record can note only one agreement: that the peer holds. An orphan stays whole if it
        // has not proved anything yet, or relies on us.
        let holding = match s.holder {
            Holder::Closer => Holding::Closer,
            Holder::Peer => Holding::Agreed,
            Holder::Unproven | Holder::Ourselves => return None,
        };
        let final_state = s.final_state(holding);
        s.recv.window.release(budget);
        Some((final_state, s.send.has_sack()))
    }

    /// Makes the orphan whose `record` was kept again, with timestamps that far ahead of our clock.
    /// It knows its ends' numbers, and no more about the path than a new connection. Its window is
    /// the field that it announced, unscaled.
    pub(crate) fn of_record(
        cx: &mut Context,
        hash: u64,
        options: Arc<SocketOptions>,
        record: &Record,
        stamp_offset: u32,
    ) -> Connection {
        let synchronized = record.synchronized(cx, &options, stamp_offset);
        let identity = Identity { hash, ports: record.tuple.ports() };
        let mut connection = Connection::established(identity, options, synchronized);
        connection.state.transition(State::FinWait1);
        connection.state.transition(State::FinWait2);
        connection.orphan = true;
        connection.deadlines.set(Timer::FinWait2, record.expires);
        connection
    }
}

impl Record {
    /// A connection that began just before the record's numbers.
    fn synchronized(
        &self,
        cx: &mut Context,
        options: &SocketOptions,
        stamp_offset: u32,
    ) -> Synchronized {
        let mss = cx.config.mss_min;
        // None of the windows that can be told apart: nothing is unread, so it was not shut.
        let offer = if self.window == 0 { u16::MAX } else { self.window };
        let syn = SynReceived {
            iss: self.snd_nxt - 1,
            irs: self.rcv_nxt - 1,
            peer_mss: mss,
            mss,
            offer,
            peer_scale: None,
            sack: self.is_marked,
            ecn: false,
            stamp: self.stamp,
            stamp_offset,
            attempts: 1,
            names: None,
        };
        let told = WindowUpdate { window: 0, seq: self.rcv_nxt, ack: self.snd_nxt };
        let mut s = syn.synchronize(cx, options, told);
        s.recv.window.fix(offer.into(), self.rcv_nxt, &mut cx.budget);
        s.send.told_by_fin = self.rcv_nxt;
        if self.is_holder {
            s.holder = Holder::Peer;
        }
        s
    }
}
