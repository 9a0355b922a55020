//! Tells subscribers of the crate `tracing` what happens at the edges of connections: opened,
//! accepted, closed, ended by the peer or by time, and limits that were reached. Nothing is told of
//! a segment. Without the feature `tracing` there is nothing of this.
//!
//! The target of all events is `lightwait`. Those of connections are of level DEBUG, failures of
//! INFO, limits of WARN.

use std::io;
use std::net::SocketAddr;

use lightwait_core::counters::Counters;
use lightwait_core::tcp::State;
use lightwait_core::time::Duration;
use lightwait_core::{ConnectionId, Host, Instant};
use tracing::{Level, debug, enabled, info, warn};

/// The target of the events.
const TARGET: &str = "lightwait";

/// Counters of limits, and of what an operator should hear of.
const LIMITS: [&str; 12] = [
    "accept_overflows",
    "address_conflicts",
    "connections_over_limit",
    "cookies_sent",
    "messages_lost",
    "orphans_over_limit",
    "ports_exhausted",
    "receive_pool_empty",
    "reset_for_memory_closed_window",
    "reset_for_memory_orphan",
    "reset_for_memory_slow",
    "time_wait_evicted",
];

/// The time between two looks at the counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// A connection was accepted.
pub(crate) fn accepted(host: &Host, id: ConnectionId, peer: SocketAddr) {
    if enabled!(target: TARGET, Level::DEBUG)
        && let Ok(local) = host.local_address(id)
    {
        debug!(target: TARGET, %local, %peer, "accepted");
    }
}

/// A connection of ours was opened, or could not be.
pub(crate) fn opened(peer: SocketAddr, result: &io::Result<()>) {
    match result {
        Ok(()) => debug!(target: TARGET, %peer, "opened"),
        Err(error) => info!(target: TARGET, %peer, %error, "not opened"),
    }
}

/// The user of a connection is about to leave it.
pub(crate) fn left(host: &mut Host, id: ConnectionId) {
    if !enabled!(target: TARGET, Level::INFO) {
        return;
    }
    let Ok(told) = host.info(id) else { return };
    let ends = host.local_address(id).ok().zip(host.peer_address(id).ok());
    let (local, peer) = ends.unzip();
    let (local, peer) = (local.map(tracing::field::display), peer.map(tracing::field::display));
    let (state, retransmits) = (told.state.name(), told.retransmits);
    match host.take_error(id) {
        Some(error) => {
            info!(target: TARGET, local, peer, %error, retransmits, "ended");
        }
        None if told.state == State::Closed => debug!(target: TARGET, retransmits, "over"),
        None => {
            let (sent, received) = (told.acknowledged_bytes, told.received_bytes);
            debug!(target: TARGET, local, peer, state, sent, received, retransmits, "closed");
        }
    }
}

/// Notices when limits were reached.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    last: Counters,
    next: Instant,
}

impl Limits {
    /// Tells of limits that were reached since the last time, once a second.
    pub(crate) fn look(&mut self, host: &Host, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        let counters = *host.counters();
        if enabled!(target: TARGET, Level::WARN) && counters != self.last {
            for ((name, is), (_, was)) in counters.iter().zip(self.last.iter()) {
                let more = is.wrapping_sub(was);
                if more > 0 && LIMITS.contains(&name) {
                    warn!(target: TARGET, counter = name, more, "limit");
                }
            }
        }
        self.last = counters;
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write as _};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::Stack;
    use crate::local::{TcpListener, TcpStream};

    #[test]
    fn each_limit_has_a_counter_of_that_name() {
        let counters = Counters::default();
        let names: Vec<_> = counters.iter().map(|(name, _)| name).collect();
        for limit in LIMITS {
            assert!(names.contains(&limit), "{limit}");
        }
    }

    /// Keeps a line for each event.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == TARGET
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_connection_tells_its_edges_and_nothing_of_its_segments() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let (server, client) = Stack::memory().unwrap();
            let at = (server.address(), 7);
            let listener = TcpListener::bind_on(&server.handle(), at).unwrap();
            server.spawn_local(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut all = vec![0; 1_000_000];
                    stream.read_exact(&mut all).await.unwrap();
                    stream.write_all(b"done").await.unwrap();
                }
            });
            let ran = crate::run([client, server], async move {
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream.write_all(&vec![7; 1_000_000]).await.unwrap();
                stream.read_exact(&mut [0; 4]).await.unwrap();
                drop(stream);
                assert!(TcpStream::connect((at.0, 8)).await.is_err(), "nobody listens");
                crate::rt::sleep(Duration::from_millis(50)).await;
            });
            ran.unwrap();
        });
        let lines = lines.0.lock().unwrap().clone();
        let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
        assert_eq!(count("message=accepted"), 1, "{lines:?}");
        assert_eq!((count("message=opened"), count("message=not opened")), (1, 1), "{lines:?}");
        assert_eq!(count("sent=1000000"), 1, "{lines:?}");
        assert!((4..10).contains(&lines.len()), "{lines:?}");
    }
}
