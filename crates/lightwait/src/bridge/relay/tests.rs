use super::*;
use std::cell::Cell;
use std::future::ready;
use std::task::{Context, Waker};

/// A side that reads from a script and takes `room` bytes of writing at a time.
#[derive(Default)]
struct Script {
    input: RefCell<Vec<io::Result<Vec<u8>>>>,
    output: RefCell<Vec<u8>>,
    room: Cell<usize>,
    is_finished: Cell<bool>,
    waits: Cell<u32>,
}

impl Script {
    fn reading(mut input: Vec<io::Result<Vec<u8>>>) -> Self {
        input.reverse();
        Script { input: RefCell::new(input), ..Script::default() }
    }

    fn taking(room: usize) -> Self {
        Script { room: Cell::new(room), ..Script::default() }
    }
}

impl Side for Script {
    async fn readable(&self) -> io::Result<()> {
        ready(Ok(())).await
    }

    /// Each wait makes room for three more bytes.
    async fn writable(&self) -> io::Result<()> {
        self.waits.set(self.waits.get() + 1);
        self.room.set(self.room.get() + 3);
        ready(Ok(())).await
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let data = self.input.borrow_mut().pop().unwrap_or(Ok(Vec::new()))?;
        buffer[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        let len = data.len().min(self.room.get());
        if len == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room.set(self.room.get() - len);
        self.output.borrow_mut().extend_from_slice(&data[..len]);
        Ok(len)
    }

    fn finish(&self) -> io::Result<()> {
        self.is_finished.set(true);
        Ok(())
    }

    fn reset(&self) {}
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..100 {
        let context = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return output;
        }
    }
    panic!("pending for ever");
}

fn block() -> RefCell<Vec<u8>> {
    RefCell::new(vec![0; 16])
}

#[test]
fn everything_is_copied_in_order_and_the_end_passed_on() {
    let would_block = Err(io::ErrorKind::WouldBlock.into());
    let from = Script::reading(vec![Ok(b"first ".to_vec()), would_block, Ok(b"second".to_vec())]);
    let to = Script::taking(usize::MAX);
    run(pump((&from, &to), &block(), &Cell::default())).unwrap();
    assert_eq!(*to.output.borrow(), b"first second");
    assert!(to.is_finished.get());
    assert_eq!(to.waits.get(), 0);
}

#[test]
fn nothing_more_is_read_before_the_last_block_is_written() {
    let from = Script::reading(vec![Ok(b"0123456789".to_vec()), Ok(b"abc".to_vec())]);
    let to = Script::taking(4);
    run(pump((&from, &to), &block(), &Cell::default())).unwrap();
    assert_eq!(*to.output.borrow(), b"0123456789abc");
    assert_eq!(to.waits.get(), 3, "4 at once, 6 in two waits, 3 in another");
}

#[test]
fn a_failure_ends_it_without_a_fin() {
    let reset = Err(io::ErrorKind::ConnectionReset.into());
    let from = Script::reading(vec![Ok(b"x".to_vec()), reset]);
    let to = Script::taking(usize::MAX);
    let error = run(pump((&from, &to), &block(), &Cell::default())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(!to.is_finished.get());
}

#[test]
fn both_wait_for_both_but_not_after_a_failure() {
    let fail = || async { Err(io::ErrorKind::ConnectionReset.into()) };
    let never = std::future::pending::<io::Result<()>>;
    assert!(run(both(fail(), never(), std::future::pending())).is_err());
    assert!(run(both(never(), fail(), std::future::pending())).is_err());
    // Descriptors are needed, and the stack's side has ended.
    let scarce = std::future::ready(());
    assert!(run(both(never(), async { Ok(()) }, scarce)).is_ok());
    assert!(run(both(async { Ok(()) }, async { Ok(()) }, std::future::pending())).is_ok());
    let mut half = pin!(both(async { Ok(()) }, never(), std::future::ready(())));
    for _ in 0..2 {
        assert!(half.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
