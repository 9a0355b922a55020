//! The stack of the host whose program runs.

use std::cell::RefCell;

use lightwait::net::StackHandle;

thread_local! {
    static CURRENT: RefCell<Option<StackHandle>> = const { RefCell::new(None) };
}

/// Calls `call` with that stack as the current one.
pub(super) fn with<R>(stack: &StackHandle, call: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(Some(stack.clone()));
    let restore = Restore(before);
    let result = call();
    drop(restore);
    result
}

/// Puts the stack back that was current before, after a panic as well.
struct Restore(Option<StackHandle>);

impl Drop for Restore {
    fn drop(&mut self) {
        let ended = CURRENT.replace(self.0.take());
        drop(ended);
    }
}

/// The stack of the simulated host whose program runs, for the sockets of [`lightwait::net`]:
/// `TcpListener::bind_on(&current_stack(), "0.0.0.0:80")`.
///
/// # Panics
/// Outside of a program of a [`Simulation`](super::Simulation).
pub fn current_stack() -> StackHandle {
    CURRENT.with_borrow(Clone::clone).expect("a program of a simulated host runs")
}
