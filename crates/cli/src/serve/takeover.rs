//! `--takeover PATH`: a new process takes a running server over. It gets the device, the listening
//! sockets, the secret of the host and its TIME-WAIT records over a socket at PATH. The old process
//! ends its connections meanwhile, and gets their segments through the new one.
//! `docs/decisions/0054-takeover.md` has the reasons.
//!
//! Each process is first the one that takes, if another serves, and then the one that gives.

mod giver;
mod taker;
mod wire;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant as StdInstant;

use lightwait::wrap::handover::Switch;
use rustix::time::{ClockId, clock_gettime};

use super::admin::Shards;
use super::signals::Signals;
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{DevicePlan, Plan, Stack};
pub(crate) use taker::Legacy;
use taker::Taken;
use wire::{Hello, VERSION};

/// Only its owner may ask for a server.
const MODE: u32 = 0o600;

/// A server that can be taken over, and perhaps has taken over from another.
pub(super) struct Takeover {
    path: PathBuf,
    /// Where the next process asks, until that has it.
    door: Mutex<Option<UnixListener>>,
    /// What this server is.
    hello: Hello,
    /// When the time of its host began.
    origin: StdInstant,
    pub(super) switches: Vec<Switch>,
    taken: Option<Taken>,
    holdings: Mutex<Holdings>,
    is_given: AtomicBool,
    /// The socket at the path is this process's: it has begun there, or has taken over.
    is_owner: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Until the end: the log ends when nobody has it any more.
    log: Mutex<Option<Log>>,
}

/// What the next process gets.
#[derive(Debug, Default)]
struct Holdings {
    secret: Option<[u8; 32]>,
    hardware: [u8; 6],
    queues: Vec<OwnedFd>,
    listens: Vec<(String, OwnedFd)>,
    admin: Option<OwnedFd>,
}

impl Takeover {
    /// Takes over from the process that serves at the path of a plan that has one, or begins there.
    pub(super) fn open(plan: &Plan) -> Result<Option<Takeover>, Failure> {
        let Some(path) = &plan.takeover else { return Ok(None) };
        let hello = hello(plan);
        let refuse = |error: io::Error| Failure::Takeover(path.clone(), error.to_string());
        let switches = (0..plan.shards).map(|_| Switch::default()).collect();
        let (door, taken, origin) = match UnixStream::connect(path) {
            Ok(stream) => {
                let (taken, door) = Taken::ask(stream, &hello)
                    .map_err(|why| Failure::Takeover(path.clone(), why))?;
                let origin = taken.origin;
                (door, Some(taken), origin)
            }
            Err(error) => {
                let is_gone = error.kind() == io::ErrorKind::ConnectionRefused;
                if !is_gone && error.kind() != io::ErrorKind::NotFound {
                    return Err(refuse(error));
                }
                (listen(path, is_gone).map_err(refuse)?, None, StdInstant::now())
            }
        };
        let is_owner = AtomicBool::new(taken.is_none());
        Ok(Some(Takeover {
            path: path.clone(),
            door: Mutex::new(Some(door)),
            hello,
            origin,
            switches,
            taken,
            holdings: Mutex::default(),
            is_given: AtomicBool::new(false),
            is_owner,
            thread: Mutex::default(),
            log: Mutex::default(),
        }))
    }

    /// When the time of the host began, perhaps in a process before.
    pub(super) fn origin(&self) -> StdInstant {
        self.origin
    }

    /// True once another process has taken over.
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// True if this process has taken over from another.
    pub(super) fn has_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// The device of the process before, and what belongs to its host.
    pub(super) fn take_device(&mut self) -> Option<Legacy> {
        self.taken.as_mut()?.take_device()
    }

    /// The listening sockets at an address that the process before had.
    pub(super) fn take_listeners(&mut self, address: &str) -> Vec<OwnedFd> {
        self.taken.as_mut().map_or_else(Vec::new, |taken| taken.take_listeners(address))
    }

    /// The admin door of the process before.
    pub(super) fn take_admin(&mut self) -> Option<OwnedFd> {
        self.taken.as_mut()?.admin.take()
    }

    /// The next process gets this device.
    pub(super) fn hold_device(&self, secret: [u8; 32], hardware: [u8; 6], queues: Vec<OwnedFd>) {
        let mut holdings = self.holdings();
        (holdings.secret, holdings.hardware, holdings.queues) = (Some(secret), hardware, queues);
    }

