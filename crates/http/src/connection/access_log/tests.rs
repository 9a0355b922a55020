use super::*;
use crate::limits::memory::Memory;
use crate::testing::peer;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{Empty, Full};
use std::cell::Cell;
use std::task::Waker;

/// A transport whose peer the test plays.
#[derive(Default)]
struct Script {
    delivery: Cell<Option<Delivery>>,
    asked: Cell<u32>,
}

impl Wire for Script {
    fn delivery(&self) -> Option<Delivery> {
        self.delivery.get()
    }

    fn poll_acknowledged(&self, _cx: &mut Context<'_>) -> Poll<()> {
        self.asked.update(|asked| asked + 1);
        Poll::Pending
    }
}

/// A log, its transport, and the records that it has written.
struct Scene {
    log: AccessLog,
    wire: Rc<Script>,
    phase: Phase,
    now: Rc<Cell<Instant>>,
    records: Rc<RefCell<Vec<Access>>>,
    memory: Memory,
}

fn scene() -> Scene {
    let (now, phase) = (Rc::new(Cell::new(Instant::now())), Phase::new(Instant::now()));
    let (wire, records) = (Rc::new(Script::default()), Rc::<RefCell<Vec<Access>>>::default());
    let (time, written, memory) = (now.clone(), records.clone(), Memory::boundless());
    let admissions =
        AdmissionControl::new(&Default::default(), memory.clone(), crate::Clients::default());
    let hook = Rc::new(move |access| written.borrow_mut().push(access));
    let log = AccessLog::new(
        hook,
        peer(),
        Rc::new(move || time.get()),
        wire.clone(),
        phase.clone(),
        admissions,
    );
    wire.delivery.set(Some(Delivery::default()));
    Scene { log, wire, phase, now, records, memory }
}

impl Scene {
    /// Begins a response.
    fn begin(&self) -> Entry {
        let mut entry = self.log.begin(Access::new(peer(), "GET / HTTP/1.1".into()));
        self.log.on_head(&mut entry, &Response::new(Empty::<Bytes>::new()));
        entry
    }

    /// The transport takes `bytes` more.
    fn take(&self, bytes: u64) {
        self.phase.on_written(bytes as usize);
        self.wire.delivery.update(|delivery| {
            delivery.map(|delivery| Delivery {
                unacknowledged: delivery.unacknowledged + bytes,
                ..delivery
            })
        });
    }

    /// A whole response of a `body`, with a head of as many bytes as `on_head` counts.
    fn respond(&self, body: u64) {
        let entry = self.begin();
        self.take(entry.head_bytes + body);
        self.log.on_over(entry, body, true);
    }

    /// The peer has all but so many bytes, after a while.
    fn acknowledge_but(&self, unacknowledged: u64) {
        self.now.update(|now| now + Duration::from_millis(5));
        self.wire
            .delivery
            .update(|delivery| delivery.map(|delivery| Delivery { unacknowledged, ..delivery }));
    }

    fn poll(&self) -> usize {
        self.log.poll(&mut Context::from_waker(Waker::noop()), true);
        self.records.borrow().len()
    }
}

#[test]
fn a_record_waits_for_the_last_byte_to_be_acknowledged() {
    let scene = scene();
    scene.respond(1000);
    assert_eq!(scene.poll(), 0);
    scene.acknowledge_but(1);
    assert_eq!((scene.poll(), scene.wire.asked.get()), (0, 2));
    scene.acknowledge_but(0);
    assert_eq!((scene.poll(), scene.wire.asked.get()), (1, 2));
    let record = &scene.records.borrow()[0];
    assert_eq!((record.body_bytes, record.complete), (1000, true));
    assert_eq!(record.duration, Duration::from_millis(10));
}

#[test]
fn a_response_behind_does_not_hold_one_up() {
    let scene = scene();
    scene.respond(1000);
    scene.respond(500);
    scene.acknowledge_but(501);
    assert_eq!(scene.poll(), 1, "the head of the second is acknowledged in part");
    scene.log.finish();
    let records = scene.records.borrow();
    assert_eq!(records.iter().map(|record| record.body_bytes).collect::<Vec<_>>(), [1000, 0]);
    assert_eq!(records.iter().map(|record| record.complete).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_response_that_is_cut_short_has_what_was_acknowledged() {
    let (flushed, held) = (scene(), scene());
    // All of it is in the transport.
    flushed.respond(200_000);
    flushed.poll();
    flushed.acknowledge_but(69_000);
    // hyper holds the rest, or the file was not read to its end.
    let entry = held.begin();
    held.take(entry.head_bytes + 140_000);
    held.log.on_over(entry, 200_000, false);
    held.acknowledge_but(9_000);
    for scene in [flushed, held] {
        scene.log.finish();
        let record = &scene.records.borrow()[0];
        assert_eq!((record.body_bytes, record.complete), (131_000, false));
    }
}

#[test]
fn no_more_than_the_head_is_no_byte_of_the_body() {
    let scene = scene();
    let entry = scene.begin();
    scene.take(10);
    scene.log.on_over(entry, 0, false);
    scene.log.finish();
    assert_eq!(scene.records.borrow()[0].body_bytes, 0);
    let scene = self::scene();
    let mut response = Response::new(Empty::<Bytes>::new());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert("content-length", "9".parse().unwrap());
    let mut entry = scene.begin();
    entry.on_head(&response);
    assert_eq!(
        entry.head_bytes,
        "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n".len() as u64
    );
}

#[test]
fn retransmissions_before_a_response_are_not_its_own() {
    let scene = scene();
    let path = |retransmits| Delivery {
        retransmits,
        srtt: Duration::from_millis(7),
        ..scene.wire.delivery.get().unwrap()
    };
    scene.wire.delivery.set(Some(path(3)));
    scene.respond(10);
    scene.wire.delivery.set(Some(path(5)));
    scene.acknowledge_but(0);
    scene.poll();
    let record = &scene.records.borrow()[0];
    assert_eq!((record.retransmits, record.srtt), (Some(2), Some(Duration::from_millis(7))));
}

#[test]
fn a_transport_that_cannot_tell_has_its_record_at_once() {
    let scene = scene();
    scene.wire.delivery.set(None);
    scene.respond(10);
    let record = &scene.records.borrow()[0];
    assert_eq!((record.body_bytes, record.complete, record.srtt), (10, true, None));
}

#[test]
fn records_are_bounded_and_their_memory_is_charged() {
    let scene = scene();
    for waiting in 1..=WAITING_MAX + 1 {
        scene.respond(1);
        assert_eq!(scene.records.borrow().len(), waiting.saturating_sub(WAITING_MAX));
    }
    let charge = scene.memory.charge_connection(0);
    assert!(charge.total() >= WAITING_MAX * size_of::<Waiting>());
    scene.log.finish();
    assert_eq!((charge.total(), scene.records.borrow().len()), (0, WAITING_MAX + 1));
    assert!(scene.log.is_empty());
}

#[test]
fn what_hyper_adds_to_a_head_is_no_byte_of_the_body() {
    let scene = scene();
    let mut entry = scene.begin();
    let mut response = Response::new(Full::<Bytes>::from("a body"));
    for option in ["client-close", "close"] {
        response.headers_mut().append("connection", option.parse().unwrap());
    }
    entry.on_head(&response);
    let head = "HTTP/1.1 200 OK\r\nconnection: client-close, close\r\ncontent-length: 6\r\n\r\n";
    assert_eq!(entry.head_bytes, head.len() as u64);
}
