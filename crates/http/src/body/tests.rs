use super::*;
use crate::connection::replay::Origin;
use crate::files::path::resolve;
use crate::files::source::{FileSource, Opened};
use crate::limits::memory::Memory;
use crate::testing::{MemoryFiles, Purse};
use http_body_util::BodyExt;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

async fn body(
    source: MemoryFiles,
    pieces: Vec<Piece>,
    chunk_bytes: usize,
) -> FileBody<MemoryFiles> {
    body_on(Memory::boundless(), source, pieces, chunk_bytes).await
}

async fn body_on(
    memory: Memory,
    source: MemoryFiles,
    pieces: Vec<Piece>,
    chunk_bytes: usize,
) -> FileBody<MemoryFiles> {
    let opened = source.open(&resolve("/f").unwrap().path).await.unwrap();
    let read_time = Rc::new(ReadTime::new(Rc::new(Instant::now)));
    let (source, buffers) = (Rc::new(source), Buffers::new(memory));
    let opening = Rc::new(opening(source, opened));
    let mut body = FileBody::new(opening, pieces, chunk_bytes, buffers, read_time);
    body.begin();
    body
}

/// An open file that may change unseen, so that nothing of it is read twice.
fn opening(source: Rc<MemoryFiles>, opened: Opened<Vec<u8>>) -> Opening<MemoryFiles> {
    let Opened { handle, metadata: version } = opened;
    Opening { source, handle, version, is_settled: false, changed: Rc::default() }
}

/// A transport with a given demand and given room.
#[derive(Default)]
struct Wanting {
    wants: Cell<usize>,
    room: Cell<usize>,
    is_held_back: Cell<bool>,
    supplies: RefCell<Vec<(Duration, bool)>>,
}

impl Sink for Wanting {
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<usize> {
        if self.room.get() == 0 { Poll::Pending } else { Poll::Ready(self.room.get()) }
    }

    fn read_size(&self) -> Option<usize> {
        Some(self.wants.get())
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        self.supplies.borrow_mut().push((read_time, more));
    }

    fn is_held_back(&self) -> bool {
        self.is_held_back.get()
    }

    fn hand_over(&self, _chunk: Chunk, _origin: &Rc<dyn Origin>, _offset: u64) {}
}

/// A body of the file `f` of 100,000 bytes, each of whose reads is done when it has been polled so
/// often before; and a clock, by which a millisecond passes between two looks.
async fn wanted_body(polls: u32) -> (FileBody<MemoryFiles>, Rc<RefCell<Vec<(u64, usize)>>>) {
    let source = MemoryFiles { polls, ..MemoryFiles::new(&[("f", &[7; 100_000])]) };
    let reads = source.reads.clone();
    let opened = source.open(&resolve("/f").unwrap().path).await.unwrap();
    let (begin, looks) = (Instant::now(), Cell::new(0));
    let read_time = Rc::new(ReadTime::new(Rc::new(move || {
        looks.set(looks.get() + 1);
        begin + MS * looks.get()
    })));
    let pieces = vec![Piece::File(0..100_000)];
    let buffers = Buffers::new(Memory::boundless());
    let opening = Rc::new(opening(Rc::new(source), opened));
    (FileBody::new(opening, pieces, 64 << 10, buffers, read_time), reads)
}

const MS: Duration = Duration::from_millis(1);

async fn next_length(body: &mut FileBody<MemoryFiles>) -> usize {
    body.frame().await.unwrap().unwrap().into_data().unwrap().len()
}

#[tokio::test]
async fn a_body_reads_what_its_connection_wants_once_there_is_room() {
    let (mut body, reads) = wanted_body(0).await;
    let sink = Rc::new(Wanting::default());
    sink.wants.set(30_000);
    assert!(reads.borrow().is_empty(), "it is not known how much is wanted");
    body.set_sink(sink.clone());
    assert_eq!(*reads.borrow(), [(0, 30_000)]);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(next_length(&mut body).await, 30_000);
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending(), "there is no room");
    assert_eq!(reads.borrow().len(), 1, "and what is at hand is not read ahead");
    sink.room.set(1);
    sink.wants.set(40_000);
    assert_eq!(next_length(&mut body).await, 40_000);
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 30_000);
    assert_eq!(*reads.borrow(), [(0, 30_000), (30_000, 40_000), (70_000, 30_000)]);
    let at_hand = Duration::ZERO;
    assert_eq!(*sink.supplies.borrow(), [(at_hand, true), (at_hand, true), (at_hand, false)]);
}

