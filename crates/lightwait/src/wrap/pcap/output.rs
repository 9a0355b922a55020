//! The output of a capture's blocks: a writer in place, or one on a thread of its own. A disk or a
//! pipe may stall, and the shard must not.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that wait for a thread to write them, at most: a tenth of a second at a GB/s and more.
const WAITING_BYTES: usize = 16 << 20;

/// Emptied buffers that are kept to be filled again.
const SPARE_BUFFERS: usize = 4;

/// The longest time for which the end waits for unwritten blocks. A pipe's reader may have stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// The writer of blocks.
pub(super) enum Output {
    /// Written when they are handed over.
    Here(Box<dyn Write + Send>),
    /// Written by a thread.
    Thread(Background),
}

/// Whether blocks that were handed over are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// They are written, or will be.
    Yes,
    /// There is no room for them.
    No,
}

impl Output {
    /// Takes whole blocks out of `blocks`, which is empty afterwards.
    ///
    /// # Errors
    /// If this write or an earlier one has failed.
    pub(super) fn write(&mut self, blocks: &mut Vec<u8>) -> io::Result<Taken> {
        match self {
            Output::Here(writer) => {
                let result = writer.write_all(blocks).and_then(|()| writer.flush());
                blocks.clear();
                result.map(|()| Taken::Yes)
            }
            Output::Thread(background) => background.write(blocks),
        }
    }
}

/// A writer on a thread of its own. Dropping it waits until all is written, for a limited time.
pub(super) struct Background {
    /// `None` while it is dropped.
    full: Option<Sender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    waiting_bytes: AtomicUsize,
    /// The error for which the thread has stopped writing.
    failure: Mutex<Option<io::Error>>,
}

impl Background {
    /// Starts a thread that makes a writer and writes to it: opening a pipe may take as long as
    /// writing to it.
    pub(super) fn start<W: Write>(
        make: impl FnOnce() -> io::Result<W> + Send + 'static,
    ) -> io::Result<Background> {
        let (full, blocks) = channel::<Vec<u8>>();
        let (written, empty) = sync_channel(SPARE_BUFFERS);
        let (end, ended) = channel::<()>();
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            let _end = end;
            if let Err(error) = write_all(make, &blocks, &written, &ours) {
                *ours.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })?;
        Ok(Background { full: Some(full), empty, shared, ended })
    }

    fn write(&mut self, blocks: &mut Vec<u8>) -> io::Result<Taken> {
        if self.shared.waiting_bytes.load(Ordering::Relaxed) + blocks.len() > WAITING_BYTES {
            blocks.clear();
            return Ok(Taken::No);
        }
        self.shared.waiting_bytes.fetch_add(blocks.len(), Ordering::Relaxed);
        let mut chunk = self.empty.try_recv().unwrap_or_default();
        std::mem::swap(&mut chunk, blocks);
        match &self.full {
            Some(full) if full.send(chunk).is_ok() => Ok(Taken::Yes),
            _ => Err(self.failure()),
        }
    }

    fn failure(&self) -> io::Error {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().unwrap_or_else(|| io::Error::other("the thread that writes it has ended"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.full = None;
        // No message ever comes: the wait ends when the thread ends, or after `PATIENCE`.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

fn write_all<W: Write>(
    make: impl FnOnce() -> io::Result<W>,
    blocks: &Receiver<Vec<u8>>,
    written: &SyncSender<Vec<u8>>,
    shared: &Shared,
) -> io::Result<()> {
    let mut writer = make()?;
    for mut chunk in blocks {
        writer.write_all(&chunk)?;
        writer.flush()?;
        shared.waiting_bytes.fetch_sub(chunk.len(), Ordering::Relaxed);
        chunk.clear();
        // There are enough spare buffers, or the sender is gone.
        let _ = written.try_send(chunk);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A pipe whose reader takes a chunk when it is asked to.
    struct Slow(std::sync::mpsc::SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.0.send(bytes.to_vec()).map_err(gone)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_reader_holds_nobody_up_and_later_blocks_fit_again() {
        let (pipe, reader) = sync_channel(0);
        let mut output = Output::Thread(Background::start(|| Ok(Slow(pipe))).unwrap());
        let chunk = vec![7; WAITING_BYTES / 4];
        let mut taken = Vec::new();
        for _ in 0..5 {
            taken.push(output.write(&mut chunk.clone()).unwrap());
        }
        assert_eq!(taken, [[Taken::Yes; 4].as_slice(), &[Taken::No]].concat());
        (0..4).for_each(|_| assert!(reader.recv().unwrap() == chunk));
        let begin = Instant::now();
        while output.write(&mut vec![8]).unwrap() == Taken::No {
            assert!(begin.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert_eq!(reader.recv().unwrap(), [8]);
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error() {
        let (pipe, reader) = sync_channel(0);
        let mut output = Output::Thread(Background::start(|| Ok(Slow(pipe))).unwrap());
        drop(reader);
        let error = loop {
            if let Err(error) = output.write(&mut vec![1]) {
                break error;
            }
            std::thread::yield_now();
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_end_waits_for_what_is_not_written_but_not_for_ever() {
        let (pipe, reader) = sync_channel(0);
        let mut output = Output::Thread(Background::start(|| Ok(Slow(pipe))).unwrap());
        output.write(&mut vec![1]).unwrap();
        output.write(&mut vec![2]).unwrap();
        let reading = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            [reader.recv().unwrap(), reader.recv().unwrap()].concat()
        });
        drop(output);
        assert_eq!(reading.join().unwrap(), [1, 2]);

        let (pipe, _reader) = sync_channel(0);
        let mut output = Output::Thread(Background::start(|| Ok(Slow(pipe))).unwrap());
        output.write(&mut vec![1]).unwrap();
        let begin = Instant::now();
        drop(output);
        assert!(begin.elapsed() >= PATIENCE && begin.elapsed() < 5 * PATIENCE);
    }
}
