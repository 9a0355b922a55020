//! Captures that begin and end while devices run.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lightwait_core::Medium;

use super::{Capture, Recording};

/// The two ends of a packet of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Who has sent it.
    pub from: SocketAddr,
    /// For whom it is.
    pub to: SocketAddr,
}

/// Says which frames are captured, by their ends; a frame of neither TCP nor UDP, or a fragment,
/// has none.
pub type Keep = Arc<dyn Fn(Option<Ends>) -> bool + Send + Sync>;

/// Devices whose frames may be captured for a while, at most one capture at a time. Clones are the
/// same devices. While none runs, a device pays one load for each call.
#[derive(Clone)]
pub struct Captures(Arc<Shared>);

struct Shared {
    medium: Medium,
    interfaces: Vec<String>,
    /// Changes whenever a capture begins or ends.
    round: AtomicU64,
    running: Mutex<Option<Running>>,
}

#[derive(Clone)]
struct Running {
    recording: Recording,
    keep: Keep,
}

/// A capture that runs. It ends with this.
pub struct Begun {
    captures: Captures,
    /// The devices drop theirs in their next turns. The last one waits for the thread that writes:
    /// this one.
    recording: Recording,
}

impl Captures {
    /// For devices of that medium, an interface of each of these names.
    pub fn new(medium: Medium, interfaces: &[&str]) -> Captures {
        Captures(Arc::new(Shared {
            medium,
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            round: AtomicU64::new(0),
            running: Mutex::default(),
        }))
    }

    /// Begins a capture into `pipe`, of what `keep` says; `None` if another runs.
    ///
    /// # Errors
    /// There is no thread to write it.
    pub fn begin(
        &self,
        pipe: impl Write + Send + 'static,
        keep: Keep,
    ) -> io::Result<Option<Begun>> {
        let mut running = self.running();
        if running.is_some() {
            return Ok(None);
        }
        let names: Vec<&str> = self.0.interfaces.iter().map(String::as_str).collect();
        let recording = Recording::stream(pipe, self.0.medium, &names)?;
        *running = Some(Running { recording: recording.clone(), keep });
        self.0.round.fetch_add(1, Ordering::Release);
        Ok(Some(Begun { captures: self.clone(), recording }))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    /// Ends the capture: from their next turns on the devices add nothing. Returns what must be
    /// dropped, by a thread that may wait, once they have had those turns: that writes the rest.
    pub fn end(self) -> impl Send {
        self.recording.clone()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        *self.captures.running() = None;
        self.captures.0.round.fetch_add(1, Ordering::Release);
    }
}

/// A device's view of its captures.
pub(super) struct Source {
    captures: Captures,
    interface: u32,
    /// The round that was seen.
    round: u64,
}

impl Source {
    pub(super) fn new(captures: &Captures, interface: usize) -> Source {
        let count = captures.0.interfaces.len();
        assert!(interface < count, "no interface {interface} in captures of {count}");
        Source { captures: captures.clone(), interface: interface as u32, round: 0 }
    }

    /// The capture that runs, if that has changed.
    pub(super) fn news(&mut self) -> Option<Option<Capture>> {
        let round = self.captures.0.round.load(Ordering::Acquire);
        if round == self.round {
            return None;
        }
        self.round = round;
        let running = self.captures.running().clone();
        Some(running.map(|Running { recording, keep }| Capture {
            keep: Some(keep),
            ..Capture::new(&recording, self.interface, self.captures.0.medium)
        }))
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures").field("interfaces", &self.0.interfaces).finish_non_exhaustive()
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}
