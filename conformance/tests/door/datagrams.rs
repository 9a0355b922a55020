//! Sockets for datagrams: the return value of each call, in each state.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use lightwait_conformance::address::Family;
use lightwait_core::wire::checksum::sum;
use lightwait_core::wire::icmpv4::Message;
use lightwait_core::wire::ip::{self, protocol};
use lightwait_core::wire::udp::{Datagram, Header};

use crate::stack::{Stack, libc_name, libc_sendfile};
use crate::{LOCAL, REMOTE};

const SOCKET: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn socket(stack: &Stack, domain: i32) -> i32 {
    stack.socket_of(domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP).expect("a socket") as i32
}

/// A socket at LOCAL.
fn bound(stack: &Stack) -> i32 {
    let fd = socket(stack, libc::AF_INET);
    stack.bind(fd, Family::Inet, at(LOCAL)).expect("a free address");
    fd
}

/// A socket at LOCAL, connected to REMOTE.
fn connected(stack: &Stack) -> i32 {
    let fd = bound(stack);
    stack.connect(fd, Family::Inet, at(REMOTE)).expect("a way");
    fd
}

/// A datagram in its packet.
fn packet(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len();
    let mut packet = Vec::new();
    ip::Header::new(from.ip(), to.ip(), protocol::UDP, len).expect("fits").emit(&mut packet);
    let header = Header { source_port: from.port(), destination_port: to.port(), len: len as u16 };
    header.emit(header.checksum(from.ip(), to.ip(), sum(payload)), &mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// Brings a datagram from REMOTE to LOCAL.
fn arrive(stack: &Stack, payload: &[u8]) {
    stack.packet_in(&packet(at(REMOTE), at(LOCAL), payload));
}

/// Says that the port of a datagram from LOCAL to REMOTE is unreachable.
fn refuse(stack: &Stack) {
    let quoted = packet(at(LOCAL), at(REMOTE), &[0; 10]);
    let message = Message::Unreachable { code: 3, next_hop_mtu: 0, quoted: &quoted };
    let (mut packet, mut payload) = (Vec::new(), Vec::new());
    message.emit(&mut payload);
    let (from, to) = (at(REMOTE).ip(), at(LOCAL).ip());
    let header = ip::Header::new(from, to, protocol::ICMPV4, payload.len());
    header.expect("fits").emit(&mut packet);
    packet.extend_from_slice(&payload);
    stack.packet_in(&packet);
}

/// The next datagram that leaves: its ends and its payload.
fn next(stack: &Stack) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let (packet, _) = stack.packet_out();
    let ip = ip::Packet::parse(&packet).expect("an IP packet");
    let datagram = Datagram::parse(ip.payload).expect("a datagram");
    assert!(datagram.is_sound(ip.source, ip.destination));
    (
        SocketAddr::new(ip.source, datagram.source_port),
        SocketAddr::new(ip.destination, datagram.destination_port),
        datagram.payload.to_vec(),
    )
}

fn is_silent(stack: &Stack) -> bool {
    stack.packet_out().0.is_empty()
}

#[test]
fn datagrams_are_sent_and_received() {
    let stack = Stack::new("linux");
    let fd = bound(&stack);
    assert_eq!(stack.sendto(fd, b"ping", &Family::Inet.encode(at(REMOTE))), Ok(4));
    assert_eq!(next(&stack), (at(LOCAL), at(REMOTE), b"ping".to_vec()));
    arrive(&stack, b"pong!");
    let (bytes, name, len) = stack.recvfrom(fd, 100, 128).unwrap();
    assert_eq!((&bytes[..], len), (&b"pong!"[..], 16));
    assert_eq!(name[..16], Family::Inet.encode(at(REMOTE)));
    // The address is cut to its room, and its length is still all of it.
    arrive(&stack, b"again");
    let (_, name, len) = stack.recvfrom(fd, 100, 4).unwrap();
    assert_eq!((&name[..], len), (&Family::Inet.encode(at(REMOTE))[..4], 16));
    stack.set_nonblocking(fd);
    assert_eq!(stack.read(fd, 100), Err(libc::EAGAIN));
    assert_eq!(stack.close(fd), Ok(0));
    assert_eq!(stack.read(fd, 100), Err(libc::EBADF));
    assert!(is_silent(&stack));
}

#[test]
fn a_socket_without_a_port_gets_one() {
    let stack = Stack::new("linux");
    let fd = socket(&stack, libc::AF_INET);
    assert_eq!(libc_name(fd, false), Ok(Family::Inet.encode(at("0.0.0.0:0"))));
    stack.set_nonblocking(fd);
    assert_eq!(stack.read(fd, 100), Err(libc::EAGAIN));
    assert_eq!(stack.sendto(fd, b"x", &Family::Inet.encode(at(REMOTE))), Ok(1));
    let (from, _, _) = next(&stack);
    assert!(from.port() >= 1024, "{from}");
    let local = Family::Inet.decode(&libc_name(fd, false).unwrap()).unwrap();
    assert_eq!(local, SocketAddr::new(IpAddr::from([0; 4]), from.port()));
    assert_eq!(stack.bind(fd, Family::Inet, at(LOCAL)), Err(libc::EINVAL));
    stack.packet_in(&packet(at(REMOTE), from, b"y"));
    assert_eq!(stack.read(fd, 100).unwrap(), b"y");
}

#[test]
fn a_picked_port_is_given_up_and_a_bound_one_kept() {
    let stack = Stack::new("linux");
    let to_nobody = 0u16.to_ne_bytes();
    let fd = socket(&stack, libc::AF_INET);
    assert_eq!(stack.connect(fd, Family::Inet, at(REMOTE)), Ok(0));
    assert_eq!(libc_name(fd, true), Ok(Family::Inet.encode(at(REMOTE))));
    assert_ne!(libc_name(fd, false), Ok(Family::Inet.encode(at("0.0.0.0:0"))));
    assert_eq!(stack.connect_bytes(fd, &to_nobody), Ok(0));
    assert_eq!(libc_name(fd, true), Err(libc::ENOTCONN));
    assert_eq!(libc_name(fd, false), Ok(Family::Inet.encode(at("0.0.0.0:0"))));
    assert_eq!(stack.bind(fd, Family::Inet, at(LOCAL)), Ok(0));
    assert_eq!(stack.connect(fd, Family::Inet, at(REMOTE)), Ok(0));
    arrive(&stack, b"kept");
    assert_eq!(stack.connect_bytes(fd, &to_nobody), Ok(0));
    assert_eq!(libc_name(fd, false), Ok(Family::Inet.encode(at(LOCAL))));
    assert_eq!(stack.read(fd, 100).unwrap(), b"kept");
    assert_eq!(stack.write(fd, b"x"), Err(libc::EDESTADDRREQ));
}

#[test]
fn names_of_streams_and_of_the_kernel_are_told_too() {
    let stack = Stack::new("linux");
    let (_, fd, peer) = crate::accepted(&stack);
    assert_eq!(libc_name(fd, false), Ok(Family::Inet.encode(peer.there)));
    assert_eq!(libc_name(fd, true), Ok(Family::Inet.encode(peer.here)));
    let kernel = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket of the kernel");
    let local = kernel.local_addr().expect("its name, by the function that is ours");
    assert!(local.ip().is_loopback() && local.port() > 0);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let stack = Stack::new("linux");
    let fd = bound(&stack);
    let to = Family::Inet.encode(at(REMOTE));
    assert_eq!(stack.write(fd, b"x"), Err(libc::EDESTADDRREQ));
    assert_eq!(stack.sendto(fd, b"x", &to[..8]), Err(libc::EINVAL));
    assert_eq!(stack.sendto(fd, b"x", &Family::Inet.encode(at("192.0.2.1:0"))), Err(libc::EINVAL));
    let v6 = Family::Inet6.encode(at("[2001:db8::1]:9"));
    assert_eq!(stack.sendto(fd, b"x", &v6), Err(libc::EAFNOSUPPORT));
    assert_eq!(stack.sendto(fd, &[0; 65_508], &to), Err(libc::EMSGSIZE));
    assert_eq!(stack.sendto(fd, &[0; 70_000], &to), Err(libc::EMSGSIZE));
    let loopback = Family::Inet.encode(at("127.0.0.1:9"));
    assert_eq!(stack.sendto(fd, b"x", &loopback), Err(libc::ENETUNREACH));
    let broadcast = Family::Inet.encode(at("255.255.255.255:9"));
    assert_eq!(stack.sendto(fd, b"x", &broadcast), Err(libc::EACCES));
    stack.connect(fd, Family::Inet, at(REMOTE)).unwrap();
    for flag in [libc::MSG_OOB, libc::MSG_MORE] {
        assert_eq!(stack.send(fd, b"x", flag), Err(libc::EOPNOTSUPP));
    }
    assert_eq!(stack.write_null(fd, 3), Err(libc::EFAULT));
    assert_eq!(stack.listen(fd, 1), Err(libc::EOPNOTSUPP));
    assert_eq!(stack.accept(fd), Err(libc::EOPNOTSUPP));
    assert!(is_silent(&stack));
}

#[test]
fn a_refused_datagram_is_told_of_once() {
    let stack = Stack::new("linux");
    let fd = connected(&stack);
    stack.set_nonblocking(fd);
    assert_eq!(stack.write(fd, &[0; 10]), Ok(10));
    next(&stack);
    refuse(&stack);
    assert_eq!(stack.poll(fd, libc::POLLIN, 0), Ok(libc::POLLERR));
    assert_eq!(stack.get(fd, SOCKET, libc::SO_ERROR), Ok(libc::ECONNREFUSED));
    assert_eq!(stack.get(fd, SOCKET, libc::SO_ERROR), Ok(0));
    assert_eq!(stack.poll(fd, libc::POLLIN, 0), Ok(0));
    refuse(&stack);
    assert_eq!(stack.write(fd, b"x"), Err(libc::ECONNREFUSED));
    refuse(&stack);
    assert_eq!(stack.read(fd, 1), Err(libc::ECONNREFUSED));
    assert_eq!(stack.read(fd, 1), Err(libc::EAGAIN));
    refuse(&stack);
    assert_eq!(stack.recvmsg(fd, 1, 0, libc::MSG_ERRQUEUE), Err(libc::EAGAIN), "nothing is there");
    assert_eq!(stack.recvmsg(fd, 1, 0, 0), Err(libc::ECONNREFUSED));
}

#[test]
fn a_call_waits_for_a_datagram_and_no_longer_than_it_may() {
    let stack = Stack::new("linux");
    let fd = bound(&stack);
    let limit = [0i64.to_ne_bytes(), 200_000i64.to_ne_bytes()].concat();
    stack.set_option(fd, SOCKET, libc::SO_RCVTIMEO, &limit).unwrap();
    let before = stack.time();
    assert_eq!(stack.read(fd, 1), Err(libc::EAGAIN));
    assert!((200_000..201_000).contains(&(stack.time() - before)));
    stack.set_option(fd, SOCKET, libc::SO_RCVTIMEO, &[0; 16]).unwrap();
    let reader = std::thread::spawn({
        let stack = stack.clone();
        move || (stack.read(fd, 100), stack.time())
    });
    stack.usleep(300_000);
    let sent_at = stack.time();
    arrive(&stack, b"late");
    let (read, at) = reader.join().expect("no panic");
    assert_eq!(read.unwrap(), b"late");
    assert!((sent_at..sent_at + 10).contains(&at), "{sent_at} {at}");
}

#[test]
fn what_has_no_room_is_lost_and_told_of() {
    let stack = Stack::new("linux");
    let fd = bound(&stack);
    for _ in 0..4 {
        arrive(&stack, b"0123456789");
    }
    assert_eq!(stack.ioctl(fd, libc::FIONREAD), Ok(10));
    assert_eq!(stack.recv(fd, 4, libc::MSG_PEEK).unwrap(), b"0123");
    assert_eq!(stack.recv(fd, 4, 0).unwrap(), b"0123");
    let message = stack.recvmsg(fd, 4, 0, 0).unwrap();
    assert_eq!((message.result, message.flags), (4, libc::MSG_TRUNC));
    assert_eq!(message.name, Family::Inet.encode(at(REMOTE)));
    let message = stack.recvmsg(fd, 4, 0, libc::MSG_TRUNC).unwrap();
    assert_eq!((message.result, message.flags), (10, libc::MSG_TRUNC));
    assert_eq!(stack.recv_null(fd, 4, 0), Err(libc::EFAULT));
    stack.set_nonblocking(fd);
    assert_eq!(stack.read(fd, 4), Err(libc::EAGAIN), "a fault takes it, as in Linux");
    assert_eq!(stack.ioctl(fd, libc::FIONREAD), Ok(0));
    assert_eq!(stack.ioctl(fd, libc::TIOCOUTQ), Ok(0));
    assert_eq!(stack.ioctl(fd, 0x8905), Err(libc::ENOTTY), "SIOCATMARK");
    arrive(&stack, b"");
    assert_eq!(stack.read(fd, 0).unwrap(), b"", "takes none");
    assert_eq!(stack.readv(fd, &[0, 0]).unwrap(), [b"", b""], "nor does this");
    assert_eq!(stack.poll(fd, libc::POLLIN, 0), Ok(libc::POLLIN));
    assert_eq!(stack.recv(fd, 0, 0).unwrap(), b"");
    assert_eq!(stack.read(fd, 4), Err(libc::EAGAIN));
}

#[test]
fn options_are_set_read_back_and_refused() {
    let stack = Stack::new("linux");
    let (v4, v6) = (socket(&stack, libc::AF_INET), socket(&stack, libc::AF_INET6));
    assert_eq!(stack.get(v4, SOCKET, libc::SO_TYPE), Ok(libc::SOCK_DGRAM));
    assert_eq!(stack.get(v4, SOCKET, libc::SO_PROTOCOL), Ok(libc::IPPROTO_UDP));
    assert_eq!(stack.get(v4, SOCKET, libc::SO_RCVBUF), Ok(212_992));
    for (level, name, set, told) in [
        (SOCKET, libc::SO_RCVBUF, 3_000, 6_000),
        (SOCKET, libc::SO_SNDBUF, 5_000, 10_000),
        (SOCKET, libc::SO_REUSEADDR, 1, 1),
        (SOCKET, libc::SO_BROADCAST, 1, 1),
        (IP, libc::IP_TTL, 7, 7),
        (IP, libc::IP_TTL, -1, -1),
        (IP, libc::IP_TOS, 0xff, 0xff),
        (IP, libc::IP_PKTINFO, 1, 1),
        (IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_DO),
        (libc::SOL_UDP, libc::UDP_SEGMENT, 900, 900),
        (libc::SOL_UDP, libc::UDP_GRO, 1, 1),
        (IPV6, libc::IPV6_UNICAST_HOPS, 9, 9),
        (IPV6, libc::IPV6_TCLASS, 0x20, 0x20),
        (IPV6, libc::IPV6_V6ONLY, 1, 1),
        (IPV6, libc::IPV6_RECVPKTINFO, 1, 1),
    ] {
        let fd = if level == IPV6 { v6 } else { v4 };
        assert_eq!(stack.set(fd, level, name, set), Ok(0), "{level} {name}");
        assert_eq!(stack.get(fd, level, name), Ok(told), "{level} {name}");
    }
    for (level, name, value, error) in [
        (IP, libc::IP_TTL, 0, libc::EINVAL),
        (IP, libc::IP_TTL, 256, libc::EINVAL),
        (IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT, libc::EINVAL),
        (IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, libc::EINVAL),
        (IP, libc::IP_RECVERR, 1, libc::ENOPROTOOPT),
        (IP, libc::IP_RECVTTL, 1, libc::ENOPROTOOPT),
        (IPV6, libc::IPV6_V6ONLY, 1, libc::ENOPROTOOPT),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, libc::ENOPROTOOPT),
        (SOCKET, libc::SO_NO_CHECK, 1, libc::ENOPROTOOPT),
        (SOCKET, libc::SO_TIMESTAMP, 1, libc::ENOPROTOOPT),
        (libc::SOL_UDP, libc::UDP_CORK, 1, libc::ENOPROTOOPT),
        (libc::SOL_UDP, libc::UDP_SEGMENT, 65_536, libc::EINVAL),
        (libc::SOL_UDP, libc::UDP_SEGMENT, -1, libc::EINVAL),
    ] {
        assert_eq!(stack.set(v4, level, name, value), Err(error), "{level} {name} {value}");
    }
    for (level, name) in [
        (libc::IPPROTO_TCP, libc::TCP_INFO),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
        (SOCKET, libc::SO_MEMINFO),
    ] {
        assert_eq!(stack.option(v4, level, name, 64), Err(libc::ENOPROTOOPT), "{level} {name}");
    }
    assert_eq!(stack.get(v4, IP, libc::IP_MTU), Err(libc::ENOTCONN));
    assert_eq!(stack.bind(v6, Family::Inet6, at("[::]:9")), Ok(0));
    assert_eq!(stack.set(v6, IPV6, libc::IPV6_V6ONLY, 0), Err(libc::EINVAL), "it has a port");
}

