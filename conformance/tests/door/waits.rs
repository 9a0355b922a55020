//! poll and epoll: which events they report, and when they return.

use lightwait_conformance::address::Family;
use lightwait_core::wire::tcp::Flags;

use crate::peer::Peer;
use crate::stack::Stack;
use crate::{LOCAL, REMOTE, accepted, listening};

const IN: i16 = libc::POLLIN;
const OUT: i16 = libc::POLLOUT;
const RDHUP: i16 = libc::POLLRDHUP;
const HUP: i16 = libc::POLLHUP;
const ERR: i16 = libc::POLLERR;
const ALL: i16 = IN | OUT | RDHUP;

#[test]
fn poll_tells_each_state_as_linux_does() {
    let stack = Stack::new("linux");
    let fresh = stack.socket(libc::AF_INET);
    assert_eq!(stack.poll(fresh, ALL, 0), Ok(OUT | HUP), "new");
    let listener = listening(&stack);
    assert_eq!(stack.poll(listener, ALL, 0), Ok(0), "listening");
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    peer.open();
    assert_eq!(stack.poll(listener, ALL, 0), Ok(IN), "something to accept");
    let (fd, _) = stack.accept(listener).unwrap();
    assert_eq!(stack.poll(fd, ALL, 0), Ok(OUT), "established");
    peer.text(b"x");
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT), "data");
    assert_eq!(stack.poll(fd, RDHUP, 0), Ok(0));
    stack.read(fd, 1).unwrap();
    peer.fin();
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT | RDHUP), "the peer's FIN");
    stack.shutdown(fd, libc::SHUT_WR).unwrap();
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT | RDHUP | HUP), "both FINs");
    assert_eq!(stack.poll(12_345, ALL, 0), Ok(libc::POLLNVAL));
}

#[test]
fn poll_tells_a_failed_open_and_a_reset() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.set_nonblocking(fd);
    let mut peer = Peer::new(&stack, REMOTE, "0.0.0.0:0");
    let _progress = stack.connect(fd, Family::Inet, peer.here);
    assert_eq!(stack.poll(fd, ALL, 0), Ok(0), "opening");
    peer.there = peer.expect().from;
    peer.send(Flags::RST | Flags::ACK, &[]);
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT | RDHUP | HUP | ERR));
    stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap();
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT | RDHUP | HUP), "told");

    let (_, fd, peer) = accepted(&stack);
    assert_eq!(stack.poll(fd, ALL, 0), Ok(OUT));
    peer.send(Flags::RST, &[]);
    assert_eq!(stack.poll(fd, 0, 0), Ok(HUP | ERR), "asked for or not");
}

#[test]
fn a_full_send_buffer_is_not_writable() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 10_000).unwrap();
    stack.set_nonblocking(fd);
    assert_eq!(stack.write(fd, &[0; 50_000]), Ok(10_000));
    assert_eq!(stack.write(fd, &[0; 50_000]), Err(libc::EAGAIN));
    assert_eq!(stack.poll(fd, ALL, 0), Ok(0));
    peer.expect();
    peer.send(Flags::ACK, &[]);
    assert_eq!(stack.poll(fd, ALL, 0), Ok(OUT));
}

#[test]
fn shutting_down_the_reading_side_is_told_to_poll() {
    let stack = Stack::new("linux");
    let (_, fd, _peer) = accepted(&stack);
    stack.shutdown(fd, libc::SHUT_RD).unwrap();
    assert_eq!(stack.poll(fd, ALL, 0), Ok(IN | OUT | RDHUP));
}

#[test]
fn pipes_are_polled_beside_sockets() {
    let stack = Stack::new("linux");
    let [out, into] = stack.pipe();
    assert_eq!(stack.poll(out, ALL, 0), Ok(0));
    stack.write(into, b"x").unwrap();
    assert_eq!(stack.poll(out, ALL, 0), Ok(IN));
    for fd in [out, into] {
        stack.close(fd).unwrap();
    }
}

fn watched(stack: &Stack, fd: i32, events: i32) -> i32 {
    let epoll = stack.epoll_create();
    stack.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, events).expect("added");
    epoll
}

