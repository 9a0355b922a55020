//! The return value of each call, in each state.

use lightwait_conformance::address::Family;
use lightwait_conformance::epoll::Epoll;
use lightwait_conformance::profile::Profile;
use lightwait_conformance::world::{File, World};
use lightwait_core::wire::tcp::Flags;

use crate::peer::Peer;
use crate::stack::{Stack, libc_close};
use crate::{LOCAL, REMOTE, accepted, listening};

#[test]
fn a_caller_refused_a_door_gets_the_error_at_each_call() {
    let stack = Stack::unchecked("linux,nonsense=1");
    assert_eq!(stack.clock(), Err(libc::EINVAL), "packetdrill ends here");
    assert_eq!(stack.socket_of(libc::AF_INET, libc::SOCK_STREAM, 0), Err(libc::EINVAL));
    assert_eq!(stack.bind_bytes(3, &[0; 16]), Err(libc::EINVAL));
    assert_eq!(stack.listen(3, 1), Err(libc::EINVAL));
    assert!(Stack::unchecked("linux").clock().is_ok());
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
    assert!(answer.window > 0);
    peer.fin();
    assert_eq!(stack.read(fd, 100).unwrap(), b"");
    assert_eq!(stack.close(fd), Ok(0));
    let fin = (0..3).map(|_| peer.expect()).find(|sent| sent.flags.contains(Flags::FIN));
    assert_eq!(fin.expect("a FIN").ack, peer.seq);
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
    assert_eq!(stack.write(fd, b"x"), Err(libc::EAGAIN));
    assert_eq!(stack.read(fd, 1), Err(libc::EAGAIN));
    let syn = peer.answer_open();
    assert!(syn.from.ip().to_string().starts_with("192.168."), "{}", syn.from);
    assert_eq!(syn.options.window_scale, Some(8));
    assert_eq!(peer.expect().flags, Flags::ACK);
    assert_eq!(connect(), Ok(0));
    assert_eq!(connect(), Err(libc::EISCONN));
    assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
}

#[test]
fn a_refused_connection_tells_so_once() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.set_nonblocking(fd);
    let mut peer = Peer::new(&stack, "192.0.2.1:8080", "0.0.0.0:0");
    let connect = || stack.connect(fd, Family::Inet, "192.0.2.1:8080".parse().unwrap());
    assert_eq!(connect(), Err(libc::EINPROGRESS));
    let syn = peer.expect();
    peer.there = syn.from;
    peer.send(Flags::RST | Flags::ACK, &[]);
    assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(libc::ECONNREFUSED));
    assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
    assert_eq!(connect(), Err(libc::ECONNABORTED));
    assert_eq!(connect(), Err(libc::EINPROGRESS), "and the socket is as new");
}

#[test]
fn what_is_neither_tcp_nor_udp_is_no_socket() {
    let stack = Stack::new("linux");
    let socket = |domain, kind, protocol| stack.socket_of(domain, kind, protocol);
    let (inet, stream) = (libc::AF_INET, libc::SOCK_STREAM);
    assert_eq!(socket(libc::AF_UNIX, stream, 0), Err(libc::EAFNOSUPPORT));
    assert_eq!(socket(inet, libc::SOCK_RAW, 0), Err(libc::ESOCKTNOSUPPORT));
    assert_eq!(socket(inet, stream, libc::IPPROTO_UDP), Err(libc::EPROTONOSUPPORT));
    assert_eq!(socket(inet, libc::SOCK_DGRAM, libc::IPPROTO_TCP), Err(libc::EPROTONOSUPPORT));
    let fd = socket(inet, stream | libc::SOCK_NONBLOCK, 0).unwrap() as i32;
    assert_eq!(stack.fcntl(fd, libc::F_GETFL, 0), Ok((libc::O_RDWR | libc::O_NONBLOCK).into()));
    assert_eq!(stack.close(fd), Ok(0));
    assert_eq!(stack.close(fd), Err(libc::EBADF));
    assert_eq!(stack.listen(fd, 1), Err(libc::EBADF));
}

#[test]
fn a_socket_that_is_not_connected_says_so() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    assert_eq!(stack.read(fd, 1), Err(libc::ENOTCONN));
    assert_eq!(stack.write(fd, b"x"), Err(libc::EPIPE));
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Err(libc::ENOTCONN));
    assert_eq!(stack.accept(fd), Err(libc::EINVAL));
    let listener = listening(&stack);
    assert_eq!(stack.read(listener, 1), Err(libc::ENOTCONN));
    assert_eq!(stack.write(listener, b"x"), Err(libc::EPIPE));
    let to = REMOTE.parse().unwrap();
    assert_eq!(stack.connect(listener, Family::Inet, to), Err(libc::EISCONN));
    stack.set_nonblocking(listener);
    assert_eq!(stack.accept(listener), Err(libc::EAGAIN));
}

