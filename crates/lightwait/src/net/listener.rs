//! A listening socket with the methods of tokio's `TcpListener`, for any thread.

#[cfg(feature = "axum")]
mod axum;

#[cfg(feature = "axum")]
pub use axum::PeerAddr;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use lightwait_core::Readiness;
use lightwait_core::tcp::SocketOptions;

use super::crossing::{Close, Crossing, Owner, locked, stack_ended};
use super::ledger::Ledger;
use super::pump::{self, with_woken};
use super::waiting::{Waitable, Waiters, Waiting};
use super::{StackHandle, TcpStream, ToSocketAddrs};
use crate::address::no_address;
use crate::local::{self, BACKLOG};
use crate::lookup::addresses_of;
use crate::options::hop_limit;
use crate::shard::Handle;

/// Connections that were handed over and not accepted, at most. More wait in the stack.
const READY: usize = 128;

/// Accepts connections to an address and port. Dropping it resets the connections not yet accepted.
pub struct TcpListener {
    queue: Arc<Queue>,
    address: SocketAddr,
    stack: StackHandle,
}

impl TcpListener {
    /// Listens on the default stack ([`StackHandle::set_default`]). The unspecified address stands
    /// for all of the stack's addresses of that IP version (`[::]` for both versions). The host
    /// picks a port for port 0. A name is looked up, as by [`TcpStream::connect`].
    ///
    /// # Errors
    /// `NotConnected` if there is no default stack, and those of [`TcpListener::bind_on`].
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        TcpListener::bind_on(&StackHandle::default_stack()?, address).await
    }

    /// Listens on that stack.
    ///
    /// # Errors
    /// `AddrInUse` or `AddrNotAvailable`; `ConnectionAborted` if the stack has ended; those of the
    /// look-up of a name.
    pub async fn bind_on<A: ToSocketAddrs>(
        stack: &StackHandle,
        address: A,
    ) -> io::Result<TcpListener> {
        TcpListener::bind_with_backlog(stack, address, BACKLOG).await
    }

    /// Listens on that stack, with room for `backlog` connections not yet accepted.
    ///
    /// # Errors
    /// Those of [`TcpListener::bind_on`].
    pub async fn bind_with_backlog<A: ToSocketAddrs>(
        stack: &StackHandle,
        address: A,
        backlog: usize,
    ) -> io::Result<TcpListener> {
        let mut failure = None;
        for address in addresses_of(&address).await? {
            let listen = || TcpListener::listen(stack, address, backlog, stack.defaults().options);
            let listening = match listen().await {
                // A listener that was dropped just now has the address until the turn's end.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => listen().await,
                listening => listening,
            };
            match listening {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Listens; accepted connections start with `options`. The future is one that may be blocked
    /// on.
    pub(super) fn listen(
        stack: &StackHandle,
        address: SocketAddr,
        backlog: usize,
        options: SocketOptions,
    ) -> Listening {
        let ledger = stack.ledger().clone();
        let asked = stack.ask(move |shard| begin(shard, address, backlog, options, ledger));
        Listening { asked, stack: stack.clone() }
    }

    /// Waits for a connection, and returns it with the peer's address.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut waiting = Waiting::new(&*self.queue, Readiness::READABLE);
        loop {
            waiting.ready().await;
            if let Poll::Ready(accepted) = self.take(None) {
                return accepted;
            }
        }
    }

    /// Polls for a connection that [`TcpListener::accept`] would return. Of several tasks the last
    /// one waits.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.take(Some(context))
    }

    fn take(&self, context: Option<&Context<'_>>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let owner = ready!(self.queue.take(context))?;
        let peer = owner.crossing.addresses()?.peer;
        Poll::Ready(Ok((TcpStream::new(owner, self.stack.clone()), peer)))
    }

    /// The address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    /// Options that accepted connections start with.
    pub fn options(&self) -> SocketOptions {
        locked(&self.queue.state).options
    }

    /// Sets the options of accepted connections whose handshake begins from now on.
    ///
    /// # Errors
    /// `ConnectionAborted` if the stack has ended.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.queue.set_options(options)
    }

    /// TTL, or hop limit, of the packets of accepted connections.
    pub fn ttl(&self) -> io::Result<u32> {
        let default = self.stack.defaults().hop_limit;
        Ok(self.options().hop_limit.unwrap_or(default).into())
    }

    /// Sets the TTL, or hop limit, of the packets of connections accepted from now on.
    ///
    /// # Errors
    /// `InvalidInput` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let hop_limit = Some(hop_limit(ttl)?);
        self.set_options(SocketOptions { hop_limit, ..self.options() })
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A listener to be: the shard listens in its next turn.
pub(super) struct Listening {
    asked: crate::answer::Answer<io::Result<Begun>>,
    stack: StackHandle,
}

impl Listening {
    /// Blocks this thread until the shard listens.
    pub(super) fn wait(self) -> io::Result<TcpListener> {
        listener(self.asked.wait(), self.stack)
    }
}

impl Future for Listening {
    type Output = io::Result<TcpListener>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let begun = ready!(Pin::new(&mut self.asked).poll(context));
        Poll::Ready(listener(begun, self.stack.clone()))
    }
}