#[test]
fn level_triggered_files_are_told_as_long_as_they_are_ready() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let epoll = watched(&stack, fd, libc::EPOLLIN);
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
    peer.text(b"xy");
    for _ in 0..2 {
        assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![(libc::EPOLLIN, fd as u64)]));
        stack.read(fd, 1).unwrap();
    }
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
}

#[test]
fn edge_triggered_files_are_told_once_for_each_news() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let epoll = watched(&stack, fd, libc::EPOLLIN | libc::EPOLLET);
    peer.text(b"x");
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![(libc::EPOLLIN, fd as u64)]));
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]), "though it is unread");
    peer.text(b"y");
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![(libc::EPOLLIN, fd as u64)]), "more of it");
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
}

#[test]
fn room_to_write_is_news_after_there_was_none() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.set_nonblocking(fd);
    stack.set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 10_000).unwrap();
    let epoll = watched(&stack, fd, libc::EPOLLOUT | libc::EPOLLIN | libc::EPOLLET);
    let told = vec![(libc::EPOLLOUT, fd as u64)];
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(told.clone()), "at first");
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
    stack.write(fd, &[0; 100]).unwrap();
    peer.expect();
    peer.send(Flags::ACK, &[]);
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]), "there was room all the time");
    assert_eq!(stack.write(fd, &[0; 50_000]), Ok(10_000));
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
    while peer.expect().text.len() == 1460 {}
    peer.send(Flags::ACK, &[]);
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(told));
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
}

#[test]
fn a_shot_is_fired_once_until_armed_again() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
    let epoll = watched(&stack, fd, events);
    peer.text(b"x");
    assert_eq!(stack.epoll_wait(epoll, 0).unwrap().len(), 1);
    peer.text(b"y");
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
    stack.epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, events).unwrap();
    assert_eq!(stack.epoll_wait(epoll, 0).unwrap().len(), 1);
}

#[test]
fn a_watch_is_added_once_and_ends_with_its_file() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let epoll = watched(&stack, fd, libc::EPOLLIN);
    let control = |op| stack.epoll_ctl(epoll, op, fd, libc::EPOLLIN);
    assert_eq!(control(libc::EPOLL_CTL_ADD), Err(libc::EEXIST));
    assert_eq!(control(libc::EPOLL_CTL_DEL), Ok(0));
    assert_eq!(control(libc::EPOLL_CTL_DEL), Err(libc::ENOENT));
    assert_eq!(control(libc::EPOLL_CTL_MOD), Err(libc::ENOENT));
    assert_eq!(control(libc::EPOLL_CTL_ADD), Ok(0));
    assert_eq!(stack.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, 12_345, 1), Err(libc::EBADF));
    assert_eq!(stack.epoll_ctl(fd, libc::EPOLL_CTL_ADD, epoll, 1), Err(libc::EINVAL));
    peer.text(b"x");
    assert_eq!(stack.epoll_wait(epoll, 0).unwrap().len(), 1);
    stack.close(fd).unwrap();
    assert_eq!(stack.epoll_wait(epoll, 0), Ok(vec![]));
}

#[test]
fn several_ready_files_are_told_together() {
    let stack = Stack::new("linux");
    let (listener, fd, mut peer) = accepted(&stack);
    let epoll = watched(&stack, fd, libc::EPOLLIN);
    stack.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, listener, libc::EPOLLIN).unwrap();
    peer.text(b"x");
    while peer.stack.poll(listener, IN, 0) != Ok(IN) {
        let mut other = Peer::new(&stack, "192.0.2.1:40001", LOCAL);
        other.send(Flags::SYN, &[]);
        let answer = std::iter::from_fn(|| other.next()).find(|sent| sent.to == other.here);
        other.seq += 1;
        other.ack = answer.expect("an answer").seq + 1;
        other.send(Flags::ACK, &[]);
    }
    let mut told: Vec<u64> = stack.epoll_wait(epoll, 0).unwrap().iter().map(|e| e.1).collect();
    told.sort_unstable();
    assert_eq!(told, [listener.min(fd) as u64, listener.max(fd) as u64]);
}
