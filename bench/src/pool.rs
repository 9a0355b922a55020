//! The pool of pages: what it takes to grant and to release one, alone and while many wait.
//!
//! ```text
//!   the pool alone  take a page ─ give it back
//!   a host, many    memory comes back ─ the host tells the next in line ─ this connection writes
//!   that wait       a page ─ and waits again
//! ```
//!
//! While many wait a grant is two sections: the host finds whose turn it is and tells it, and the
//! connection writes a page and takes its place in line again. The second copies 512 bytes.

use std::net::SocketAddr;

use lightwait_core::buffer::{PagePool, Purpose, SEGMENT_BYTES};
use lightwait_core::config::{PageSize, PoolPolicy, SendRule};
use lightwait_core::time::{Duration, Instant};
use lightwait_core::{
    Capabilities, Config, ConnectionId, Event, Host, ListenerId, Medium, Outbox, RxFrame,
};

use crate::instructions::{self, Uncounted, section};

/// What is counted, and what it is.
pub const OPERATIONS: [(&str, &str); 4] = [
    ("grant", "grant a page, alone"),
    ("release", "release a page, alone"),
    ("next", "find and tell the next of those that wait, by priority"),
    ("write", "its write of a page, and its place in line again"),
];

/// Pages taken and given back alone.
const PAGES: usize = 1000;
/// Pages that come back at a time while others wait, and how often: what the host does once in a
/// turn where memory is short is shared by them. Its look for connections that stall, each half a
/// millisecond, is not among it.
const BACK: usize = 64;
const TURNS: usize = 8;
/// Pages of 512 bytes that each connection holds before it has to wait: with one more its list of
/// pages need not grow.
const HELD: usize = 5;

/// Instructions of each, with so many waiting.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn in_instructions(waiting: usize) -> Result<Vec<(&'static str, f64)>, Uncounted> {
    let mut counts = Vec::new();
    for (name, what) in OPERATIONS {
        let arguments =
            ["pool".to_owned(), format!("--waiting={waiting}"), format!("--section={name}")];
        counts.extend(instructions::count(&arguments)?.map(|count| (what, count)));
    }
    Ok(counts)
}

/// Runs everything once, for callgrind to count what was chosen.
pub fn sections(waiting: usize) {
    alone();
    Crowd::new(waiting).take_turns();
}

fn alone() {
    let mut pool = PagePool::new(4 * PAGES);
    let mut pages = Vec::with_capacity(PAGES);
    // Twice: what is taken first has to be allocated.
    for round in ["", "counted"] {
        let is_counted = !round.is_empty();
        let name = |name| if is_counted { name } else { "" };
        section(name("grant"), PAGES, || {
            for _ in 0..PAGES {
                pages.extend(pool.take(Purpose::More));
            }
        });
        assert_eq!(pages.len(), PAGES);
        section(name("release"), PAGES, || {
            while let Some(page) = pages.pop() {
                pool.put(page);
            }
        });
    }
}

/// A server with many connections that all wait for a page, and their clients.
struct Crowd {
    server: Host,
    client: Host,
    now: Instant,
    /// Connections that hold the pages that come back: those of one in each turn.
    holders: Vec<ConnectionId>,
}

impl Crowd {
    fn new(waiting: usize) -> Crowd {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = |address: &str| {
            let address = format!("{address}/24").parse().expect("an address");
            Config::new(device, address, [7; 32])
        };
        let (mut server, mut client) = (config("10.0.0.2"), config("10.0.0.1"));
        server.limits.page = PageSize::Segment;
        server.limits.pages = waiting * (HELD + 2);
        server.tcp.pool.policy = PoolPolicy::Priority;
        server.tcp.buffers.send_size = SendRule::Los;
        server.tcp.stall.after = Duration::from_secs(3600);
        for config in [&mut server, &mut client] {
            config.limits.connections = 2 * waiting;
        }
        let host = |config| Host::new(config).expect("a configuration that is right");
        let (server, client) = (host(server), host(client));
        let mut crowd =
            Crowd { server, client, now: Instant::from_millis(1000), holders: Vec::new() };
        crowd.fill(waiting);
        crowd
    }

