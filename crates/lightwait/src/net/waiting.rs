//! The tasks of an application that wait for a socket, by tokio's rules: of the calls that poll,
//! the last waits for reading, and the last for writing; of the others each one does.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker, ready};

use lightwait_core::Readiness;

/// The wakers of one socket.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    reader: Option<Waker>,
    writer: Option<Waker>,
    others: Vec<Other>,
    next: u64,
}

#[derive(Debug)]
struct Other {
    number: u64,
    wanted: Readiness,
    waker: Waker,
}

impl Waiters {
    /// Lets the task of `context` wait for data, instead of the one before it.
    pub(super) fn set_reader(&mut self, context: &Context<'_>) {
        set(&mut self.reader, context);
    }

    /// Lets the task of `context` wait for room, instead of the one before it.
    pub(super) fn set_writer(&mut self, context: &Context<'_>) {
        set(&mut self.writer, context);
    }

    /// Lets the task of `context` wait at `number`, or at a new one, which is set.
    fn set_other(&mut self, number: &mut Option<u64>, wanted: Readiness, context: &Context<'_>) {
        let waker = context.waker();
        let known = self.others.iter_mut().find(|other| Some(other.number) == *number);
        match known {
            Some(other) => other.waker.clone_from(waker),
            None => {
                self.others.push(Other { number: self.next, wanted, waker: waker.clone() });
                *number = Some(self.next);
                self.next += 1;
            }
        }
    }

    fn forget(&mut self, number: u64) {
        self.others.retain(|other| other.number != number);
    }

    /// Moves the wakers of those who wait for one of `ways` to `woken`.
    pub(super) fn take(&mut self, ways: Readiness, woken: &mut Vec<Waker>) {
        if ways.contains(Readiness::READABLE) {
            woken.extend(self.reader.take());
        }
        if ways.contains(Readiness::WRITABLE) {
            woken.extend(self.writer.take());
        }
        if !self.others.is_empty() {
            let concerns = |other: &mut Other| other.wanted.without(ways) != other.wanted;
            woken.extend(self.others.extract_if(.., concerns).map(|other| other.waker));
        }
    }
}

fn set(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(known) => known.clone_from(context.waker()),
        none => *none = Some(context.waker().clone()),
    }
}

/// What tasks can wait for.
pub(super) trait Waitable {
    /// Calls `look` with the readiness, the number of changes of it so far, and who waits; nothing
    /// changes meanwhile.
    fn look<R>(&self, look: impl FnOnce(Readiness, u64, &mut Waiters) -> R) -> R;

    /// Ready if it is ready in that one way. Else the task of `context` is the one that waits.
    fn poll_ready(&self, wanted: Readiness, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.look(|readiness, _, waiters| {
            if readiness.contains(wanted) {
                return Poll::Ready(Ok(()));
            }
            match wanted.contains(Readiness::READABLE) {
                true => waiters.set_reader(context),
                false => waiters.set_writer(context),
            }
            Poll::Pending
        })
    }
}

/// A call that waits. Dropping it takes its task from those who wait.
#[derive(Debug)]
pub(super) struct Waiting<'a, S: Waitable> {
    source: &'a S,
    wanted: Readiness,
    number: Option<u64>,
}

impl<'a, S: Waitable> Waiting<'a, S> {
    pub(super) fn new(source: &'a S, wanted: Readiness) -> Self {
        Waiting { source, wanted, number: None }
    }

    /// Waits until the source is ready in a wanted way, or over. Returns its readiness.
    pub(super) async fn ready(&mut self) -> Readiness {
        poll_fn(|context| self.poll(context, None)).await
    }

    /// [`Waiting::ready`] for callers that poll by hand. With the number of changes of an earlier
    /// look, it waits for a change since then.
    pub(super) fn poll(&mut self, context: &Context<'_>, seen: Option<u64>) -> Poll<Readiness> {
        let Waiting { source, wanted, number } = self;
        source.look(|readiness, changes, waiters| {
            let is_ready = readiness.without(*wanted | Readiness::CLOSED) != readiness;
            if is_ready && seen != Some(changes) {
                if let Some(number) = number.take() {
                    waiters.forget(number);
                }
                return Poll::Ready(readiness);
            }
            waiters.set_other(number, *wanted, context);
            Poll::Pending
        })
    }

    /// Calls `call` until it returns a result other than `WouldBlock`. Before each call it waits
    /// until the source is ready in a wanted way, and that has changed since the last one.
    pub(super) async fn call<R>(
        mut self,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut seen = None;
        poll_fn(|context| {
            loop {
                ready!(self.poll(context, seen));
                let changes = self.source.look(|_, changes, _| changes);
                match call() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => seen = Some(changes),
                    result => return Poll::Ready(result),
                }
            }
        })
        .await
    }
}

impl<S: Waitable> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.source.look(|_, _, waiters| waiters.forget(number));
        }
    }
}

/// `Pending` for an error of that kind: the socket has the task's waker.
pub(super) fn pending_if_it_would_block<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}