#[test]
fn an_option_set_later_holds_for_what_is_sent_later() {
    let stack = Stack::new("linux");
    let fd = connected(&stack);
    let ttl = || {
        stack.write(fd, b"x").unwrap();
        stack.packet_out().0[8]
    };
    assert_eq!(ttl(), 64);
    stack.set_option(fd, IP, libc::IP_TTL, &[5]).expect("a single byte will do");
    assert_eq!(ttl(), 5);
    stack.set(fd, IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO).unwrap();
    assert_eq!(stack.write(fd, &[0; 1473]), Err(libc::EMSGSIZE));
    assert_eq!(stack.get(fd, IP, libc::IP_MTU), Ok(1500));
}

#[test]
fn control_messages_tell_and_choose_the_address() {
    let stack = Stack::new("linux");
    let fd = socket(&stack, libc::AF_INET);
    stack.bind(fd, Family::Inet, at("0.0.0.0:8080")).unwrap();
    stack.set(fd, IP, libc::IP_PKTINFO, 1).unwrap();
    stack.set(fd, IP, libc::IP_RECVTOS, 1).unwrap();
    for _ in 0..3 {
        arrive(&stack, b"x");
    }
    let ours = [192, 168, 7, 9];
    let message = stack.recvmsg(fd, 10, 100, 0).unwrap();
    assert_eq!((message.result, message.flags, message.control.len()), (1, 0, 32 + 24));
    assert_eq!(message.control[16..28], [&[1, 0, 0, 0], &ours[..], &ours[..]].concat());
    // Cut to the room that there is, and said so.
    let cut = stack.recvmsg(fd, 10, 40, 0).unwrap();
    assert_eq!((cut.flags, cut.control.len()), (libc::MSG_CTRUNC, 32));
    let none = stack.recvmsg(fd, 10, 0, 0).unwrap();
    assert_eq!((none.flags, none.control.len()), (libc::MSG_CTRUNC, 0));

    let to = Family::Inet.encode(at(REMOTE));
    let info = |device: u32, from: [u8; 4]| {
        let (len, level, kind) = (28u64.to_ne_bytes(), IP.to_ne_bytes(), libc::IP_PKTINFO);
        [&len[..], &level, &kind.to_ne_bytes(), &device.to_ne_bytes(), &from, &[0; 4]].concat()
    };
    let send = |control: &[u8]| stack.sendmsg(fd, &[b"a", b"bc"], Some(&to), control, 0);
    assert_eq!(send(&info(0, [192, 168, 1, 1])), Ok(3));
    assert_eq!(next(&stack), (at("192.168.1.1:8080"), at(REMOTE), b"abc".to_vec()));
    assert_eq!(send(&info(1, [0; 4])), Ok(3));
    assert_eq!(next(&stack).0, at(LOCAL));
    assert_eq!(send(&info(2, [0; 4])), Err(libc::ENODEV));
    assert_eq!(send(&info(0, [10, 0, 0, 1])), Err(libc::EINVAL));
    assert_eq!(send(&info(0, [0; 4])[..20]), Err(libc::EINVAL), "longer than it is");
}

