//! Graceful stop, within one shard. One task asks for it, and connections finish the responses in
//! progress. The task can wait until all have finished, or cut those that have not.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A signal to stop, and the count of the connections that obey it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    requested: bool,
    /// No connection may finish any more.
    cut: bool,
    tracked: usize,
    /// Connections that were cut before their peers had a whole answer.
    cut_short: usize,
    /// The waiting tasks, by slot; freed slots are `None` and reused.
    waiting: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Stop {
    /// A signal that is not given yet.
    pub fn new() -> Self {
        Stop::default()
    }

    /// Asks every connection to stop. Asking again changes nothing.
    pub fn request(&self) {
        self.0.borrow_mut().requested = true;
        self.wake_all();
    }

    /// Ends every connection at once: responses in progress stay unfinished. It is a request as
    /// well.
    pub fn cut(&self) {
        self.0.borrow_mut().cut = true;
        self.request();
    }

    /// True once a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.borrow().requested
    }

    /// Resolves when a stop is requested.
    pub fn requested(&self) -> impl Future<Output = ()> + use<> {
        self.wait_requested()
    }

    pub(crate) fn wait_requested(&self) -> Wait {
        self.wait(|state| state.requested)
    }

    /// Resolves when all connections must end at once.
    pub(crate) fn wait_cut(&self) -> Wait {
        self.wait(|state| state.cut)
    }

    fn wait(&self, over: fn(&State) -> bool) -> Wait {
        Wait { stop: self.clone(), slot: None, over }
    }

    /// Counts a connection that has to finish, for as long as the guard lives.
    pub fn track(&self) -> Tracked {
        self.0.borrow_mut().tracked += 1;
        Tracked(self.clone())
    }

    /// How many connections have not finished.
    pub fn tracked(&self) -> usize {
        self.0.borrow().tracked
    }

    /// How many connections were cut before their peers had the whole of an answer. A connection
    /// counts when it ends, and [`Stop::tracked`] no more.
    pub fn cut_short(&self) -> usize {
        self.0.borrow().cut_short
    }

    /// A connection ends that was cut before its peer had the whole of an answer.
    pub(crate) fn on_cut_short(&self) {
        self.0.borrow_mut().cut_short += 1;
    }

    /// Resolves when a stop was requested and all connections have finished.
    pub fn finished(&self) -> impl Future<Output = ()> + use<> {
        self.wait(|state| state.requested && state.tracked == 0)
    }

    fn wake_all(&self) {
        // Woken outside the borrow: a waker may run anything.
        let wakers: Vec<Waker> = self.0.borrow().waiting.iter().flatten().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A connection that has to finish before [`Stop::finished`].
#[derive(Debug)]
pub struct Tracked(Stop);

impl Drop for Tracked {
    fn drop(&mut self) {
        let last = {
            let mut state = self.0.0.borrow_mut();
            state.tracked -= 1;
            state.tracked == 0 && state.requested
        };
        if last {
            self.0.wake_all();
        }
    }
}

/// A wait for a condition on the state.
pub(crate) struct Wait {
    stop: Stop,
    slot: Option<usize>,
    over: fn(&State) -> bool,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut state = this.stop.0.borrow_mut();
        if (this.over)(&state) {
            return Poll::Ready(());
        }
        let slot = *this.slot.get_or_insert_with(|| {
            state.free.pop().unwrap_or_else(|| {
                state.waiting.push(None);
                state.waiting.len() - 1
            })
        });
        state.waiting[slot] = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut state = self.stop.0.borrow_mut();
            state.waiting[slot] = None;
            state.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn is_ready(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_signal_reaches_who_waits_and_who_comes_late() {
        let stop = Stop::new();
        let mut early = pin!(stop.requested());
        assert!(!is_ready(early.as_mut()));
        stop.request();
        assert!(is_ready(early.as_mut()) && is_ready(pin!(stop.requested())));
    }

    #[test]
    fn finished_waits_for_the_last_one() {
        let stop = Stop::new();
        let (first, second) = (stop.track(), stop.track());
        let mut finished = pin!(stop.finished());
        stop.request();
        drop(first);
        assert!(!is_ready(finished.as_mut()));
        assert_eq!(stop.tracked(), 1);
        drop(second);
        assert!(is_ready(finished.as_mut()));
    }

    #[test]
    fn a_cut_is_a_request_that_a_request_is_not() {
        let stop = Stop::new();
        let (mut requested, mut cut) = (pin!(stop.wait_requested()), pin!(stop.wait_cut()));
        assert!(!is_ready(requested.as_mut()));
        stop.request();
        assert!(is_ready(requested.as_mut()) && !is_ready(cut.as_mut()));
        let other = Stop::new();
        other.cut();
        assert!(is_ready(pin!(other.wait_cut())) && is_ready(pin!(other.requested())));
    }

    #[test]
    fn nobody_tracked_and_nobody_asked_is_not_finished() {
        assert!(!is_ready(pin!(Stop::new().finished())));
    }

    #[test]
    fn slots_of_those_who_left_are_reused() {
        let stop = Stop::new();
        for _ in 0..100 {
            assert!(!is_ready(pin!(stop.requested())));
        }
        assert_eq!(stop.0.borrow().waiting.len(), 1);
    }
}
