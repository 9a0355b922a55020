//! How long a host is held up by those who look at its sockets: the pieces of a walk over all of
//! them, as the admin door of `lightwait serve` asks for.

use std::hint::black_box;
use std::time::Duration;

use lightwait_core::host::{Socket, SocketPlace};
use lightwait_core::{Host, Instant};

use crate::connections::{Pair, Plan};
use crate::sample::processor_time;
use crate::stacks::raw::Short;

/// Walks of each kind; the one whose longest piece is shortest counts: in others interrupts came in
/// between.
const WALKS: usize = 20;

/// The kind of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For sockets that there are none of: their state is all that is asked.
    Search,
    /// Each connection tells all of its state.
    Detail,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Search, Kind::Detail];

    /// Places of a piece, as the door has it.
    pub fn places(self) -> usize {
        match self {
            Kind::Search => 1024,
            Kind::Detail => 128,
        }
    }
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Connections that were seen.
    pub connections: usize,
    /// Pieces.
    pub pieces: usize,
    /// Processor time of all of them together.
    pub whole: Duration,
    /// The longest.
    pub longest: Duration,
    /// As long as 99 in 100 take at most.
    pub usual: Duration,
}

/// A host with so many idle connections, all at rest.
pub fn host(connections: usize) -> Host {
    Short::new(&Plan { idle: connections, time_wait: 0, ..Plan::default() }).into_host()
}

/// Walks over all sockets of `host`, in pieces.
pub fn measure(host: &Host, kind: Kind) -> Outcome {
    let walks = (0..WALKS).map(|_| walk(host, kind));
    walks.min_by_key(|outcome| outcome.longest).expect("there are several")
}

fn walk(host: &Host, kind: Kind) -> Outcome {
    let (mut connections, mut pieces) = (0, Vec::new());
    let mut place = Some(SocketPlace::default());
    let now = Instant::from_millis(1 << 30);
    while let Some(first) = place {
        let begin = processor_time();
        for (following, socket) in host.sockets_from(first).take(kind.places()) {
            place = following;
            let Some(Socket::Connection(connection)) = socket else { continue };
            connections += 1;
            match kind {
                Kind::Search => {
                    black_box((connection.state(), connection.remote()));
                }
                Kind::Detail => {
                    black_box(connection.detail(now));
                }
            }
        }
        pieces.push(processor_time().saturating_sub(begin));
    }
    let whole = pieces.iter().sum();
    pieces.sort_unstable();
    let count = pieces.len();
    let (longest, usual) = (pieces[count - 1], pieces[(count - 1) * 99 / 100]);
    Outcome { connections, pieces: count, whole, longest, usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_sees_every_connection_in_pieces_of_its_size() {
        let host = host(2000);
        for kind in Kind::ALL {
            let outcome = measure(&host, kind);
            assert_eq!(outcome.connections, 2000);
            assert!(outcome.pieces >= 2000 / kind.places() && outcome.pieces < 100, "{outcome:?}");
            assert!(outcome.usual <= outcome.longest && outcome.longest <= outcome.whole);
        }
    }
}
