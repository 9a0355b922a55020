//! A thread for each direction, in real time.

use super::*;
use lightwait::device::Sink;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// Frames that wait somewhere.
type Row = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A handle on a device in memory, for any thread.
#[derive(Clone, Default)]
struct Line {
    arriving: Row,
    sent: Row,
    /// Every frame has arrived: an error or a panic is next.
    failing: Option<Failing>,
}

#[derive(Clone, Copy, PartialEq)]
enum Failing {
    Error,
    Panic,
}

impl Line {
    fn ends(&self) -> Ends<Line> {
        Ends { receiving: self.clone(), sending: Line { failing: None, ..self.clone() } }
    }

    fn arrive(&self, numbers: std::ops::Range<u32>) {
        let mut arriving = self.arriving.lock().unwrap();
        arriving.extend(numbers.map(|number| [&number.to_be_bytes()[..], &[0; 56]].concat()));
    }

    fn sent(&self) -> Vec<u32> {
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|bytes| u32::from_be_bytes(bytes[..4].try_into().unwrap())).collect()
    }
}

impl Device for Line {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ethernet, 1500)
    }
    fn receive(&mut self, _: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let mut arriving = self.arriving.lock().unwrap();
        let count = arriving.len().min(budget);
        for bytes in arriving.drain(..count) {
            sink(&[RxFrame::plain(&bytes)]);
        }
        match self.failing {
            Some(Failing::Error) if count == 0 => Err(io::Error::other("the cable is cut")),
            Some(Failing::Panic) if count == 0 => panic!("a device's bug"),
            _ => Ok(count),
        }
    }
    fn transmit(&mut self, _: Instant, outbox: &mut Outbox) -> io::Result<()> {
        while let Some(frame) = outbox.front() {
            let mut bytes = Vec::new();
            frame.copy_to(&mut bytes);
            self.sent.lock().unwrap().push_back(bytes);
            outbox.pop();
        }
        Ok(())
    }
}

/// A router between two lines that begins now.
fn router(lines: &[Line; 2], links: [&str; 2], clock: &Clock) -> Router<Line> {
    let links = links.map(|link| link.parse().unwrap());
    let (release, steps) = (Release::Polling, Steps::default());
    Router::new(lines.each_ref().map(Line::ends), links, release, &steps, clock.now())
}

const ALL: [Threads; 2] = [Threads::One, Threads::OneEach];

#[test]
fn two_threads_leave_a_core_for_others() {
    assert_eq!([1, 2, 3, 64].map(|cores| Threads::for_cores(cores).count()), [1, 1, 2, 2]);
}

#[test]
fn both_directions_move_and_are_told_by_their_threads() {
    for threads in ALL {
        let (lines, clock) = ([Line::default(), Line::default()], Clock::new());
        lines[0].arrive(0..100);
        lines[1].arrive(100..300);
        let mut router = router(&lines, ["delay=1ms", "delay=2ms"], &clock);
        let told: Mutex<BTreeMap<usize, ThreadId>> = Mutex::default();
        let tell = |way: Way, _| {
            told.lock().unwrap().insert(way as usize, thread::current().id());
        };
        let until = clock.now() + Duration::from_millis(300);
        let interval = Duration::from_millis(10);
        router.run(threads, &clock, || false, Some(until), interval, tell).unwrap();
        assert!(lines[1].sent().into_iter().eq(0..100) && lines[0].sent().len() == 200);
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 2);
        assert_eq!(told[&0] == told[&1], threads == Threads::One);
        let snapshot = router.snapshot(clock.now());
        assert!(snapshot.elapsed >= Duration::from_millis(300), "{:?}", snapshot.elapsed);
        assert_eq!(snapshot.ways.each_ref().map(|way| way.lateness.packets()), [100, 200]);
    }
}

#[test]
fn the_same_seed_loses_the_same_packets_on_any_threads() {
    let lost = ALL.map(|threads| {
        let (lines, clock) = ([Line::default(), Line::default()], Clock::new());
        lines.iter().for_each(|line| line.arrive(0..1000));
        let mut router = router(&lines, ["loss=50%,seed=1", "loss=50%,seed=2"], &clock);
        let sent = || lines.each_ref().map(Line::sent);
        let counted = || {
            let arriving = lines.each_ref().map(|line| line.arriving.lock().unwrap().len());
            arriving == [0, 0]
        };
        let until = clock.now() + Duration::from_secs(20);
        router
            .run(threads, &clock, counted, Some(until), Duration::from_secs(1), |_, _| ())
            .unwrap();
        while router.turn(|| clock.now()).unwrap() {}
        sent()
    });
    let [one, other] = &lost;
    assert_eq!(one, other);
    assert!((300..700).contains(&one[0].len()) && one[0] != one[1]);
}

#[test]
fn an_error_of_one_direction_ends_both_with_that_error() {
    for (threads, failing) in ALL.into_iter().flat_map(|threads| [(threads, 0), (threads, 1)]) {
        let (mut lines, clock) = ([Line::default(), Line::default()], Clock::new());
        lines[failing].failing = Some(Failing::Error);
        lines[failing].arrive(0..10);
        let mut router = router(&lines, ["", ""], &clock);
        let never = Duration::from_secs(3600);
        let error = router.run(threads, &clock, || false, None, never, |_, _| ()).unwrap_err();
        assert_eq!(error.to_string(), "the cable is cut");
        // What came before it is reported.
        let snapshot = router.snapshot(clock.now());
        assert_eq!(snapshot.ways[failing].counters.pushed, 10);
    }
}

#[test]
fn a_panic_of_one_direction_ends_both_and_goes_on() {
    for failing in 0..2 {
        let panic = thread::spawn(move || {
            let (mut lines, clock) = ([Line::default(), Line::default()], Clock::new());
            lines[failing].failing = Some(Failing::Panic);
            let mut router = router(&lines, ["", ""], &clock);
            let never = Duration::from_secs(3600);
            router.run(Threads::OneEach, &clock, || false, None, never, |_, _| ())
        });
        let panic = panic.join().unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a device's bug"));
    }
}
