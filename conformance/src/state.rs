//! LIGHTWAIT_STATE: a Unix socket that reports the state of every socket to each client that
//! connects.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lightwait_core::tcp::State;

use crate::door::Door;
use crate::world::World;

/// A socket of this process, as long as it has a place in the file system.
#[derive(Debug)]
struct Socket {
    door: Weak<Door>,
    path: PathBuf,
    /// Device and inode: another file may be at its path by now.
    file: (u64, u64),
    /// A forked child does not own the socket.
    process: u32,
}

static SOCKETS: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

impl Socket {
    fn is_there(&self) -> bool {
        file_at(&self.path) == Some(self.file) && self.process == std::process::id()
    }

    fn remove(&self) {
        if self.is_there() {
            // If another process has removed it meanwhile, the work is done.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of the socket at `path`.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok().filter(|it| it.file_type().is_socket())?;
    Some((file.dev(), file.ino()))
}

fn sockets() -> MutexGuard<'static, Vec<Socket>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers at `path`, from a thread of its own, for as long as the door is there.
///
/// # Errors
/// Why there can be no socket at that path.
pub fn serve(door: &Arc<Door>, path: &Path) -> io::Result<()> {
    // A process before this one may have left its socket. Anything else there stays.
    if file_at(path).is_some() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let door = Arc::downgrade(door);
    if let Some(file) = file_at(path) {
        let (door, path, process) = (door.clone(), path.to_owned(), std::process::id());
        sockets().push(Socket { door, path, file, process });
    }
    std::thread::Builder::new()
        .name("lightwait-state".to_owned())
        .stack_size(256 << 10)
        .spawn(move || answer(&listener, &door))?;
    Ok(())
}

/// Ends the thread that answers for `door`, whose user has left, and removes its socket.
pub fn stop(door: &Weak<Door>) {
    sockets().retain(|socket| {
        let is_it = socket.door.ptr_eq(door);
        if is_it && socket.is_there() {
            // The thread checks its door at the next connection, and may hold the door until then.
            let _gone = UnixStream::connect(&socket.path);
            socket.remove();
        }
        !is_it
    });
}

/// Removes the sockets of all doors, at the end of the process.
pub fn remove_all() {
    sockets().drain(..).for_each(|socket| socket.remove());
}

fn answer(listener: &UnixListener, door: &Weak<Door>) {
    for caller in listener.incoming() {
        let Some(door) = door.upgrade() else { return };
        let text = door.look(describe);
        if let Ok(mut caller) = caller {
            // A client that has gone wants no answer.
            let _gone = caller.write_all(text.as_bytes());
        }
    }
}

/// The name of a state, as `netstat` and `sockstat` print it.
pub fn name(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::Listen => "LISTEN",
        State::SynSent => "SYN_SENT",
        State::SynReceived => "SYN_RCVD",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN_WAIT_1",
        State::FinWait2 => "FIN_WAIT_2",
        State::CloseWait => "CLOSE_WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST_ACK",
        State::TimeWait => "TIME_WAIT",
    }
}

/// One line per socket. `tcp LOCAL REMOTE STATE`: listeners, half-open handshakes, connections with
/// a user or without, TIME-WAIT, and streams that are none of these. `udp LOCAL REMOTE`: sockets
/// for datagrams that have a port.
pub fn describe(world: &World) -> String {
    let mut lines = String::new();
    let shown = |address: Option<SocketAddr>| {
        address.map_or_else(|| "*:*".to_owned(), |address| address.to_string())
    };
    let mut line = |local: Option<SocketAddr>, remote: Option<SocketAddr>, state| {
        lines += &format!("tcp {} {} {}\n", shown(local), shown(remote), name(state));
    };
    for socket in world.host.sockets() {
        line(Some(socket.local()), socket.remote(), socket.state());
    }
    for (_, socket) in world.sockets().filter(|(_, socket)| !socket.is_datagram()) {
        if socket.connection().is_none() && socket.state(&world.host) == State::Closed
            || socket.is_over() && socket.state(&world.host) == State::Closed
        {
            let remote = socket.connection().and_then(|id| world.host.peer_address(id).ok());
            line(socket.local, remote, State::Closed);
        }
    }
    for (local, remote) in world.host.udp_sockets() {
        lines += &format!("udp {} {}\n", shown(Some(local)), shown(remote));
    }
    lines
}
