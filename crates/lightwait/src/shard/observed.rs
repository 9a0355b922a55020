//! A pass of a shard whose connections are observed: what [`Shard::round`] does, with an observer
//! between the host and its inputs ([`observe`](crate::observe)).

use lightwait_core::Instant;

use super::state::Local;
use super::{Handle, Shard};

impl Shard {
    /// Runs one pass through everything. Returns true if there is more to do at once.
    pub(super) fn observed_round(&mut self, now: Instant) -> bool {
        let received = self.receive_observed(now);
        self.receive_observed_mail(now);
        self.local.on_time_observed(now);
        self.local.wake_waiters();
        self.local.wake_sleepers(now);
        self.local.executor().run(self.budgets.tasks);
        let sent_all = self.transmit_observed(now);
        self.send_mail();
        self.local.wake_waiters();
        received >= self.budgets.receive_frames
            || self.local.executor().has_ready()
            || (sent_all && self.local.host().wants_emit())
    }

    fn receive_observed(&mut self, now: Instant) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        let mut host = self.local.host_mut();
        let mut observer = self.local.observer();
        let result =
            self.device.receive(
                now,
                self.budgets.receive_frames,
                &mut |frames| match &mut *observer {
                    Some(observer) => observer.on_frames(&mut host, now, frames),
                    None => host.on_frames(now, frames),
                },
            );
        if self.device.take_link_up() {
            host.on_link_up(now);
        }
        result.unwrap_or_else(|error| {
            self.failure = Some(error);
            0
        })
    }

    fn receive_observed_mail(&mut self, now: Instant) {
        let Some(seat) = &mut self.seat else { return };
        let local = &self.local;
        let errands = seat.receive_by(|from, message| {
            let host = &mut local.host_mut();
            match &mut *local.observer() {
                Some(observer) => observer.on_message(host, now, from, message),
                None => host.on_message(now, from, message),
            }
        });
        // With nothing borrowed: they may call anything.
        for errand in errands {
            errand(&Handle { local: self.local.clone() });
        }
    }

    /// Fills the outbox and empties it into the device. Returns false if frames stay.
    fn transmit_observed(&mut self, now: Instant) -> bool {
        match &mut *self.local.observer() {
            Some(observer) => observer.emit(&mut self.local.host_mut(), now, &mut self.outbox),
            None => self.local.host_mut().emit(now, &mut self.outbox),
        }
        self.empty_outbox(now)
    }
}

impl Local {
    /// Lets time pass, with an observer, which goes if its own is over.
    fn on_time_observed(&self, now: Instant) {
        let mut is_over = false;
        match &mut *self.observer() {
            Some(observer) => {
                observer.on_time(&mut self.host_mut(), now);
                is_over = observer.is_over(now);
            }
            None => self.host_mut().on_time(now),
        }
        if is_over {
            drop(self.set_observer(None));
        }
    }
}
