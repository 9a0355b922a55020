//! `/capture`: the frames of a while, as pcapng: of one connection, or of all. One capture at a
//! time, of bounded time and size.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lightwait::wrap::pcap::{Captures, Ends, Keep};
use lightwait_core::tcp::State;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::connections::parts;
use super::questions::Shards;
use crate::filter::{Filter, States};

/// How long a capture takes, unless the request says.
pub(super) const USUAL: Duration = Duration::from_secs(5);
/// The shortest and the longest.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(60);
/// Bytes of an answer, unless the request says, and at most.
const BYTES: usize = 4 << 20;
const BYTES_LEAST: usize = 64 << 10;
const BYTES_MOST: usize = 64 << 20;
/// How long the last frames may take to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Both ends of what is captured, in either direction; `None`: all frames, also those of
    /// neither TCP nor UDP.
    filter: Option<Filter>,
    time: Duration,
    bytes: usize,
}

/// Why there is no capture.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Another one runs.
    Busy,
    /// There is no thread for it.
    Failed(io::Error),
}

/// A capture that is over.
pub(super) struct Captured {
    pub(super) pcapng: Vec<u8>,
    /// It was larger than it may be: the rest is missing.
    pub(super) is_cut: bool,
}

impl Query {
    /// Reads the query of a request's target, or says which part of it is wrong.
    pub(super) fn parse(query: &str) -> Result<Query, String> {
        let mut asked = Query { filter: None, time: USUAL, bytes: BYTES };
        for (key, value) in parts(query) {
            match key {
                "filter" => asked.filter = of_ends(&value)?,
                "seconds" => asked.time = seconds(&value)?,
                "bytes" => {
                    let given = value.parse().ok();
                    let given = given.filter(|it| (BYTES_LEAST..=BYTES_MOST).contains(it));
                    asked.bytes = given.ok_or_else(|| {
                        format!("bytes={value}: give {BYTES_LEAST} to {BYTES_MOST}")
                    })?;
                }
                _ => return Err(format!("{key}: give filter, seconds or bytes")),
            }
        }
        Ok(asked)
    }

    /// Which frames are captured. A connection's are those of either direction.
    fn keep(&self) -> Keep {
        let filter = self.filter.clone();
        Arc::new(move |ends| match (&filter, ends) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(filter), Some(Ends { from, to })) => {
                let has = |local, remote| filter.has(State::Established, local, Some(remote));
                has(from, to) || has(to, from)
            }
        })
    }
}

/// The filter of both ends that a request gives, if it gives one.
pub(super) fn of_ends(value: &str) -> Result<Option<Filter>, String> {
    if value.trim().is_empty() {
        return Ok(None);
    }
    // A frame has no state: naming one would seem to choose by it.
    if value.split_whitespace().any(|word| matches!(word, "state" | "exclude")) {
        return Err(format!("filter={value}: a frame has no state; give its ends"));
    }
    let filter = Filter::parse(value, States::ALL);
    filter.map(Some).map_err(|error| format!("filter={value}: {error}"))
}

/// The time that a request gives.
pub(super) fn seconds(value: &str) -> Result<Duration, String> {
    let given = value.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let given = given.filter(|time| (LEAST..=MOST).contains(time));
    given.ok_or_else(|| format!("seconds={value}: give 0.1 to 60"))
}

/// Captures for the time that is asked for, or until it is full.
pub(super) async fn take(
    captures: &Captures,
    shards: &Shards,
    query: &Query,
) -> Result<Captured, Refusal> {
    let room = Arc::new(Room::default());
    let sink = Sink { room: room.clone(), limit: query.bytes };
    let begun = captures.begin(sink, query.keep()).map_err(Refusal::Failed)?;
    // If the asker leaves, this goes, and the capture ends.
    let begun = begun.ok_or(Refusal::Busy)?;
    let _ = timeout(query.time, room.full.notified()).await;
    let rest = begun.end();
    // With the turn in which it answers, a shard has let go of the capture.
    shards.ask_all(|_| ()).await;
    let written = tokio::task::spawn_blocking(move || drop(rest));
    let _ = timeout(PATIENCE, written).await;
    let mut held = room.held.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Captured { pcapng: std::mem::take(&mut held.bytes), is_cut: held.is_cut })
}

