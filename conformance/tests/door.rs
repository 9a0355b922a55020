//! The door, entered as packetdrill enters it: through the C interface, from two threads.

#[path = "door/peer.rs"]
#[allow(dead_code, reason = "a vocabulary")]
mod peer;
#[path = "door/stack.rs"]
#[allow(dead_code, reason = "a vocabulary")]
mod stack;

use std::thread;
use std::time::Duration;

use lightwait_conformance::address::Family;
use lightwait_core::wire::tcp::Flags;
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

/// Calls from a thread of its own, which is in the call before this returns.
fn blocked<T: Send + 'static>(
    stack: &Stack,
    call: impl FnOnce(Stack) -> T + Send + 'static,
) -> thread::JoinHandle<(T, i64)> {
    let stack = stack.clone();
    let handle = thread::spawn(move || {
        let outcome = call(stack.clone());
        (outcome, stack.time())
    });
    // The caller of a door looks into /proc for this; real time does as well.
    thread::sleep(Duration::from_millis(50));
    handle
}

#[test]
fn a_connection_is_accepted_read_written_and_closed() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    peer.text(b"ping");
    assert_eq!(stack.read(fd, 100).unwrap(), b"ping");
    assert_eq!(stack.write(fd, b"pong!"), Ok(5));
    let ack = peer.expect();
    let answer = if ack.text.is_empty() { peer.expect() } else { ack };
    assert_eq!(answer.text, b"pong!");
    peer.fin();
    assert_eq!(stack.read(fd, 100).unwrap(), b"");
    assert_eq!(stack.close(fd), Ok(0));
    let fin = (0..3).map(|_| peer.expect()).find(|sent| sent.flags.contains(Flags::FIN));
    assert!(fin.is_some());
}

#[test]
fn a_connection_is_opened_from_here() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.set_nonblocking(fd);
    let mut peer = Peer::new(&stack, "192.0.2.1:8080", "0.0.0.0:0");
    let connect = || stack.connect(fd, Family::Inet, "192.0.2.1:8080".parse().unwrap());
    assert_eq!(connect(), Err(libc::EINPROGRESS));
    assert_eq!(connect(), Err(libc::EALREADY));
    let syn = peer.answer_open();
    assert!(syn.from.ip().to_string().starts_with("192.168."), "{}", syn.from);
    assert_eq!(syn.options.window_scale, Some(8));
    assert_eq!(peer.expect().flags, Flags::ACK);
    assert_eq!(connect(), Ok(0));
    assert_eq!(connect(), Err(libc::EISCONN));
    assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
}

#[test]
fn blocking_calls_end_exactly_when_the_world_lets_them() {
    let stack = Stack::new("linux");
    let listener = listening(&stack);
    let accepting = blocked(&stack, move |stack| stack.accept(listener));
    stack.usleep(10_000);
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    peer.open();
    let opened_at = stack.time();
    let (accepted, ended_at) = accepting.join().unwrap();
    let (fd, _) = accepted.unwrap();
    assert!((ended_at - opened_at).abs() <= 10, "{ended_at} {opened_at}");

    let reading = blocked(&stack, move |stack| stack.read(fd, 10));
    let before = stack.time();
    stack.usleep(300_000);
    peer.text(b"late");
    // A great leap: whoever was woken learns the time before it.
    stack.usleep(5_000_000);
    let (read, ended_at) = reading.join().unwrap();
    assert_eq!(read.unwrap(), b"late");
    assert!((ended_at - before - 300_000).abs() <= 10, "{}", ended_at - before);
}

#[test]
fn time_moves_as_it_is_asked_for() {
    let stack = Stack::new("linux");
    let start = stack.time();
    assert_eq!(stack.time(), start + 1);
    stack.usleep(1_000_000);
    assert_eq!(stack.time(), start + 1_000_002);
    let (packet, _) = stack.packet_out();
    assert!(packet.is_empty(), "nothing ever happens, and that is told");
    assert_eq!(stack.time(), start + 121_000_003, "after 120 s");
}