    /// The next process gets this listening socket.
    pub(super) fn hold_listener(&self, address: String, socket: &impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        self.holdings().listens.push((address, socket));
        Ok(())
    }

    /// The next process gets this admin door.
    pub(super) fn hold_admin(&self, socket: OwnedFd) {
        self.holdings().admin = Some(socket);
    }

    fn holdings(&self) -> std::sync::MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what the process before says to its end, and then gives to the next that asks, on a
    /// thread of its own.
    pub(super) fn stay(
        self: &Arc<Self>,
        shards: Shards,
        given: Arc<tokio::sync::Notify>,
        signals: &Signals,
        log: &Log,
    ) -> io::Result<()> {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log.clone());
        let (takeover, signals) = (self.clone(), signals.clone());
        let work = move || {
            if let Some(taken) = &takeover.taken {
                let Some(drained) = taken.follow(&takeover.switches, &shards, &signals) else {
                    return;
                };
                takeover.write(drained);
            }
            giver::give_to_next(&takeover, &shards, &given, &signals);
        };
        let thread = std::thread::Builder::new().name("takeover".to_owned()).spawn(work)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Logs a record, until the end.
    fn write(&self, record: Record) {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = &*log {
            log.write(record);
        }
    }

    /// The shards are gone: what they have said last goes to the process that has taken over. If
    /// there is none, the socket goes.
    fn end(&self) {
        if self.is_given() {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            // It has reported its failure, if any.
            let _ = thread.map(JoinHandle::join);
        } else if self.is_owner.load(Ordering::Acquire) {
            let _ = fs::remove_file(&self.path);
            if let Some(door) = &*self.door.lock().unwrap_or_else(PoisonError::into_inner) {
                // The thread may wait there.
                let _ = rustix::net::shutdown(door, rustix::net::Shutdown::Both);
            }
        }
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Ends a takeover when the server ends, however that is.
pub(super) struct End(pub(super) Option<Arc<Takeover>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(takeover) = &self.0 {
            takeover.end();
        }
    }
}

/// What this process asks to be, or is.
fn hello(plan: &Plan) -> Hello {
    let (stack, addresses, listens) = match &plan.stack {
        Stack::Bridge { listen } => {
            let secure = plan.tls.as_ref().map(|tls| (listen.ip(), tls.port).into());
            let listens = [Some(*listen), secure].into_iter().flatten();
            ("bridge".to_owned(), Vec::new(), listens.map(|at| at.to_string()).collect())
        }
        Stack::Device { device, addresses, .. } => {
            let addresses = addresses.iter().map(ToString::to_string).collect();
            (name_of(device), addresses, Vec::new())
        }
    };
    Hello {
        version: VERSION,
        pid: std::process::id().into(),
        shards: plan.shards.into(),
        stack,
        addresses,
        listens,
        admin: plan.admin.as_ref().map(ToString::to_string),
    }
}

/// The device, as both processes must name it.
fn name_of(device: &DevicePlan) -> String {
    match device {
        DevicePlan::Tap { is_tun: true, name, .. } => format!("tun {name}"),
        DevicePlan::Tap { name, .. } => format!("tap {name}"),
        DevicePlan::AfPacket { interface } => format!("af-packet {interface}"),
        DevicePlan::AfXdp { interface, .. } => format!("afxdp {interface}"),
        DevicePlan::Macvtap { interface } => format!("macvtap {interface}"),
    }
}

/// Listens at `path`. It appears there with its mode. `is_stale`: a socket may be there, whose
/// process is gone.
fn listen(path: &Path, is_stale: bool) -> io::Result<UnixListener> {
    let is_other = path.symlink_metadata().is_ok_and(|it| !it.file_type().is_socket());
    if is_other || path.exists() && !is_stale {
        return Err(io::Error::other("a file that is no socket of a takeover is there"));
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    let placed = fs::set_permissions(&new, fs::Permissions::from_mode(MODE))
        .and_then(|()| fs::rename(&new, path));
    placed.inspect_err(|_| _ = fs::remove_file(&new))?;
    Ok(listener)
}

/// The kernel's monotonic clock, which all processes share, in ns.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
