//! Calls that block, from a second thread.

use std::thread;
use std::time::Duration;

use lightwait_conformance::address::Family;
use lightwait_core::wire::tcp::Flags;

use crate::peer::Peer;
use crate::stack::Stack;
use crate::{LOCAL, REMOTE, accepted, listening};

/// Calls from a thread of its own, which is in the call before this returns; then looks at the
/// clock.
pub(crate) fn blocked<T: Send + 'static>(
    stack: &Stack,
    call: impl FnOnce(Stack) -> T + Send + 'static,
) -> thread::JoinHandle<(T, i64)> {
    let stack = stack.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let handle = thread::spawn(move || {
        tell.send(thread_state_path()).expect("somebody listens");
        let outcome = call(stack.clone());
        (outcome, stack.time())
    });
    let path = told.recv().expect("a path");
    wait_until_asleep(&path);
    handle
}

fn thread_state_path() -> String {
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread of ours");
    format!("/proc/{}/stat", thread.display())
}

/// As packetdrill does: the third field says `S`. Once is not enough, since the thread may wait for
/// something else on the way.
fn wait_until_asleep(path: &str) {
    let mut times = 0;
    for _ in 0..5_000 {
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        times = if state == Some('S') { times + 1 } else { 0 };
        if times == 20 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the call does not block");
}

#[test]
fn accept_and_read_end_exactly_when_the_world_lets_them() {
    let stack = Stack::new("linux");
    let listener = listening(&stack);
    let accepting = blocked(&stack, move |stack| stack.accept(listener));
    stack.usleep(10_000);
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    peer.open();
    let opened_at = stack.time();
    let (accepted, ended_at) = accepting.join().expect("no panic");
    let (fd, _) = accepted.expect("a connection");
    assert!((ended_at - opened_at).abs() <= 10, "{ended_at} {opened_at}");

    let reading = blocked(&stack, move |stack| stack.read(fd, 10));
    let before = stack.time();
    stack.usleep(300_000);
    peer.text(b"late");
    // A great leap: each thread that woke reads the time before it.
    stack.usleep(5_000_000);
    let (read, ended_at) = reading.join().expect("no panic");
    assert_eq!(read.expect("data"), b"late");
    assert!((ended_at - before - 300_000).abs() <= 10, "{}", ended_at - before);
}

#[test]
fn connect_waits_for_the_answer() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    let mut peer = Peer::new(&stack, "192.0.2.1:8080", "0.0.0.0:0");
    let to = peer.here;
    let connecting = blocked(&stack, move |stack| stack.connect(fd, Family::Inet, to));
    stack.usleep(100_000);
    peer.answer_open();
    let answered_at = stack.time();
    let (connected, ended_at) = connecting.join().expect("no panic");
    assert_eq!(connected, Ok(0));
    assert!((ended_at - answered_at).abs() <= 10);
}

#[test]
fn connect_is_refused_and_times_out() {
    let stack = Stack::new("linux,timeout.open=3s");
    let fd = stack.socket(libc::AF_INET);
    let mut peer = Peer::new(&stack, "192.0.2.1:8080", "0.0.0.0:0");
    let to = peer.here;
    let connecting = blocked(&stack, move |stack| stack.connect(fd, Family::Inet, to));
    let syn = peer.expect();
    peer.there = syn.from;
    peer.send(Flags::RST | Flags::ACK, &[]);
    assert_eq!(connecting.join().expect("no panic").0, Err(libc::ECONNREFUSED));

    // The socket can be used again.
    let connecting = blocked(&stack, move |stack| stack.connect(fd, Family::Inet, to));
    let start = stack.time();
    stack.usleep(60_000_000);
    let (outcome, ended_at) = connecting.join().expect("no panic");
    assert_eq!(outcome, Err(libc::ETIMEDOUT));
    assert!((ended_at - start - 3_000_000).abs() < 10_000, "{}", ended_at - start);
}

#[test]
fn write_waits_for_room() {
    let stack = Stack::new("linux,buffers.send=20000");
    let (_, fd, mut peer) = accepted(&stack);
    let writing = blocked(&stack, move |stack| stack.write(fd, &[1; 30_000]));
    stack.usleep(50_000);
    let mut received = 0;
    while received < 30_000 {
        received += peer.expect().text.len();
        peer.send(Flags::ACK, &[]);
    }
    assert_eq!(writing.join().expect("no panic").0, Ok(30_000));
}

