//! lwIP, back to back in memory, in Debian's build. Its memory comes from `malloc` without a limit.
//! It has segments of 1460 bytes, a window and a send buffer of 64 KiB, computes and verifies every
//! checksum, and has neither timestamps nor SACK. The bench drives its raw API without a thread.
//!
//! It uses global variables, so that client and server are on one instance and share its lists. Its
//! TIME-WAIT takes 120 s, in ticks of 500 ms. The bench does not wait for that: it ends the oldest
//! records beyond the wanted number at once.

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

/// The interval at which lwIP needs the time.
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

    /// Runs a turn of each end, `later` after the last one, and then opens connections until the
    /// client has `open` of them.
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
