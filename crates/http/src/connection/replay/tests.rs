//! Reading file data again: the peer receives the same bytes whatever is taken back.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use proptest::prelude::*;
use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::files::path::RelativePath;
use crate::files::source::{Entries, Metadata, OpenError, Opened, ReadBuffer};
use crate::limits::memory::Memory;
use crate::testing::{MemoryFiles, Purse, clock, peer};
use crate::{Files, FilesConfig, Server, ServerConfig};

const ROOM: usize = 60_000;

/// A transport that the test plays, and whose peer takes what the test says.
#[derive(Default)]
struct State {
    requests: Vec<u8>,
    /// The held bytes; the first of them were sent.
    held: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    is_wanted_back: bool,
    taken_back: usize,
    /// Bytes of chunks that it adopted; `None`: it adopts none.
    adopted: Option<usize>,
    /// Chunks that it shares, if it adopts any.
    borrowed: Vec<Bytes>,
    is_reset: bool,
    wakers: Vec<Waker>,
}

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<State>>);

impl Wire {
    fn wake(&self) {
        let wakers = std::mem::take(&mut self.0.borrow_mut().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The peer takes up to `most` bytes.
    fn take(&self, most: usize) {
        let mut state = self.0.borrow_mut();
        let count = most.min(state.held.len());
        let taken: Vec<u8> = state.held.drain(..count).collect();
        state.received.extend(taken);
        state.sent = state.sent.saturating_sub(count);
        drop(state);
        self.wake();
    }

    /// Memory is short, and that many bytes were sent.
    fn want_back(&self, sent: usize) {
        let mut state = self.0.borrow_mut();
        state.sent = state.sent.max(sent.min(state.held.len()));
        state.is_wanted_back = true;
        drop(state);
        self.wake();
    }

    fn write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        let count = bytes.len().min(ROOM.saturating_sub(state.held.len()));
        if count == 0 && !bytes.is_empty() {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        state.held.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.requests.is_empty() {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        let count = out.remaining().min(state.requests.len());
        out.put_slice(&state.requests.drain(..count).collect::<Vec<u8>>());
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.write(cx, slice) {
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if written == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Control for Wire {
    fn abort(&self) {
        self.0.borrow_mut().is_reset = true;
    }

    fn is_closed(&self) -> bool {
        self.0.borrow().is_reset
    }

    fn wake_when_closed(&self, cx: &Context<'_>) {
        self.0.borrow_mut().wakers.push(cx.waker().clone());
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.0.borrow_mut();
        let room = ROOM.saturating_sub(state.held.len());
        if room == 0 {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(room)
    }

    fn adopt(&self, chunk: &Bytes) -> bool {
        let State { held, adopted, .. } = &mut *self.0.borrow_mut();
        let Some(adopted) = adopted.as_mut().filter(|_| held.len() < ROOM) else { return false };
        held.extend_from_slice(chunk);
        *adopted += chunk.len();
        true
    }

    fn borrow(&self, chunk: &Bytes) -> bool {
        let State { held, adopted, borrowed, .. } = &mut *self.0.borrow_mut();
        if adopted.is_none() || held.len() >= ROOM {
            return false;
        }
        held.extend_from_slice(chunk);
        borrowed.push(chunk.clone());
        true
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        Some(self.0.borrow().held.len())
    }

    fn is_wanted_back(&self) -> bool {
        self.0.borrow().is_wanted_back
    }

    fn take_back(&self, most: usize) -> usize {
        let mut state = self.0.borrow_mut();
        state.is_wanted_back = false;
        let taken = most.min(state.held.len() - state.sent);
        let rest = state.held.len() - taken;
        state.held.truncate(rest);
        state.taken_back += taken;
        taken
    }

    fn poll_taken(&self, cx: &mut Context<'_>, kept: usize) -> Poll<()> {
        let mut state = self.0.borrow_mut();
        if state.held.len() < kept || state.held.is_empty() {
            return Poll::Ready(());
        }
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}

/// Files in memory, which may change.
#[derive(Clone)]
struct Changing {
    files: MemoryFiles,
    has_changed: Rc<Cell<bool>>,
}

impl Changing {
    fn new() -> Changing {
        let large: Vec<u8> = (0..300_000usize).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
        let files = MemoryFiles::new(&[("large", &large), ("small", b"a small file")]);
        Changing { files, has_changed: Rc::default() }
    }
}

impl FileSource for Changing {
    type Handle = Vec<u8>;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<Vec<u8>>, OpenError>> {
        self.files.open(path)
    }

    fn read_at(
        &self,
        handle: &Vec<u8>,
        offset: u64,
        buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        self.files.read_at(handle, offset, buffer)
    }

    fn metadata(&self, handle: &Vec<u8>) -> io::Result<Metadata> {
        let metadata = self.files.metadata(handle)?;
        let later = |at| at + Duration::from_secs(u64::from(self.has_changed.get()));
        Ok(Metadata { modified: metadata.modified.map(later), ..metadata })
    }

    fn list<T: Send + 'static>(
        &self,
        handle: &Vec<u8>,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        self.files.list(handle, limit, make)
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        Box::pin(std::future::ready(Some(work())))
    }
}

/// The peer's actions, and the changes in memory.
#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    WantBack(usize),
    Turn(u8),
}

const ALL: &str = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /large HTTP/1.1\r\nHost: h\r\nRange: bytes=7-99,5000-170000,200-250000\r\n\r\n\
    GET /small HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

const ONE: &str = "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// Serves the requests while the steps are done, and then until the peer has taken all. Returns the
/// state of the transport; `adopts`: it adopts chunks.
fn serve(
    source: Changing,
    requests: &str,
    (steps, adopts): (&[Step], bool),
    when_done: impl Fn(),
) -> State {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let wire = Wire::default();
    let (requests, adopted) = (requests.as_bytes().to_vec(), adopts.then_some(0));
    *wire.0.borrow_mut() = State { requests, adopted, ..State::default() };
    LocalSet::new().block_on(&runtime, async {
        let files = Files::new(source, FilesConfig::default(), clock());
        let server = Rc::new(Server::new(files, ServerConfig::default(), clock()));
        let serving = server.serve_controlled(wire.clone(), wire.clone(), peer());
        let serving = tokio::task::spawn_local(serving);
        for step in steps {
            match step {
                Step::Take(bytes) => wire.take(*bytes),
                Step::WantBack(sent) => wire.want_back(*sent),
                Step::Turn(times) => {
                    for _ in 0..*times {
                        yield_now().await;
                    }
                }
            }
        }
        when_done();
        for _ in 0..4000 {
            wire.take(5000);
            yield_now().await;
            if serving.is_finished() {
                wire.take(usize::MAX);
                break;
            }
        }
        assert!(serving.is_finished(), "it stands still");
    });
    wire.0.take()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..40_000).prop_map(Step::Take),
        (0usize..70_000).prop_map(Step::WantBack),
        (0u8..20).prop_map(Step::Turn),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn the_peer_gets_the_same_whatever_is_taken_back(steps in steps(), adopts: bool) {
        let expected = serve(Changing::new(), ALL, (&[], false), || ()).received;
        let got = serve(Changing::new(), ALL, (&steps, adopts), || ());
        prop_assert!(!got.is_reset);
        prop_assert_eq!(got.received.len(), expected.len());
        prop_assert!(got.received == expected);
    }

    #[test]
    fn a_file_that_changes_fails_and_is_not_mixed(steps in steps(), adopts: bool) {
        let expected = serve(Changing::new(), ONE, (&[], false), || ()).received;
        let source = Changing::new();
        let has_changed = source.has_changed.clone();
        let got = serve(source, ONE, (&steps, adopts), || has_changed.set(true));
        prop_assert!(expected.starts_with(&got.received));
    }
}

#[test]
fn what_was_not_sent_is_taken_back_and_what_was_is_not() {
    let steps = [Step::Turn(20), Step::WantBack(10_000), Step::Turn(20)];
    let got = serve(Changing::new(), ONE, (&steps, false), || ());
    assert_eq!((got.taken_back, got.is_reset), (ROOM - 10_000, false));
    // The head is not from a file.
    let steps = [Step::Turn(20), Step::WantBack(0), Step::Turn(20)];
    let State { received, taken_back, .. } = serve(Changing::new(), ONE, (&steps, false), || ());
    let head = received.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(taken_back, ROOM - head);
}

#[test]
fn a_file_that_changes_while_held_back_resets_the_connection() {
    let source = Changing::new();
    let has_changed = source.has_changed.clone();
    let steps = [Step::Turn(20), Step::WantBack(10_000), Step::Turn(20)];
    let got = serve(source, ONE, (&steps, false), || has_changed.set(true));
    assert_eq!((got.taken_back, got.is_reset), (ROOM - 10_000, true));
    let expected = serve(Changing::new(), ONE, (&[], false), || ()).received;
    assert_eq!(got.received, expected[..10_000], "what was sent before, and nothing else");
}

/// What is not read again.
struct Unread;

impl Origin for Unread {
    fn read(&self, _: u64, _: usize) -> Pending<io::Result<Bytes>> {
        unreachable!("nothing is taken back")
    }
}

#[test]
fn whole_chunks_are_adopted_and_charged_no_more() {
    let purse = Purse::default();
    let held = purse.held.clone();
    let held = || held.load(Ordering::Relaxed);
    let buffers = Buffers::new(Memory::new(purse));
    let wire = Wire::default();
    wire.0.borrow_mut().adopted = Some(0);
    let (mut record, origin): (_, Rc<dyn Origin>) = (Record::default(), Rc::new(Unread));
    let chunk = buffers.lend(buffers.take(5000));
    let bytes = chunk.bytes.clone();
    record.hand_over(chunk, &origin, 0);
    assert!(!record.pass_on(&bytes[1..], &wire), "a part would keep the whole");
    let copy = bytes.to_vec();
    assert!(!record.pass_on(&copy, &wire), "it is not the chunk");
    assert_eq!(held(), 5120, "a buffer is a little longer");
    assert!(record.pass_on(&bytes, &wire));
    assert!(!record.pass_on(&bytes, &wire), "it is written");
    assert_eq!((held(), wire.0.borrow().held.len()), (120, 5000));
    drop(bytes);
    assert_eq!((held(), buffers.spare_bytes()), (0, 5120));
}

#[test]
fn shared_chunks_stay_charged_until_the_last_share_goes() {
    let purse = Purse::default();
    let held = purse.held.clone();
    let held = || held.load(Ordering::Relaxed);
    let buffers = Buffers::new(Memory::new(purse));
    let wire = Wire::default();
    wire.0.borrow_mut().adopted = Some(0);
    let (mut record, origin): (_, Rc<dyn Origin>) = (Record::default(), Rc::new(Unread));
    let block = buffers.share(buffers.take(8192));
    let part = block.bytes().slice(1000..2000);
    record.hand_over(Chunk::shared(part.clone()), &origin, 1000);
    assert!(record.pass_on(&part, &wire));
    let State { borrowed, adopted, .. } = &*wire.0.borrow();
    assert_eq!((borrowed.len(), *adopted), (1, Some(0)));
    drop((block, part));
    assert_eq!(held(), 8192, "the transport has a share");
}

#[test]
fn a_transport_that_adopts_chunks_gets_all_of_a_file_so() {
    let got = serve(Changing::new(), ONE, (&[], true), || ());
    assert_eq!(got.adopted, Some(300_000));
    assert!(got.received == serve(Changing::new(), ONE, (&[], false), || ()).received);
}
