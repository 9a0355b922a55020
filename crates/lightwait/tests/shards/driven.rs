//! A thing of one's own beside shards, under both drivers.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use lightwait::bridge::SERVER_ADDRESS;
use lightwait::clock::Clock;
use lightwait::driver::{self, Descriptor, Driven, SPIN, Stop};
use lightwait::local::TcpStream;
use lightwait_core::Instant;

use crate::drivers::{echo_once, runtime, shards};
use crate::sockets::{echo_server, pattern};

const PATIENCE: Duration = Duration::from_secs(10);

/// The work that a turn found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A byte at the descriptor.
    Byte(u8),
    /// The posts of another thread.
    Posts(u32),
    /// The deadline had come.
    Time,
}

/// Reports the work that each turn finds: a byte, posts, and 5 ms after posts a deadline.
struct Probe {
    clock: Clock,
    stream: UnixStream,
    posts: Arc<Posts>,
    deadline: Option<Instant>,
    found: mpsc::Sender<Found>,
}

#[derive(Default)]
struct Posts {
    count: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Posts {
    fn post(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waker.lock().unwrap().as_ref().unwrap().wake_by_ref();
    }
}

impl Driven for Probe {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        let mut bytes = [0; 8];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes[..len].iter().for_each(|byte| self.report(Found::Byte(*byte))),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.report(Found::Time);
        }
        let posts = self.posts.count.swap(0, Ordering::Relaxed);
        if posts > 0 {
            self.deadline = Some(now + Duration::from_millis(5));
            self.report(Found::Posts(posts));
        }
        Ok(())
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let has_posts = self.posts.count.load(Ordering::Relaxed) > 0;
        if has_posts { Some(now) } else { self.deadline }
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        visit(Descriptor { fd: self.stream.as_fd(), wants_writable: false });
    }

    fn set_waker(&mut self, waker: &Waker) {
        *self.posts.waker.lock().unwrap() = Some(waker.clone());
    }
}

impl Probe {
    fn report(&self, found: Found) {
        // The other end may have failed, and says so itself.
        let _ = self.found.send(found);
    }
}

/// The other end of a probe, for another thread.
struct Outside {
    stream: UnixStream,
    posts: Arc<Posts>,
    found: mpsc::Receiver<Found>,
}

impl Outside {
    /// Brings work by descriptor and by wake, to a driver that sleeps, and waits until it is found.
    fn bring_work(&mut self) {
        for byte in 0..3 {
            thread::sleep(Duration::from_millis(20));
            self.stream.write_all(&[byte]).unwrap();
            assert_eq!(self.found.recv_timeout(PATIENCE), Ok(Found::Byte(byte)));
            thread::sleep(Duration::from_millis(20));
            self.posts.post();
            assert_eq!(self.found.recv_timeout(PATIENCE), Ok(Found::Posts(1)));
            assert_eq!(self.found.recv_timeout(PATIENCE), Ok(Found::Time));
        }
    }
}

fn probe() -> (Probe, Outside) {
    let (near, stream) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let (report, found) = mpsc::channel();
    let posts = Arc::<Posts>::default();
    let (clock, deadline) = (Clock::new(), None);
    let probe = Probe { clock, stream: near, posts: posts.clone(), deadline, found: report };
    (probe, Outside { stream, posts, found })
}

/// An echo server, a client whose echo ends the returned task, and a probe.
fn all_with(probe: Probe) -> (Vec<Box<dyn Driven>>, lightwait::executor::JoinHandle<()>) {
    let mut shards = shards();
    shards[0].handle().spawn_local(echo_server());
    let echoed = shards[1].handle().spawn_local(async {
        let stream = TcpStream::connect((SERVER_ADDRESS, 7)).await.unwrap();
        echo_once(stream, &pattern(100_000)).await;
    });
    let (client, server) = (shards.pop().unwrap(), shards.pop().unwrap());
    (vec![Box::new(server), Box::new(probe), Box::new(client)], echoed)
}

#[test]
fn a_thread_drives_ones_own_beside_shards() {
    for spin in [Duration::ZERO, SPIN] {
        let ((probe, mut outside), stop) = (probe(), Stop::new());
        let ((mut all, echoed), inner) = (all_with(probe), stop.clone());
        let thread = thread::spawn(move || {
            outside.bring_work();
            inner.set();
            outside
        });
        driver::run(&mut all, &stop, spin).unwrap();
        thread.join().unwrap();
        assert!(echoed.is_finished());
    }
}

#[test]
fn a_runtime_drives_ones_own_beside_shards() {
    runtime().block_on(async {
        let (probe, mut outside) = probe();
        let (all, echoed) = all_with(probe);
        let (done, finished) = tokio::sync::oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            outside.bring_work();
            drop(done);
            outside
        });
        tokio::select! {
            failure = driver::drive(all) => panic!("{failure:?}"),
            _ = finished => (),
        }
        thread.join().unwrap();
        assert!(echoed.is_finished());
    });
}

#[test]
fn the_failure_of_one_ends_the_driver() {
    let (probe, outside) = probe();
    drop(outside);
    let failure = driver::run(&mut [probe], &Stop::new(), SPIN).unwrap_err();
    assert_eq!(failure.kind(), io::ErrorKind::UnexpectedEof);
    let (probe, outside) = self::probe();
    drop(outside);
    let failure = runtime().block_on(driver::drive(vec![probe])).unwrap_err();
    assert_eq!(failure.kind(), io::ErrorKind::UnexpectedEof);
}