#[test]
fn a_wait_with_a_timeout_ends_at_it() {
    let stack = Stack::new("linux");
    let (_, fd, peer) = accepted(&stack);
    let start = stack.time();
    let polling = blocked(&stack, move |stack| stack.poll(fd, libc::POLLIN, 250));
    stack.usleep(10_000_000);
    let (outcome, ended_at) = polling.join().expect("no panic");
    assert_eq!(outcome, Ok(0));
    assert!((ended_at - start - 250_000).abs() <= 10, "{}", ended_at - start);

    let timeout = [0i64.to_ne_bytes(), 400_000i64.to_ne_bytes()].concat();
    stack.set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout).expect("an option");
    let start = stack.time();
    let reading = blocked(&stack, move |stack| stack.read(fd, 1));
    stack.usleep(1_000_000);
    let (outcome, ended_at) = reading.join().expect("no panic");
    assert_eq!(outcome, Err(libc::EAGAIN));
    assert!((ended_at - start - 400_000).abs() <= 10);
    drop(peer);
}

#[test]
fn a_timer_of_the_engine_wakes_a_sleeper() {
    let stack = Stack::new("linux,timeout.user=2s");
    let (_, fd, _peer) = accepted(&stack);
    stack.write(fd, b"unheard").expect("room");
    let start = stack.time();
    let reading = blocked(&stack, move |stack| stack.read(fd, 1));
    stack.usleep(60_000_000);
    let (outcome, ended_at) = reading.join().expect("no panic");
    assert_eq!(outcome, Err(libc::ETIMEDOUT));
    assert!(ended_at - start < 10_000_000, "{}", ended_at - start);
}

#[test]
fn close_lingers_until_everything_is_acknowledged() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let linger = [1i32.to_ne_bytes(), 5i32.to_ne_bytes()].concat();
    stack.set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger).expect("an option");
    stack.write(fd, b"last words").expect("room");
    let closing = blocked(&stack, move |stack| stack.close(fd));
    stack.usleep(50_000);
    let text = peer.expect();
    assert_eq!(text.text, b"last words");
    assert!(peer.expect().flags.contains(Flags::FIN));
    peer.send(Flags::ACK, &[]);
    let acknowledged_at = stack.time();
    let (outcome, ended_at) = closing.join().expect("no panic");
    assert_eq!(outcome, Ok(0));
    assert!((ended_at - acknowledged_at).abs() <= 10);
}

#[test]
fn close_lingers_no_longer_than_it_was_told() {
    let stack = Stack::new("linux");
    let (_, fd, _peer) = accepted(&stack);
    let linger = [1i32.to_ne_bytes(), 2i32.to_ne_bytes()].concat();
    stack.set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger).expect("an option");
    stack.write(fd, b"last words").expect("room");
    let start = stack.time();
    let closing = blocked(&stack, move |stack| stack.close(fd));
    stack.usleep(60_000_000);
    let (outcome, ended_at) = closing.join().expect("no panic");
    assert_eq!(outcome, Ok(0));
    assert!((ended_at - start - 2_000_000).abs() <= 10, "{}", ended_at - start);
}

#[test]
fn the_thread_that_moves_time_waits_for_nobody() {
    let stack = Stack::new("linux");
    let (_, fd, _peer) = accepted(&stack);
    let start = stack.time();
    assert_eq!(stack.poll(fd, libc::POLLIN, 100), Ok(0));
    assert_eq!(stack.time() - start, 100_001);
    assert_eq!(stack.read(fd, 1), Err(libc::EINTR), "nothing will ever come");
    assert!(stack.time() - start > 120_000_000);
}

#[test]
fn a_read_waits_for_as_much_as_was_asked_for() {
    for flags in [0, libc::MSG_WAITALL] {
        let stack = Stack::new("linux");
        let (_, fd, mut peer) = accepted(&stack);
        if flags == 0 {
            stack.set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 6).expect("an option");
        }
        peer.text(b"half");
        let in_poll = stack.poll(fd, libc::POLLIN, 0).expect("polled");
        assert_eq!(in_poll == libc::POLLIN, flags != 0, "poll knows of SO_RCVLOWAT");
        let reading = blocked(&stack, move |stack| stack.recv(fd, 6, flags));
        stack.usleep(20_000);
        peer.text(b" and more");
        let (read, _) = reading.join().expect("no panic");
        assert_eq!(read.expect("data"), b"half a");
    }
}