#[tokio::test]
async fn on_a_slow_source_a_body_reads_ahead_up_to_the_wanted() {
    let (mut body, reads) = wanted_body(2).await;
    let sink = Rc::new(Wanting::default());
    sink.wants.set(30_000);
    body.set_sink(sink.clone());
    assert_eq!(next_length(&mut body).await, 30_000);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending(), "there is no room");
    assert_eq!(*reads.borrow(), [(0, 30_000)], "as much as is wanted waits already");
    sink.room.set(1);
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending(), "it is being read");
    assert_eq!(reads.borrow()[1..], [(30_000, 15_000), (45_000, 15_000)]);
    // From here on there is no room, and none is needed: one chunk is written, another read.
    sink.room.set(0);
    assert_eq!(next_length(&mut body).await, 15_000);
    assert_eq!(reads.borrow().len(), 3);
    assert_eq!(next_length(&mut body).await, 15_000);
    assert_eq!(reads.borrow()[3..], [(60_000, 15_000)]);
    // The window has grown.
    sink.wants.set(80_000);
    assert_eq!(next_length(&mut body).await, 15_000);
    assert_eq!(reads.borrow()[4..], [(75_000, 25_000)]);
    assert_eq!(next_length(&mut body).await, 25_000);
    assert!(body.is_end_stream());
    let supplies = sink.supplies.borrow();
    assert!(supplies.iter().all(|(read_time, _)| *read_time > Duration::ZERO), "{supplies:?}");
    let more: Vec<bool> = supplies.iter().map(|(_, more)| *more).collect();
    assert_eq!(more, [true, true, true, true, false]);
}

#[tokio::test]
async fn a_body_gives_back_its_read_ahead_and_reads_it_again() {
    let (mut body, reads) = wanted_body(2).await;
    let sink = Rc::new(Wanting::default());
    sink.wants.set(20_000);
    sink.room.set(1);
    body.set_sink(sink.clone());
    assert_eq!(next_length(&mut body).await, 20_000);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    let held = body.buffers.memory.charge(0);
    assert_eq!((reads.borrow().len(), held.total()), (3, 20_480));
    sink.is_held_back.set(true);
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    assert_eq!(held.total(), 0);
    sink.is_held_back.set(false);
    assert_eq!(body.collect().await.unwrap().to_bytes(), [7; 80_000][..]);
    assert_eq!(reads.borrow()[3], (20_000, 10_000));
}

#[test]
fn the_time_of_a_read_is_smoothed() {
    let begin = Instant::now();
    let now = Rc::new(Cell::new(begin));
    let read_time = ReadTime::new(Rc::new({
        let now = now.clone();
        move || now.get()
    }));
    assert_eq!(read_time.get(), Duration::ZERO);
    // What was there before anybody asked for it took less than it seems to have.
    let reads =
        [(80, true, 80), (160, true, 90), (90, true, 90), (170, false, 90), (10, false, 80)];
    for (taken, was_awaited, smoothed) in reads {
        now.set(begin + Duration::from_millis(taken));
        read_time.on_read(begin, was_awaited);
        assert_eq!(read_time.get(), Duration::from_millis(smoothed));
    }
}

fn text(text: &'static str) -> Piece {
    Piece::Text(Bytes::from_static(text.as_bytes()))
}

#[tokio::test]
async fn pieces_arrive_in_order_and_the_hint_is_exact() {
    let source = MemoryFiles::new(&[("f", b"0123456789")]);
    let pieces = vec![text("<"), Piece::File(1..4), text("|"), Piece::File(7..10), text(">")];
    let body = body(source, pieces, 2).await;
    assert_eq!(body.size_hint().exact(), Some(9));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "<123|789>");
}

#[tokio::test]
async fn one_chunk_is_read_ahead_and_never_two() {
    let source = MemoryFiles::new(&[("f", &[7; 100])]);
    let reads = source.reads.clone();
    let mut body = body(source, vec![Piece::File(0..100)], 30).await;
    assert_eq!(*reads.borrow(), [(0, 30)], "the first chunk is under way at once");
    for expected in [[(30, 30)], [(60, 30)], [(90, 10)]] {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.data_ref().unwrap().len(), 30);
        assert_eq!(reads.borrow()[reads.borrow().len() - 1..], expected);
    }
    assert_eq!(body.frame().await.unwrap().unwrap().data_ref().unwrap().len(), 10);
    assert!(body.is_end_stream() && body.frame().await.is_none());
    assert_eq!(reads.borrow().len(), 4);
}