#[test]
fn an_address_is_bound_once() {
    let stack = Stack::new("linux");
    let local = LOCAL.parse().unwrap();
    let (a, b) = (stack.socket(libc::AF_INET), stack.socket(libc::AF_INET));
    assert_eq!(stack.bind_bytes(a, &[2, 0, 0]), Err(libc::EINVAL));
    assert_eq!(stack.bind_bytes(a, &Family::Inet6.encode(local)), Err(libc::EAFNOSUPPORT));
    assert_eq!(stack.bind(a, Family::Inet, local), Ok(0));
    assert_eq!(stack.bind(a, Family::Inet, local), Err(libc::EINVAL));
    assert_eq!(stack.bind(b, Family::Inet, local), Err(libc::EADDRINUSE));
    for fd in [a, b] {
        stack.set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    }
    assert_eq!(stack.bind(b, Family::Inet, local), Ok(0));
    assert_eq!(stack.listen(a, 1), Ok(0));
    assert_eq!(stack.listen(b, 1), Err(libc::EADDRINUSE));
}

#[test]
fn an_address_that_lingers_is_bound_only_with_reuse() {
    let stack = Stack::new("linux");
    let (listener, fd, mut peer) = accepted(&stack);
    stack.close(listener).unwrap();
    stack.close(fd).unwrap();
    peer.expect();
    peer.fin();
    peer.expect();
    let local = LOCAL.parse().unwrap();
    let next = stack.socket(libc::AF_INET);
    assert_eq!(stack.bind(next, Family::Inet, local), Err(libc::EADDRINUSE));
    stack.set(next, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    assert_eq!(stack.bind(next, Family::Inet, local), Ok(0));
}

#[test]
fn the_address_that_is_bound_becomes_ours_whatever_it_is() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.bind(fd, Family::Inet, "10.1.2.3:8080".parse().unwrap()).unwrap();
    stack.listen(fd, 1).unwrap();
    Peer::new(&stack, REMOTE, "10.1.2.3:8080").open();
    assert!(stack.accept(fd).is_ok());
    // And is the one that we call from.
    let caller = stack.socket(libc::AF_INET);
    stack.set_nonblocking(caller);
    let _progress = stack.connect(caller, Family::Inet, "192.0.2.9:1".parse().unwrap());
    let peer = Peer::new(&stack, "192.0.2.9:1", "0.0.0.0:0");
    let syn = (0..3).filter_map(|_| peer.next()).find(|sent| sent.to == peer.here);
    assert_eq!(syn.expect("a SYN").from.ip().to_string(), "10.1.2.3");
}

#[test]
fn the_first_packet_says_who_we_are_if_nothing_else_does() {
    for (flags, answers) in [("linux", true), ("linux,local=192.168.0.1", false)] {
        let stack = Stack::new(flags);
        let fd = stack.socket(libc::AF_INET);
        stack.bind(fd, Family::Inet, "0.0.0.0:8080".parse().unwrap()).unwrap();
        stack.listen(fd, 1).unwrap();
        let peer = Peer::new(&stack, REMOTE, "10.9.8.7:8080");
        peer.send(Flags::SYN, &[]);
        assert_eq!(peer.next().is_some(), answers, "{flags}");
    }
}

#[test]
fn ipv6_is_served_and_mapped_addresses_mean_ipv4() {
    let six = "[fd3d:fa7b:d17d::1]:8080";
    for (local, remote) in [(six, "[2001:db8::1]:40000"), (LOCAL, REMOTE)] {
        let stack = Stack::new("linux");
        let listener = stack.socket(libc::AF_INET6);
        stack.bind(listener, Family::Inet6, local.parse().unwrap()).unwrap();
        stack.listen(listener, 1).unwrap();
        let mut peer = Peer::new(&stack, remote, local);
        peer.open();
        let (fd, address) = stack.accept(listener).unwrap();
        assert_eq!(address, Family::Inet6.encode(peer.here));
        assert_eq!(address.len(), 28);
        stack.write(fd, b"hello").unwrap();
        assert_eq!(peer.expect().text, b"hello");

        let caller = stack.socket(libc::AF_INET6);
        stack.set_nonblocking(caller);
        let connect = stack.connect(caller, Family::Inet6, remote.parse().unwrap());
        assert_eq!(connect, Err(libc::EINPROGRESS));
        let syn = peer.expect();
        assert_eq!((syn.flags, syn.from.is_ipv6()), (Flags::SYN, local == six));
    }
}

