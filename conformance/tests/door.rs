//! The door, entered as packetdrill enters it: through the C interface, from two threads.

#[path = "door/blocking.rs"]
mod blocking;
#[path = "door/calls.rs"]
mod calls;
#[path = "door/datagrams.rs"]
mod datagrams;
#[path = "door/info.rs"]
mod info;
#[path = "door/options.rs"]
mod options;
#[path = "door/peer.rs"]
mod peer;
#[path = "door/stack.rs"]
mod stack;
#[path = "door/state.rs"]
mod state;
#[path = "door/time.rs"]
mod time;
#[path = "door/waits.rs"]
mod waits;

use lightwait_conformance::address::Family;
use peer::Peer;
use stack::Stack;

const LOCAL: &str = "192.168.7.9:8080";
const REMOTE: &str = "192.0.2.1:40000";

fn listening(stack: &Stack) -> i32 {
    let fd = stack.socket(libc::AF_INET);
    stack.set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("an option");
    stack.bind(fd, Family::Inet, LOCAL.parse().expect("an address")).expect("a free address");
    stack.listen(fd, 1).expect("a bound socket");
    fd
}

/// A listening socket, an accepted one, and its peer.
fn accepted(stack: &Stack) -> (i32, i32, Peer) {
    let listener = listening(stack);
    let mut peer = Peer::new(stack, REMOTE, LOCAL);
    peer.open();
    let (fd, address) = stack.accept(listener).expect("a connection");
    assert_eq!(address, Family::Inet.encode(peer.here));
    (listener, fd, peer)
}