#[test]
fn one_call_sends_several_and_reads_several() {
    let stack = Stack::new("linux");
    let fd = connected(&stack);
    stack.set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 3).unwrap();
    assert_eq!(stack.write(fd, b"aaabbbc"), Ok(7));
    for text in [&b"aaa"[..], b"bbb", b"c"] {
        assert_eq!(next(&stack).2, text);
    }
    assert_eq!(stack.write(fd, b"xyz"), Ok(3), "no more than one");
    assert_eq!(next(&stack).2, b"xyz");
    assert_eq!(stack.write(fd, &[0; 193]), Err(libc::EINVAL), "more than 64");
    // A control message says otherwise for one call.
    let head = (18u64.to_ne_bytes(), libc::SOL_UDP.to_ne_bytes(), libc::UDP_SEGMENT.to_ne_bytes());
    let control = [&head.0[..], &head.1, &head.2, &5u16.to_ne_bytes()].concat();
    assert_eq!(stack.sendmsg(fd, &[b"aaaaab"], None, &control, 0), Ok(6));
    assert_eq!((next(&stack).2.len(), next(&stack).2.len()), (5, 1));

    stack.set(fd, libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
    for text in [&b"aa"[..], b"bb", b"c", b"dd"] {
        arrive(&stack, text);
    }
    let message = stack.recvmsg(fd, 100, 100, 0).unwrap();
    assert_eq!((&message.bytes[..], message.flags), (&b"aabbc"[..], 0));
    assert_eq!(message.control[16..20], 2i32.to_ne_bytes());
    let message = stack.recvmsg(fd, 100, 100, 0).unwrap();
    assert_eq!((&message.bytes[..], message.control.len()), (&b"dd"[..], 0));
}

