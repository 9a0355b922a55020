//! CLOSE and ABORT (RFC 9293 §3.10.4, §3.10.5), and closing so that we hold TIME-WAIT.

use super::Host;
use crate::error::Error;
use crate::event::ConnectionId;
use crate::host::after_input::make_ready;
use crate::tcp::connection::Shape;
use crate::tcp::slot::Slot;
use crate::tcp::timers::Timer;
use crate::tcp::{Connection, SocketOptions, State};
use crate::time::{Duration, Instant};

impl Host {
    /// Sends FIN after what was written; reading goes on.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        let (connection, _) = self.connection_and_shared(id)?;
        match connection.shape {
            Shape::SynSent(_) | Shape::SynReceived(..) => connection.close_early = true,
            Shape::Synchronized(_) => connection.queue_fin(),
            Shape::Ended(_) => return Err(Error::NotConnected),
        }
        self.after_input(now, id.index);
        Ok(())
    }

    /// The user reads no more. What has come, and what comes before our FIN is sent, stays; data
    /// after it has no reader, and resets the connection (RFC 1122 §4.2.2.13).
    pub fn shutdown_read(&mut self, id: ConnectionId) -> Result<(), Error> {
        let (connection, _) = self.connection_and_shared(id)?;
        connection.read_shut = true;
        Ok(())
    }

    /// The user is done with the connection: it closes in the background (with unread data, or
    /// linger zero, by RST). The name is dead afterwards.
    pub fn close(&mut self, now: Instant, id: ConnectionId) {
        self.leave(now, id, false);
    }

    /// Closes the connection as [`Host::close`] does. Where the peer has closed first, and so waits
    /// in TIME-WAIT, we take that over: once our FIN is acknowledged we wait in its stead, and an
    /// RST with ACK lets the peer forget. A peer that ignores it, or does not get it, waits as
    /// well. Where we close first it is the same as `close` (Faber, Touch & Yue 1999 §4.1).
    pub fn close_swap(&mut self, now: Instant, id: ConnectionId) {
        if let Ok((slot, _)) = self.slot_and_shared(id) {
            let options = *slot.view().options;
            if !options.close_swap {
                slot.set_options(SocketOptions { close_swap: true, ..options });
            }
        }
        self.close(now, id);
    }

    /// Resets the connection. The name is dead afterwards.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        self.leave(now, id, true);
    }

    pub(super) fn leave(&mut self, now: Instant, id: ConnectionId, reset: bool) {
        let patience = self.orphan_patience();
        let slot = self.slots.named_mut(id.index).filter(|named| named.1 == id.generation);
        let Some((slot, _)) = slot else {
            return;
        };
        let connection = slot.connection_mut();
        connection.orphan = true;
        if connection.final_state().is_none() {
            self.live.orphans += 1;
        } else {
            self.closed.whole_blocks.on_orphan();
        }
        let cx = self.shared.at(now);
        let is_live = connection.synchronized().is_some();
        let unread = connection.synchronized().is_some_and(|s| !s.recv.buffer.is_empty());
        let linger = connection.options.linger;
        if reset || unread || linger == Some(Duration::ZERO) || !is_live {
            connection.abort(Error::ConnectionAborted, cx);
            connection.drop_unread(&mut cx.pool);
        } else {
            connection.queue_fin();
            if let Some(limit) = linger {
                connection.deadlines.set(Timer::Lifetime, now + limit);
            } else if connection.synchronized().is_some_and(|s| !s.send.buffer.is_empty()) {
                connection.deadlines.set(Timer::Lifetime, now + patience);
            }
            if connection.state() == State::FinWait2 {
                let limit = connection.options.fin_wait_2_timeout;
                connection.deadlines.set(Timer::FinWait2, now + limit);
            }
        }
        // The user hears nothing of it any more.
        connection.take_notices();
        if connection.is_over() {
            self.reap(now, id.index);
            self.retire(id.index);
        } else {
            make_ready(slot, id.index, &mut self.live.ready);
            self.bound_orphans(now, id.index);
        }
    }

    /// Frees the connection in slot `index` if it is finished.
    pub(in crate::host) fn retire(&mut self, index: u32) {
        if self.slots.get(index).and_then(Slot::awake).is_some_and(Connection::is_finished) {
            self.free_connection(index);
        }
    }
}