/// What was written so far.
#[derive(Default)]
struct Room {
    held: Mutex<Held>,
    full: Notify,
}

#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Takes whole blocks of a capture, as long as there is room.
struct Sink {
    room: Arc<Room>,
    limit: usize,
}

impl Write for Sink {
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        let mut held = self.room.held.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.limit.saturating_sub(held.bytes.len());
        let fits = if blocks.len() <= left { blocks.len() } else { whole_blocks(blocks, left) };
        held.bytes.extend_from_slice(&blocks[..fits]);
        if fits < blocks.len() {
            held.is_cut = true;
            self.room.full.notify_one();
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of the blocks at the front that end within `most`: each says how long it is, behind its
/// kind, in the byte order of this machine.
fn whole_blocks(blocks: &[u8], most: usize) -> usize {
    let mut end = 0;
    while let Some(length) = blocks.get(end + 4..).and_then(|rest| rest.first_chunk()) {
        let next = end.saturating_add(u32::from_ne_bytes(*length) as usize);
        if next > most || next <= end {
            break;
        }
        end = next;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_bounds_and_says_what_is_wrong() {
        let usual = Query { filter: None, time: USUAL, bytes: BYTES };
        assert_eq!(Query::parse(""), Ok(usual.clone()));
        assert_eq!(Query::parse("filter="), Ok(usual.clone()));
        for query in ["seconds=0.1&bytes=65536", "seconds=60&bytes=67108864"] {
            assert!(Query::parse(query).is_ok(), "{query}");
        }
        for (query, part) in [
            ("seconds=0.09", "seconds=0.09: give 0.1 to 60"),
            ("seconds=60.1", "seconds=60.1: give"),
            ("seconds=-1", "seconds=-1: give"),
            ("bytes=65535", "bytes=65535: give 65536 to 67108864"),
            ("bytes=67108865", "bytes=67108865: give"),
            ("filter=state+established", "filter=state established: a frame has no state"),
            ("filter=dport+x", "filter=dport x: \"x\" is no port"),
            ("time=1", "time: give filter, seconds or bytes"),
        ] {
            let error = Query::parse(query).unwrap_err();
            assert!(error.starts_with(part), "{query}: {error}");
        }
    }

    #[test]
    fn a_filter_means_a_connection_in_both_directions() {
        let query = Query::parse("filter=sport+80+dst+10.0.0.2:4000").unwrap();
        let [ours, peer, other] =
            ["10.0.0.1:80", "10.0.0.2:4000", "10.0.0.2:4001"].map(|end| end.parse().unwrap());
        let keep = query.keep();
        assert!(keep(Some(Ends { from: ours, to: peer })));
        assert!(keep(Some(Ends { from: peer, to: ours })));
        assert!(!keep(Some(Ends { from: ours, to: other })));
        assert!(!keep(None), "what has no ends is not meant");
        assert!(Query::parse("").unwrap().keep()(None));
    }

    #[test]
    fn what_is_kept_ends_with_a_whole_block() {
        let block = |bytes: u32| {
            let mut block = vec![7; bytes as usize];
            block[4..8].copy_from_slice(&bytes.to_ne_bytes());
            block
        };
        let blocks = [block(12), block(40), block(16)].concat();
        for (most, kept) in [(68, 68), (67, 52), (52, 52), (51, 12), (11, 0)] {
            assert_eq!(whole_blocks(&blocks, most), kept, "{most}");
            let room = Arc::new(Room::default());
            let written = Sink { room: room.clone(), limit: most }.write_all(&blocks);
            let held = room.held.lock().unwrap();
            assert_eq!((held.bytes.len(), held.is_cut), (kept, written.is_err()));
            assert_eq!(held.is_cut, kept < 68);
        }
    }
}
