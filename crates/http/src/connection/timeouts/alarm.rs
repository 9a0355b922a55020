//! A timer for a deadline that is mostly moved before it comes. It wakes a task at the deadline, or
//! before.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::rt::{Sleep, Timer};

/// A timer that is armed rarely and judged late.
#[derive(Default)]
pub(crate) struct Alarm(Option<(Instant, Pin<Box<dyn Sleep>>)>);

impl Alarm {
    /// Ready once `deadline` has passed; until then the task is woken at it, or before.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        timer: &dyn Timer,
        deadline: Instant,
    ) -> Poll<()> {
        if self.0.as_ref().is_none_or(|(armed, _)| *armed > deadline) {
            self.0 = Some((deadline, timer.sleep_until(deadline)));
        }
        while let Some((armed, sleep)) = &mut self.0 {
            ready!(sleep.as_mut().poll(cx));
            if *armed >= deadline {
                self.0 = None;
                return Poll::Ready(());
            }
            // It was armed for an earlier deadline that has since been moved.
            *armed = deadline;
            timer.reset(sleep, deadline);
        }
        Poll::Pending
    }
}
