//! Names of hosts, looked up as tokio does it: by the system's resolver, in threads of their own.
//!
//! The resolver (getaddrinfo) blocks, for seconds if a name server is silent. A few threads of the
//! process call it, so that no shard waits: the task's waker brings the task back. An address needs
//! no thread.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as Std};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::address::ToSocketAddrs;
use crate::answer::{Answer, Answerer, answer};
use crate::shard::state::Local;

/// Threads that look up names, at most; further names wait.
const MOST_THREADS: usize = 4;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// The process's threads, which ask the system.
static SYSTEM: Resolver =
    Resolver::new(|name, port| Ok(Std::to_socket_addrs(&(name, port))?.collect()));

/// Returns the addresses of a host, with tokio's name and signature: those that the system's
/// resolver knows for a name, in its order. The caller's thread does not wait.
///
/// # Errors
///
/// Those of the resolver, with the name. `InvalidInput` if `host` is neither an address nor a name,
/// with a port.
pub async fn lookup_host<T: ToSocketAddrs>(
    host: T,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    addresses_of(&host).await
}

/// The addresses that `host` stands for.
pub(crate) async fn addresses_of<A: ToSocketAddrs>(host: &A) -> io::Result<Addresses<A::Iter>> {
    match host.host_name() {
        None => host.to_socket_addrs().map(Addresses::Given),
        Some((name, port)) => {
            let found = SYSTEM.look_up(name, port)?.await;
            let found = found.unwrap_or_else(|| Err(io::Error::other("the look-up failed")));
            let found = found.map_err(|error| named(name, &error))?;
            Ok(Addresses::Found(found.into_iter()))
        }
    }
}

/// The addresses that `host` stands for, for a socket of that shard, whose own resolver is asked
/// first. Without one a name is refused in virtual time: the answer would come at another time in
/// each run.
pub(crate) async fn addresses_for<A: ToSocketAddrs>(
    shard: &Local,
    host: &A,
) -> io::Result<Addresses<A::Iter>> {
    if let Some((name, port)) = host.host_name()
        && let Some(found) = shard.resolve(name)
    {
        let found = found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{name}: no host has that name"))
        })?;
        return Ok(Addresses::Found(vec![SocketAddr::new(found, port)].into_iter()));
    }
    match host.host_name() {
        Some((name, _)) if shard.is_in_made_time() => {
            let text = format!("{name}: names are not looked up in virtual time; use an address");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        _ => addresses_of(host).await,
    }
}

/// `error`, with the name that it is about.
fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// `error` of an open to `remote`. If no open can go there, and a name led to it, with both.
pub(crate) fn of_name(name: Option<&str>, remote: SocketAddr, error: io::Error) -> io::Error {
    match name {
        Some(name) if error.kind() == io::ErrorKind::InvalidInput => {
            named(&format!("{name} is {}", remote.ip()), &error)
        }
        _ => error,
    }
}

/// Addresses that were given or found.
pub(crate) enum Addresses<I> {
    Given(I),
    Found(std::vec::IntoIter<SocketAddr>),
}

impl<I: Iterator<Item = SocketAddr>> Iterator for Addresses<I> {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Addresses::Given(addresses) => addresses.next(),
            Addresses::Found(addresses) => addresses.next(),
        }
    }
}

type Found = io::Result<Vec<SocketAddr>>;

/// Threads that look up names, started when they are needed.
struct Resolver {
    /// Blocks until the name is known.
    resolve: fn(&str, u16) -> Found,
    queue: Mutex<Queue>,
    added: Condvar,
}

struct Queue {
    requests: VecDeque<Request>,
    threads: usize,
    /// Threads that wait for a request.
    idle: usize,
}

struct Request {
    name: String,
    port: u16,
    answer: Answerer<Found>,
}

impl Resolver {
    const fn new(resolve: fn(&str, u16) -> Found) -> Resolver {
        let queue = Queue { requests: VecDeque::new(), threads: 0, idle: 0 };
        Resolver { resolve, queue: Mutex::new(queue), added: Condvar::new() }
    }

