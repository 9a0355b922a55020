//! The connections of each client, over all servers that are one to it. A server that has no place
//! for a client's next connection asks the others: one of them may have a connection that waits.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

const PARTS: usize = 32;
/// Asks that wait for a server at most: one that is busy for so long is passed over.
const ASKS: usize = 64;

/// The connections of each client. Clones share them: the servers of several shards, which are one
/// to their clients.
#[derive(Clone, Debug, Default)]
pub struct Clients(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// By the client's hash. Two shards seldom meet at one lock, which a connection takes twice.
    parts: [Mutex<Part>; PARTS],
    /// The servers that can be asked.
    servers: Mutex<Vec<Sender<Ask>>>,
    /// The server that is asked first is the next one each time.
    turn: AtomicUsize,
}

#[derive(Debug, Default)]
struct Part {
    /// How many connections each client has.
    held: HashMap<IpAddr, usize>,
    /// Those who wait until a client has one less.
    waiting: HashMap<IpAddr, Vec<Waker>>,
}

/// Asks one server after the other to give up a connection of that client's.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) client: IpAddr,
    /// The server to ask next.
    next: usize,
    /// How many are left to be asked.
    left: usize,
    granted: oneshot::Sender<()>,
}

impl Ask {
    /// One of the client's connections is closing.
    pub(super) fn grant(self) {
        // The asker may have given up.
        let _ = self.granted.send(());
    }
}

impl Clients {
    fn part(&self, client: IpAddr) -> MutexGuard<'_, Part> {
        let bits = match client {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            // The lower half is no client's own.
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let part = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        // A panic under a lock leaves nothing half-done.
        self.0.parts[part as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections that client has.
    pub(super) fn held(&self, client: IpAddr) -> usize {
        self.part(client).held.get(&client).copied().unwrap_or(0)
    }

    /// Counts one more connection; false if the client has as many as `most`.
    pub(super) fn enter(&self, client: IpAddr, most: usize) -> bool {
        self.part(client).enter(client, most)
    }

    /// Counts one more connection once the client has fewer than `most`.
    pub(super) async fn enter_later(&self, client: IpAddr, most: usize) {
        poll_fn(|cx| {
            let mut part = self.part(client);
            if part.enter(client, most) {
                return Poll::Ready(());
            }
            let waiting = part.waiting.entry(client).or_default();
            // All are woken together, so those that have gone do not pile up for long.
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Counts one connection less.
    pub(super) fn leave(&self, client: IpAddr) {
        let woken = {
            let mut part = self.part(client);
            if let Some(held) = part.held.get_mut(&client) {
                *held -= 1;
                if *held == 0 {
                    part.held.remove(&client);
                }
            }
            part.waiting.remove(&client)
        };
        woken.into_iter().flatten().for_each(Waker::wake);
    }

    /// Adds a server that can be asked. Returns what it is asked.
    pub(super) fn join(&self) -> Receiver<Ask> {
        let (sender, asks) = mpsc::channel(ASKS);
        self.servers().push(sender);
        asks
    }

    /// True if there are servers that can be asked.
    pub(super) fn are_shared(&self) -> bool {
        self.servers().len() > 1
    }

    /// Asks the servers. The receiver fails if none of them has a connection to give up.
    pub(super) fn ask(&self, client: IpAddr) -> oneshot::Receiver<()> {
        let (granted, grant) = oneshot::channel();
        let next = self.0.turn.fetch_add(1, Ordering::Relaxed);
        let left = self.servers().len();
        self.pass(Ask { client, next, left, granted });
        grant
    }

    /// Hands an ask to the next server, or drops it where none is left.
    pub(super) fn pass(&self, mut ask: Ask) {
        let servers = self.servers();
        while ask.left > 0 && !servers.is_empty() {
            let server = &servers[ask.next % servers.len()];
            ask = Ask { next: ask.next.wrapping_add(1), left: ask.left - 1, ..ask };
            match server.try_send(ask) {
                Ok(()) => return,
                Err(refused) => ask = refused.into_inner(),
            }
        }
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Sender<Ask>>> {
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |part: &Mutex<Part>| {
            let part = part.lock().expect("nobody panics");
            part.held.is_empty() && part.waiting.is_empty()
        };
        self.0.parts.iter().all(is_empty)
    }
}

impl Part {
    fn enter(&mut self, client: IpAddr, most: usize) -> bool {
        let held = self.held.entry(client).or_default();
        let is_below = *held < most;
        *held += usize::from(is_below);
        is_below
    }
}
