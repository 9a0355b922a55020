//! A wire in memory whose ends may be on two threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lightwait_core::frame::in_bursts;
use lightwait_core::{Capabilities, Instant, Outbox};
use rustix::event::{EventfdFlags, eventfd};

use super::{MemoryFrame, Ring};
use crate::device::{Device, Sink};

/// One end of a wire in memory that is `Send`, as [`MemoryDevice`](super::MemoryDevice) is not. Its
/// descriptor becomes readable when frames arrive.
#[derive(Debug)]
pub struct ThreadedMemory {
    capabilities: Capabilities,
    incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
    /// Frames on their way to the host, outside the lock.
    taken: Vec<MemoryFrame>,
}

/// One direction, and the event that frames have come.
#[derive(Debug)]
struct Direction {
    ring: Mutex<Ring>,
    arrived: OwnedFd,
}

impl ThreadedMemory {
    /// Two devices joined by a wire that holds at most `capacity` frames each way. Both have the
    /// same `capabilities`.
    ///
    /// # Errors
    /// If the kernel has no file descriptor left.
    pub fn pair(
        capabilities: Capabilities,
        capacity: usize,
    ) -> io::Result<(ThreadedMemory, ThreadedMemory)> {
        let (there, back) = (Direction::new(capacity)?, Direction::new(capacity)?);
        let end = |incoming: &Arc<Direction>, outgoing: &Arc<Direction>| ThreadedMemory {
            capabilities,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            taken: Vec::new(),
        };
        Ok((end(&back, &there), end(&there, &back)))
    }
}

impl Direction {
    fn new(capacity: usize) -> io::Result<Arc<Direction>> {
        let arrived = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Direction { ring: Mutex::new(Ring::new(capacity)), arrived }))
    }

    /// The lock. A panic under it leaves nothing half-done.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for ThreadedMemory {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, _now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let mut ring = self.incoming.lock();
        let received = ring.waiting.min(budget);
        if received == 0 {
            return Ok(0);
        }
        self.taken.resize_with(received, MemoryFrame::default);
        self.taken.swap_with_slice(&mut ring.in_order()[..received]);
        ring.pop(received);
        if ring.waiting == 0 {
            let _ = rustix::io::read(&self.incoming.arrived, &mut [0u8; 8]);
        }
        drop(ring);
        // The other thread goes on meanwhile.
        in_bursts(self.taken.iter().map(MemoryFrame::as_rx), sink);
        Ok(received)
    }

    fn transmit(&mut self, _now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        if outbox.is_empty() {
            return Ok(());
        }
        let mut ring = self.outgoing.lock();
        let (was_empty, count) = (ring.waiting == 0, outbox.len().min(ring.room()));
        let mut places = ring.push(count);
        outbox.drain(count, |frame| {
            if let Some(place) = places.next() {
                place.carry(frame);
            }
        });
        if was_empty && count > 0 {
            // The counter cannot overflow: it is read before the ring is empty again.
            let _ = rustix::io::write(&self.outgoing.arrived, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        (self.incoming.lock().waiting > 0).then_some(Instant::ZERO)
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.incoming.arrived.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::{Medium, RxFrame};
    use std::thread;

    const NOW: Instant = Instant::ZERO;

    fn push(outbox: &mut Outbox, number: u16) {
        outbox.push().unwrap().head.extend_from_slice(&number.to_be_bytes());
    }

    #[test]
    fn frames_cross_between_threads_in_order() {
        const FRAMES: u16 = 10_000;
        let (mut a, mut b) =
            ThreadedMemory::pair(Capabilities::plain(Medium::Ip, 1500), 64).unwrap();
        let sender = thread::spawn(move || {
            let mut outbox = Outbox::new(32);
            for number in 0..FRAMES {
                push(&mut outbox, number);
                while outbox.len() == 32 || (number == FRAMES - 1 && !outbox.is_empty()) {
                    a.transmit(NOW, &mut outbox).unwrap();
                    thread::yield_now();
                }
            }
        });
        let mut heard = Vec::new();
        while heard.len() < FRAMES.into() {
            let fd = b.wait_on().unwrap();
            let poll = rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN);
            rustix::event::poll(&mut [poll], None).unwrap();
            let mut sink = |frames: &[RxFrame<'_>]| {
                heard.extend(frames.iter().map(|f| u16::from_be_bytes([f.bytes[0], f.bytes[1]])));
            };
            b.receive(NOW, 20, &mut sink).unwrap();
            assert_eq!(b.deadline().is_some(), b.incoming.lock().waiting > 0);
        }
        sender.join().unwrap();
        assert!(heard.into_iter().eq(0..FRAMES));
    }

    #[test]
    fn a_full_ring_leaves_the_rest_in_the_outbox() {
        let (mut a, mut b) =
            ThreadedMemory::pair(Capabilities::plain(Medium::Ip, 1500), 2).unwrap();
        let mut outbox = Outbox::new(8);
        (0..3).for_each(|number| push(&mut outbox, number));
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!(outbox.len(), 1);
        assert_eq!(b.receive(NOW, 8, &mut |_| ()).unwrap(), 2);
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!((outbox.len(), b.receive(NOW, 8, &mut |_| ()).unwrap()), (0, 1));
        assert_eq!(b.receive(NOW, 8, &mut |_| ()).unwrap(), 0);
    }
}