#[test]
fn both_versions_meet_in_a_socket_of_ipv6_unless_told_apart() {
    let stack = Stack::new("linux");
    let any = at("[::]:8080");
    let (both, v4) = (socket(&stack, libc::AF_INET6), socket(&stack, libc::AF_INET));
    stack.bind(both, Family::Inet6, any).unwrap();
    assert_eq!(stack.bind(v4, Family::Inet, at("0.0.0.0:8080")), Err(libc::EADDRINUSE));
    arrive(&stack, b"four");
    let (_, name, _) = stack.recvfrom(both, 100, 28).unwrap();
    assert_eq!(name, Family::Inet6.encode(at(REMOTE)));
    assert_eq!(stack.sendto(both, b"x", &Family::Inet.encode(at(REMOTE))), Ok(1), "or plain");
    assert_eq!(next(&stack).1, at(REMOTE));
    assert_eq!(stack.close(both), Ok(0));

    let only = socket(&stack, libc::AF_INET6);
    stack.set(only, IPV6, libc::IPV6_V6ONLY, 1).unwrap();
    assert_eq!(stack.bind(only, Family::Inet6, at(LOCAL)), Err(libc::EINVAL));
    stack.bind(only, Family::Inet6, any).unwrap();
    assert_eq!(stack.bind(v4, Family::Inet, at("0.0.0.0:8080")), Ok(0));
    let mapped = Family::Inet6.encode(at(REMOTE));
    assert_eq!(stack.sendto(only, b"x", &mapped), Err(libc::ENETUNREACH));
    assert_eq!(stack.connect_bytes(only, &mapped), Err(libc::ENETUNREACH));
}