#[test]
fn data_is_peeked_spread_skipped_and_not_waited_for() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    assert_eq!(stack.recv(fd, 10, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    peer.text(b"abcdefghij");
    assert_eq!(stack.recv(fd, 4, libc::MSG_PEEK).unwrap(), b"abcd");
    assert_eq!(stack.ioctl(fd, libc::FIONREAD), Ok(10));
    assert_eq!(stack.readv(fd, &[2, 0, 1]).unwrap(), [&b"ab"[..], b"", b"c"]);
    assert_eq!(stack.recv_null(fd, 4, 0), Err(libc::EFAULT));
    assert_eq!(stack.recv_null(fd, 4, libc::MSG_TRUNC), Ok(4), "passed over");
    assert_eq!(stack.recv(fd, 0, 0).unwrap(), b"");
    assert_eq!(stack.read(fd, 100).unwrap(), b"hij");
    assert_eq!(
        stack.recv_null(fd, 4, libc::MSG_DONTWAIT),
        Err(libc::EAGAIN),
        "nothing to fault on"
    );
}

#[test]
fn null_pointers_are_faults() {
    let stack = Stack::new("linux");
    let (_, fd, peer) = accepted(&stack);
    assert_eq!(stack.write_null(fd, 10), Err(libc::EFAULT));
    assert_eq!(stack.write_null(fd, 0), Ok(0));
    assert!(peer.next().is_none(), "and nothing is sent");
}

#[test]
fn reading_goes_on_after_shutdown_and_ends_with_a_zero() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    assert_eq!(stack.shutdown(fd, 3), Err(libc::EINVAL));
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Ok(0));
    assert!(peer.expect().flags.contains(Flags::FIN));
    assert_eq!(stack.ioctl(fd, libc::TIOCOUTQ), Ok(1), "the FIN is not acknowledged");
    assert_eq!(stack.write(fd, b"x"), Err(libc::EPIPE));
    peer.text(b"more");
    assert_eq!(stack.ioctl(fd, libc::TIOCOUTQ), Ok(0));
    assert_eq!(stack.read(fd, 100).unwrap(), b"more");
    peer.fin();
    assert_eq!(stack.read(fd, 100).unwrap(), b"");
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Err(libc::ENOTCONN), "it is over");
}

#[test]
fn reading_that_was_shut_down_gives_zero() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    peer.text(b"unread");
    assert_eq!(stack.shutdown(fd, libc::SHUT_RD), Ok(0));
    assert_eq!(stack.read(fd, 100).unwrap(), b"unread", "what is there can be read");
    assert_eq!(stack.read(fd, 100).unwrap(), b"");
    assert_eq!(stack.write(fd, b"x"), Ok(1));
}

#[test]
fn a_reset_is_told_once_after_what_can_be_read() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    peer.text(b"first");
    peer.send(Flags::RST, &[]);
    assert_eq!(stack.read(fd, 100).unwrap(), b"first");
    assert_eq!(stack.read(fd, 100), Err(libc::ECONNRESET));
    assert_eq!(stack.read(fd, 100).unwrap(), b"");
    assert_eq!(stack.write(fd, b"x"), Err(libc::EPIPE));
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Err(libc::ENOTCONN));
}

#[test]
fn a_reset_after_the_peers_fin_is_a_broken_pipe_for_linux() {
    for (flags, error) in [("linux", libc::EPIPE), ("freebsd", libc::ECONNRESET)] {
        let stack = Stack::new(flags);
        let (_, fd, mut peer) = accepted(&stack);
        peer.fin();
        peer.send(Flags::RST, &[]);
        assert_eq!(stack.write(fd, b"x"), Err(error), "{flags}");
        assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
    }
}

#[test]
fn disconnecting_resets_and_makes_the_socket_new() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let mut unspecified = Family::Inet.encode(LOCAL.parse().unwrap());
    unspecified[..2].copy_from_slice(&(libc::AF_UNSPEC as u16).to_ne_bytes());
    assert_eq!(stack.connect_bytes(fd, &unspecified), Ok(0));
    assert!(peer.expect().flags.contains(Flags::RST));
    assert_eq!(stack.read(fd, 1), Err(libc::ENOTCONN));
    stack.set_nonblocking(fd);
    let again = stack.connect(fd, Family::Inet, "192.0.2.1:41000".parse().unwrap());
    assert_eq!(again, Err(libc::EINPROGRESS));
}