    /// Asks for the addresses of `name`. Fails if no thread can be started.
    fn look_up(&'static self, name: &str, port: u16) -> io::Result<Answer<Found>> {
        let (answerer, answer) = answer();
        let mut queue = locked(&self.queue);
        let request = Request { name: name.to_owned(), port, answer: answerer };
        queue.requests.push_back(request);
        if queue.idle >= queue.requests.len() {
            self.added.notify_one();
        } else if queue.threads < MOST_THREADS {
            let thread = thread::Builder::new().name("lightwait-names".to_owned());
            match thread.spawn(|| self.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    queue.requests.pop_back();
                    return Err(error);
                }
                // The threads that there are will do it.
                Err(_) => {}
            }
        }
        Ok(answer)
    }

    /// Answers requests until there are none for [`IDLE`].
    fn work(&self) {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(request) = queue.requests.pop_front() {
                drop(queue);
                request.answer_by(self.resolve);
                queue = locked(&self.queue);
                continue;
            }
            queue.idle += 1;
            let waited = self.added.wait_timeout(queue, IDLE);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = after;
            queue.idle -= 1;
            if timeout.timed_out() && queue.requests.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

impl Request {
    fn answer_by(self, resolve: fn(&str, u16) -> Found) {
        // Nobody waits any more for what was dropped meanwhile.
        if self.answer.is_wanted() {
            self.answer.give(resolve(&self.name, self.port));
        }
    }
}

/// The lock. A panic under it leaves nothing half-done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn leaked(resolve: fn(&str, u16) -> Found) -> &'static Resolver {
        Box::leak(Box::new(Resolver::new(resolve)))
    }

    #[test]
    fn names_beyond_the_threads_wait_and_are_answered() {
        static BUSY: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let resolver = leaked(|_, port| {
            MOST.fetch_max(BUSY.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            BUSY.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![([192, 0, 2, 1], port).into()])
        });
        let ports = 1..=3 * MOST_THREADS as u16;
        let begin = Instant::now();
        let asked: Vec<_> =
            ports.map(|port| (port, resolver.look_up("h", port).unwrap())).collect();
        assert!(begin.elapsed() < Duration::from_millis(240), "who asks does not wait");
        for (port, asked) in asked {
            assert_eq!(asked.wait().unwrap().unwrap(), [SocketAddr::from(([192, 0, 2, 1], port))]);
        }
        assert_eq!(MOST.load(Ordering::SeqCst), MOST_THREADS);
        assert_eq!(locked(&resolver.queue).threads, MOST_THREADS);
    }

    #[test]
    fn a_thread_that_is_idle_takes_the_next_name() {
        let resolver = leaked(|_, _| Ok(Vec::new()));
        for _ in 0..10 {
            let found = resolver.look_up("h", 1).unwrap().wait().unwrap();
            assert!(found.unwrap().is_empty());
            let begin = Instant::now();
            while locked(&resolver.queue).idle == 0 {
                assert!(begin.elapsed() < PATIENCE);
                thread::yield_now();
            }
        }
        assert_eq!(locked(&resolver.queue).threads, 1);
    }

    #[test]
    fn a_name_that_nobody_waits_for_is_not_looked_up() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let resolver = leaked(|_, _| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            Ok(Vec::new())
        });
        let kept: Vec<_> = (0..MOST_THREADS).map(|_| resolver.look_up("h", 1).unwrap()).collect();
        // Every thread is busy with one of those.
        while ASKED.load(Ordering::SeqCst) < MOST_THREADS {
            thread::yield_now();
        }
        drop(resolver.look_up("dropped", 1).unwrap());
        resolver.look_up("last", 1).unwrap().wait().unwrap().unwrap();
        assert!(kept.into_iter().all(|asked| asked.wait().unwrap().is_ok()));
        assert_eq!(ASKED.load(Ordering::SeqCst), MOST_THREADS + 1);
    }

    #[test]
    fn an_error_names_the_host_and_an_address_needs_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(addresses_of(&"host.invalid:80")).err().unwrap();
        assert!(error.to_string().starts_with("host.invalid: "), "{error}");
        let mut context = Context::from_waker(Waker::noop());
        let asked = std::pin::pin!(addresses_of(&"192.0.2.1:80"));
        let Poll::Ready(Ok(mut found)) = asked.poll(&mut context) else { panic!("it waits") };
        assert_eq!(found.next(), Some(([192, 0, 2, 1], 80).into()));
    }
}