#[test]
fn shutting_down_ends_what_would_wait() {
    let stack = Stack::new("linux");
    let fd = bound(&stack);
    assert_eq!(stack.shutdown(fd, 7), Err(libc::EINVAL));
    assert_eq!(stack.shutdown(fd, libc::SHUT_RDWR), Err(libc::ENOTCONN));
    assert_eq!(stack.read(fd, 1).unwrap(), b"", "and yet");
    assert_eq!(stack.sendto(fd, b"x", &Family::Inet.encode(at(REMOTE))), Err(libc::EPIPE));
    let fd = {
        stack.close(fd).unwrap();
        connected(&stack)
    };
    assert_eq!(stack.shutdown(fd, libc::SHUT_WR), Ok(0));
    assert_eq!(stack.write(fd, b"x"), Err(libc::EPIPE));
    arrive(&stack, b"in");
    assert_eq!(stack.read(fd, 10).unwrap(), b"in");
}

#[test]
fn files_and_pipes_do_not_go_into_datagrams() {
    let stack = Stack::new("linux");
    let fd = connected(&stack);
    let [from, to] = stack.pipe();
    assert_eq!(stack.splice(fd, to, 10), Err(libc::EINVAL));
    assert_eq!(stack.splice(from, fd, 10), Err(libc::EINVAL));
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(libc_sendfile(fd, file.as_raw_fd(), 10), Err(libc::EINVAL));
    for end in [from, to] {
        stack.close(end).unwrap();
    }
}