fn listener(begun: Option<io::Result<Begun>>, stack: StackHandle) -> io::Result<TcpListener> {
    let mut begun = begun.ok_or_else(stack_ended)??;
    let queue = begun.queue.take().ok_or_else(stack_ended)?;
    Ok(TcpListener { queue, address: begun.address, stack })
}

/// A listener of the shard that nobody has yet: dropping it closes it.
struct Begun {
    queue: Option<Arc<Queue>>,
    address: SocketAddr,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }
}

/// Listens on the shard's thread.
fn begin(
    shard: &Handle,
    address: SocketAddr,
    backlog: usize,
    options: SocketOptions,
    ledger: Arc<Ledger>,
) -> io::Result<Begun> {
    let listener = local::TcpListener::listen(&shard.local, address, backlog, options)?;
    let address = listener.local_addr()?;
    let state = State {
        accepted: VecDeque::new(),
        options,
        has_new_options: false,
        is_closed: false,
        has_ended: false,
        is_queued: true,
        waiters: Waiters::default(),
        changes: 0,
    };
    let queue = Arc::new(Queue { state: Mutex::new(state), task: OnceLock::new() });
    let task = Acceptor { queue: queue.clone(), listener, shard: shard.clone(), ledger };
    let task = shard.spawn_local(task);
    let _ = queue.task.set(task.waker().clone());
    Ok(Begun { queue: Some(queue), address })
}

/// What a listener and its task on the shard share.
struct Queue {
    state: Mutex<State>,
    task: OnceLock<Waker>,
}

struct State {
    accepted: VecDeque<Owner>,
    options: SocketOptions,
    has_new_options: bool,
    /// The application has dropped the listener.
    is_closed: bool,
    /// The stack has.
    has_ended: bool,
    /// The task is woken, and has not looked yet.
    is_queued: bool,
    waiters: Waiters,
    changes: u64,
}

impl Queue {
    /// The next connection. If there is none the task of `context` is the one that waits.
    fn take(&self, context: Option<&Context<'_>>) -> Poll<io::Result<Owner>> {
        let mut state = locked(&self.state);
        match state.accepted.pop_front() {
            Some(owner) => {
                let was_full = state.accepted.len() == READY - 1;
                if was_full {
                    self.notify(state);
                }
                Poll::Ready(Ok(owner))
            }
            None if state.has_ended => Poll::Ready(Err(stack_ended())),
            None => {
                if let Some(context) = context {
                    state.waiters.set_reader(context);
                }
                Poll::Pending
            }
        }
    }

    fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        let mut state = locked(&self.state);
        if state.has_ended {
            return Err(stack_ended());
        }
        (state.options, state.has_new_options) = (options, true);
        self.notify(state);
        Ok(())
    }

    fn close(&self) {
        let mut state = locked(&self.state);
        state.is_closed = true;
        let accepted = std::mem::take(&mut state.accepted);
        self.notify(state);
        for owner in accepted {
            owner.crossing.close(Close::Reset);
        }
    }

    /// Wakes the task, unless it is woken already.
    fn notify(&self, mut state: std::sync::MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.is_queued, true) {
            drop(state);
            if let Some(task) = self.task.get() {
                task.wake_by_ref();
            }
        }
    }
}

impl Waitable for Queue {
    fn look<R>(&self, look: impl FnOnce(Readiness, u64, &mut Waiters) -> R) -> R {
        let mut state = locked(&self.state);
        let is_ready = state.has_ended || !state.accepted.is_empty();
        let readiness = if is_ready { Readiness::READABLE } else { Readiness::EMPTY };
        let changes = state.changes;
        look(readiness, changes, &mut state.waiters)
    }
}

/// The task of a listener on its shard: hands over what the stack accepts.
struct Acceptor {
    queue: Arc<Queue>,
    listener: local::TcpListener,
    shard: Handle,
    ledger: Arc<Ledger>,
}

impl Future for Acceptor {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.queue.state);
        state.is_queued = false;
        if state.is_closed {
            return Poll::Ready(());
        }
        if std::mem::take(&mut state.has_new_options) {
            // Fails for no listener but one that is gone.
            let _ = self.listener.set_options(state.options);
        }
        let mut room = READY.saturating_sub(state.accepted.len());
        drop(state);
        while room > 0 {
            let Poll::Ready(accepted) = self.listener.poll_accept(context) else { break };
            let Ok((stream, _)) = accepted else { return Poll::Ready(()) };
            let options = stream.options().unwrap_or(self.listener.options());
            let crossing = Crossing::open(options, &self.ledger);
            // One that is over already is nobody's.
            if let Ok(owner) = pump::begin(&self.shard, stream, crossing) {
                self.hand_over(owner);
                room -= 1;
            }
        }
        Poll::Pending
    }
}

impl Acceptor {
    fn hand_over(&self, owner: Owner) {
        let mut state = locked(&self.queue.state);
        if state.is_closed {
            drop(state);
            owner.crossing.close(Close::Reset);
            return;
        }
        state.accepted.push_back(owner);
        state.changes += 1;
        with_woken(|woken| state.waiters.take(Readiness::READABLE, woken));
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // Before the application has dropped the listener, only the shard's end drops the task.
        let mut state = locked(&self.queue.state);
        state.has_ended = true;
        let accepted = std::mem::take(&mut state.accepted);
        with_woken(|woken| state.waiters.take(Readiness::READABLE, woken));
        drop(state);
        drop(accepted);
    }
}