    /// Opens connections, has each hold some pages, and wait for more.
    fn fill(&mut self, waiting: usize) {
        let address = "10.0.0.2:80".parse().expect("an address");
        let listener = self.server.listen(address, waiting).expect("a free port");
        let all: Vec<ConnectionId> =
            (0..waiting).map(|_| self.connect(listener, address)).collect();
        self.holders = (0..TURNS).map(|_| self.connect(listener, address)).collect();
        for id in &all {
            let held = self.server.write(self.now, *id, &[7; HELD * SEGMENT_BYTES]);
            assert_eq!(held, Ok(HELD * SEGMENT_BYTES));
        }
        for holder in &self.holders {
            let data = [7; BACK * SEGMENT_BYTES];
            assert_eq!(self.server.write(self.now, *holder, &data), Ok(data.len()));
        }
        // What they have written leaves, and is not acknowledged.
        self.turn(false);
        self.now = self.now + Duration::from_micros(1);
        // Others hold the rest.
        let limit = waiting * (HELD + 2) * SEGMENT_BYTES;
        self.server.set_memory_elsewhere(limit);
        for id in all {
            assert!(self.server.write(self.now, id, &[7; SEGMENT_BYTES]).is_err());
        }
        self.turn(false);
        while self.server.event().is_some() {}
        let held = self.server.pages_in_use() * SEGMENT_BYTES - limit;
        // From here on a page is free when one comes back.
        self.server.set_memory_elsewhere(limit / 8 * 7 - held);
        self.turn(false);
        while self.server.event().is_some() {}
    }

    /// A new connection, as the server knows it.
    fn connect(&mut self, listener: ListenerId, address: SocketAddr) -> ConnectionId {
        let any = lightwait_core::host::any_local(&address);
        self.client.connect(self.now, any, address).expect("a free port");
        for _ in 0..3 {
            self.turn(true);
        }
        self.server.accept(self.now, listener).expect("a connection")
    }

    /// Both hosts speak; what the server says is heard if `is_heard`.
    fn turn(&mut self, is_heard: bool) {
        for from_server in [false, true] {
            let mut outbox = Outbox::new(1 << 17);
            let host = if from_server { &mut self.server } else { &mut self.client };
            host.emit(self.now, &mut outbox);
            while let Some(frame) = outbox.take() {
                let mut bytes = Vec::new();
                frame.copy_to(&mut bytes);
                let to = if from_server { &mut self.client } else { &mut self.server };
                if is_heard {
                    to.on_frame(self.now, RxFrame::plain(&bytes));
                }
            }
        }
    }

    fn take_turns(&mut self) {
        while let Some(holder) = self.holders.pop() {
            self.server.abort(self.now, holder);
            let mut outbox = Outbox::new(64);
            section("next", BACK, || self.server.emit(self.now, &mut outbox));
            let told = self.told();
            assert_eq!(told.len(), BACK, "one is told for each page");
            let data = [7; 2 * SEGMENT_BYTES];
            let (server, now) = (&mut self.server, self.now);
            let written = section("write", BACK, || {
                let mut write = |id| server.write(now, id, &data) == Ok(SEGMENT_BYTES);
                told.into_iter().filter(|id| write(*id)).count()
            });
            assert_eq!(written, BACK, "each writes a page, and waits again");
            self.turn(false);
            assert!(self.told().is_empty(), "nobody else was told");
        }
    }

    /// The connections that were told to write.
    fn told(&mut self) -> Vec<ConnectionId> {
        let events = std::iter::from_fn(|| self.server.event());
        let ready = |event| match event {
            Event::Ready(id, _) => Some(id),
            _ => None,
        };
        events.filter_map(ready).collect()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_page_serves_one_that_waits() {
        // With fewer, others do not hold as many pages as come back.
        super::sections(1000);
    }
}