fn held_kib(purse: &Purse) -> usize {
    purse.held.load(Ordering::Relaxed) >> 10
}

#[tokio::test]
async fn where_memory_is_scarce_reads_are_smaller_and_never_ahead() {
    let file = vec![7; 256 << 10];
    // The first read, the size of a chunk, and how much is read ahead of it.
    for (is_scarce, first, chunk_kib, ahead_kib) in [(false, 128, 128, 128), (true, 0, 8, 0)] {
        let purse = Purse::default();
        purse.is_scarce.set(is_scarce);
        let source = MemoryFiles::new(&[("f", &file)]);
        let pieces = vec![Piece::File(0..256 << 10)];
        let mut body = body_on(Memory::new(purse.clone()), source, pieces, 128 << 10).await;
        assert_eq!(held_kib(&purse), first);
        let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((chunk.len() >> 10, held_kib(&purse)), (chunk_kib, chunk_kib + ahead_kib));
        drop(chunk);
        assert_eq!(held_kib(&purse), ahead_kib);
        // The rest arrives whole, and nothing stays charged.
        assert_eq!(body.collect().await.unwrap().to_bytes().len() >> 10, 256 - chunk_kib);
        assert_eq!(held_kib(&purse), 0);
    }
}

#[tokio::test]
async fn without_memory_a_body_reads_its_first_chunk_and_waits() {
    let purse = Purse::default();
    purse.is_scarce.set(true);
    purse.is_empty.set(true);
    let file: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
    let source = MemoryFiles::new(&[("f", &file)]);
    let reads = source.reads.clone();
    let pieces = vec![text("<"), Piece::File(0..10_000), text(">")];
    let mut body = body_on(Memory::new(purse.clone()), source, pieces, 128 << 10).await;
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "<");
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, file[..FIRST_CHUNK_BYTES]);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    assert_eq!(*reads.borrow(), [(0, FIRST_CHUNK_BYTES)]);
    purse.is_empty.set(false);
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(rest, [&file[FIRST_CHUNK_BYTES..], b">"].concat());
}

#[tokio::test]
async fn a_body_that_is_dropped_while_it_reads_holds_nothing() {
    let purse = Purse::default();
    let source = MemoryFiles::new(&[("f", &[7; 100])]);
    let body = body_on(Memory::new(purse.clone()), source, vec![Piece::File(0..100)], 50).await;
    assert!(purse.held.load(Ordering::Relaxed) >= 50);
    drop(body);
    assert_eq!(purse.held.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_file_that_shrinks_fails_the_body() {
    let mut source = MemoryFiles::new(&[("f", b"0123456789")]);
    source.shrunk_to = Some(9);
    let mut body = body(source, vec![Piece::File(0..10)], 5).await;
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "01234");
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn an_empty_file_reads_nothing() {
    let source = MemoryFiles::new(&[("f", b"")]);
    let reads = source.reads.clone();
    let body = body(source, vec![Piece::File(0..0)], 5).await;
    assert!(body.is_end_stream());
    assert!(body.collect().await.unwrap().to_bytes().is_empty() && reads.borrow().is_empty());
}

#[tokio::test]
async fn a_body_reports_what_was_sent_and_whether_it_was_all() {
    let reports = Rc::new(std::cell::RefCell::new(Vec::new()));
    let note = || {
        let reports = reports.clone();
        move |bytes, complete| reports.borrow_mut().push((bytes, complete))
    };
    drop(Body::from(Bytes::from_static(b"abc")).reporting(note()));
    Body::from(Bytes::from_static(b"abc")).reporting(note()).collect().await.unwrap();
    drop(Body::empty().reporting(note()));
    let source = MemoryFiles::new(&[("f", b"0123456789")]);
    let mut half = Body::stream(body(source, vec![Piece::File(0..10)], 5).await).reporting(note());
    half.frame().await.unwrap().unwrap();
    drop(half);
    assert_eq!(*reports.borrow(), [(0, false), (3, true), (0, true), (5, false)]);
}
