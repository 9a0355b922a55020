//! LIGHTWAIT_STATE: a Unix socket that tells whoever connects the state of every socket.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Weak};

use lightwait_core::tcp::State;

use crate::door::Door;
use crate::world::World;

/// Answers at `path`, from a thread of its own, for as long as the door is there.
///
/// # Errors
/// Why there can be no socket at that path.
pub fn serve(door: &Arc<Door>, path: &Path) -> io::Result<()> {
    // A door before this one may have left its socket.
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let door = Arc::downgrade(door);
    std::thread::Builder::new()
        .name("lightwait-state".to_owned())
        .stack_size(256 << 10)
        .spawn(move || answer(&listener, &door))?;
    Ok(())
}

/// Ends the thread that answers at `path`, once its door is gone, and removes the socket.
pub fn stop(path: &Path) {
    // The thread looks for its door when somebody calls. Both fail if another door has taken over.
    let _gone = UnixStream::connect(path);
    let _gone = std::fs::remove_file(path);
}

fn answer(listener: &UnixListener, door: &Weak<Door>) {
    for caller in listener.incoming() {
        let Some(door) = door.upgrade() else { return };
        let text = door.look(describe);
        if let Ok(mut caller) = caller {
            // Whoever has gone away wanted no answer.
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

/// One line per socket, `tcp LOCAL REMOTE STATE`: listeners, half-open handshakes, connections with
/// a user or without, TIME-WAIT, and sockets that are none of these.
pub fn describe(world: &World) -> String {
    let mut lines = String::new();
    let mut line = |local: Option<SocketAddr>, remote: Option<SocketAddr>, state| {
        let shown = |address: Option<SocketAddr>| {
            address.map_or_else(|| "*:*".to_owned(), |address| address.to_string())
        };
        lines += &format!("tcp {} {} {}\n", shown(local), shown(remote), name(state));
    };
    for (local, remote, state) in world.host.sockets() {
        line(Some(local), remote, state);
    }
    for (_, socket) in world.sockets() {
        if socket.connection().is_none() && socket.state(&world.host) == State::Closed
            || socket.is_over() && socket.state(&world.host) == State::Closed
        {
            let remote = socket.connection().and_then(|id| world.host.peer_address(id).ok());
            line(socket.local, remote, State::Closed);
        }
    }
    lines
}
