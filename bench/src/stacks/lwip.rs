//! lwIP, back to back in memory, as Debian builds it: its memory from `malloc`, as much as it
//! wants, segments of 1460 bytes, a window and a send buffer of 64 KiB, every checksum computed and
//! verified; no timestamps, no SACK. It is driven through its raw API without a thread of its own.
//!
//! It is made of global variables, so that client and server are on one instance and share its
//! lists. TIME-WAIT takes 120 s there, in ticks of 500 ms: that is not waited for, the oldest
//! beyond as many as are wanted end at once.

mod bulk;
mod memory;
mod pingpong;
mod short;

pub use bulk::Bulk;
pub use memory::memory;
pub use pingpong::PingPong;
pub use short::Short;

use std::time::Duration;

use lightwait_lwip::{End, Instance, Purpose};

use super::watch::Watch;

/// How often lwIP wants to hear of the time.
const TICK: Duration = Duration::from_millis(250);

/// Both ends, and their time.
#[derive(Debug)]
struct Ends {
    lwip: Instance,
    now: Duration,
    ticks: u32,
    watch: Watch,
}

impl Ends {
    fn new(purpose: Purpose) -> Ends {
        let mut lwip = Instance::begin();
        lwip.set_purpose(purpose);
        Ends { lwip, now: Duration::ZERO, ticks: 0, watch: Watch::new() }
    }

    /// A turn of each end, `later`; before the client's, so many connections are open.
    fn turn(&mut self, later: Duration, open: u64) {
        self.now += later;
        let begin = self.watch.read();
        self.lwip.deliver(End::Server);
        let between = self.watch.read();
        self.lwip.deliver(End::Client);
        while self.lwip.opened() < open {
            self.lwip.open();
        }
        while self.now >= TICK * (self.ticks + 1) {
            self.ticks += 1;
            self.lwip.tick();
        }
        self.watch.turn_over(begin, between);
    }

    fn check(&self) {
        assert_eq!(self.lwip.faults(), 0);
    }
}