#[test]
fn giving_up_an_open_disconnects() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.set_nonblocking(fd);
    let connect = || stack.connect(fd, Family::Inet, REMOTE.parse().unwrap());
    assert_eq!(connect(), Err(libc::EINPROGRESS));
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Ok(0));
    assert_eq!(stack.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(libc::ECONNRESET));
    assert_eq!(connect(), Err(libc::EINPROGRESS));
}

#[test]
fn closing_with_unread_data_or_without_patience_resets() {
    for linger in [None, Some([1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat())] {
        let stack = Stack::new("linux");
        let (_, fd, mut peer) = accepted(&stack);
        match &linger {
            None => peer.text(b"unread"),
            Some(linger) => {
                stack.set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, linger).unwrap();
            }
        }
        assert_eq!(stack.close(fd), Ok(0));
        let last = std::iter::from_fn(|| peer.next()).last().expect("a segment");
        assert!(last.flags.contains(Flags::RST), "{last:?}");
    }
}

#[test]
fn the_accept_queue_takes_one_more_than_the_backlog() {
    let stack = Stack::new("linux");
    let listener = listening(&stack);
    stack.set_nonblocking(listener);
    for port in 0..4 {
        let mut peer = Peer::new(&stack, &format!("192.0.2.1:{}", 40_000 + port), LOCAL);
        peer.send(Flags::SYN, &[]);
        let Some(answer) = peer.next().filter(|sent| sent.to == peer.here) else { continue };
        peer.seq += 1;
        peer.ack = answer.seq + 1;
        peer.send(Flags::ACK, &[]);
    }
    let accepted = (0..4).filter(|_| stack.accept(listener).is_ok()).count();
    assert_eq!(accepted, 2);
}

#[test]
fn listeners_pass_on_nonblocking_where_the_profile_says_so() {
    for (flags, inherits) in [("linux", false), ("freebsd", true)] {
        let stack = Stack::new(flags);
        let listener = listening(&stack);
        stack.set_nonblocking(listener);
        Peer::new(&stack, REMOTE, LOCAL).open();
        let (fd, _) = stack.accept(listener).unwrap();
        let status = stack.fcntl(fd, libc::F_GETFL, 0).unwrap() as i32;
        assert_eq!(status & libc::O_NONBLOCK != 0, inherits, "{flags}");
    }
}

#[test]
fn a_descriptor_closed_elsewhere_ends_its_socket_when_reused() {
    let mut world = World::new(Profile::parse("linux").unwrap()).unwrap();
    let fd = world.open_socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
    let to = Family::Inet.encode(REMOTE.parse().unwrap());
    assert!(world.connect(fd, &to, true).is_err(), "in progress");
    world.pump();
    assert_eq!(world.host.connections(), 1);
    assert_eq!(libc_close(fd), Ok(0));
    world.add_file(fd, File::Epoll(Epoll::default()));
    world.pump();
    assert_eq!(world.host.connections(), 0);
}

#[test]
fn pipes_are_spliced() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let [out, into] = stack.pipe();
    peer.text(b"through a pipe");
    assert_eq!(stack.splice(fd, into, 100), Ok(14));
    assert_eq!(stack.read(out, 7).unwrap(), b"through");
    assert_eq!(stack.splice(out, fd, 100), Ok(7));
    let sent = std::iter::from_fn(|| peer.next()).find(|sent| !sent.text.is_empty());
    assert_eq!(sent.expect("text").text, b" a pipe");
    assert_eq!(stack.splice(out, into, 1), Err(libc::EINVAL));
    assert_eq!(stack.close(out), Ok(0));
    assert_eq!(stack.close(into), Ok(0));
}

#[test]
fn more_holds_a_small_segment_back() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    assert_eq!(stack.send(fd, b"begun, ", libc::MSG_MORE), Ok(7));
    assert_eq!(stack.send(fd, b"done", 0), Ok(4));
    assert_eq!(peer.expect().text, b"begun, done");
}

#[test]
fn the_end_of_a_record_ends_its_segment() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    for (text, flags) in [(&b"one"[..], libc::MSG_EOR), (b"two", libc::MSG_EOR), (b"three", 0)] {
        assert_eq!(stack.send(fd, text, flags), Ok(text.len() as i64));
    }
    let pushed = Flags::ACK | Flags::PSH;
    for text in [&b"one"[..], b"two"] {
        let sent = peer.expect();
        assert_eq!((sent.flags, &sent.text[..]), (pushed, text));
    }
    peer.send(Flags::ACK, &[]);
    assert_eq!(peer.expect().text, b"three");
}
