//! Options: a value that is set can be read back, and has an effect.

use std::time::Duration;

use lightwait_conformance::address::Family;
use lightwait_core::flow::Seq;
use lightwait_core::wire::options::{Options, SackBlock};
use lightwait_core::wire::tcp::Flags;

use crate::peer::Peer;
use crate::stack::{Stack, libc_option};
use crate::{LOCAL, REMOTE, accepted, listening};

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;

#[test]
fn what_is_set_is_read_back() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET6);
    let cases = [
        (SOCKET, libc::SO_REUSEADDR, 1, 1),
        (SOCKET, libc::SO_KEEPALIVE, 1, 1),
        (SOCKET, libc::SO_RCVBUF, 20_000, 40_000),
        (SOCKET, libc::SO_SNDBUF, 30_000, 60_000),
        (TCP, libc::TCP_NODELAY, 1, 1),
        (TCP, libc::TCP_CORK, 1, 1),
        (TCP, libc::TCP_QUICKACK, 0, 0),
        (TCP, libc::TCP_MAXSEG, 1_000, 1_000),
        (TCP, libc::TCP_KEEPIDLE, 5, 5),
        (TCP, libc::TCP_KEEPINTVL, 6, 6),
        (TCP, libc::TCP_KEEPCNT, 7, 7),
        (TCP, libc::TCP_USER_TIMEOUT, 3_000, 3_000),
        (TCP, libc::TCP_LINGER2, 8, 8),
        (TCP, libc::TCP_SYNCNT, 3, 3),
        (TCP, libc::TCP_NOTSENT_LOWAT, -1, -1),
        (IP, libc::IP_TOS, 0x10, 0x10),
        (IPV6, libc::IPV6_TCLASS, 0x20, 0x20),
        (IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT, libc::IP_PMTUDISC_DONT),
    ];
    for (level, name, set, told) in cases {
        assert_eq!(stack.set(fd, level, name, set), Ok(0), "{level} {name}");
        assert_eq!(stack.get(fd, level, name), Ok(told), "{level} {name}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    let cases = [
        (TCP, libc::TCP_MAXSEG, 87, libc::EINVAL),
        (TCP, libc::TCP_MAXSEG, 32_768, libc::EINVAL),
        (TCP, libc::TCP_KEEPIDLE, 0, libc::EINVAL),
        (TCP, libc::TCP_KEEPIDLE, 32_768, libc::EINVAL),
        (TCP, libc::TCP_KEEPCNT, 128, libc::EINVAL),
        (TCP, libc::TCP_USER_TIMEOUT, -1, libc::EINVAL),
        (TCP, 9_999, 1, libc::ENOPROTOOPT),
        (SOCKET, 9_999, 1, libc::ENOPROTOOPT),
        (IPV6, libc::IPV6_TCLASS, 1, libc::ENOPROTOOPT),
    ];
    for (level, name, value, error) in cases {
        assert_eq!(stack.set(fd, level, name, value), Err(error), "{level} {name} {value}");
    }
    for (name, value) in [(libc::TCP_MAXSEG, 88), (libc::TCP_KEEPCNT, 127)] {
        assert_eq!(stack.set(fd, TCP, name, value), Ok(0));
    }
    assert_eq!(stack.get(fd, TCP, 9_999), Err(libc::ENOPROTOOPT));
    assert_eq!(stack.set_option(fd, TCP, libc::TCP_NODELAY, &[1]), Err(libc::EINVAL), "too short");
}

#[test]
fn structures_and_names_are_read_back() {
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    let linger = [1i32.to_ne_bytes(), 7i32.to_ne_bytes()].concat();
    stack.set_option(fd, SOCKET, libc::SO_LINGER, &linger).unwrap();
    assert_eq!(stack.option(fd, SOCKET, libc::SO_LINGER, 8), Ok(linger));
    assert_eq!(stack.option(fd, TCP, libc::TCP_CONGESTION, 5), Ok(b"cubic".to_vec()));
    for name in [&b"reno"[..], b"newreno\0"] {
        assert_eq!(stack.set_option(fd, TCP, libc::TCP_CONGESTION, name), Ok(0));
        assert_eq!(stack.option(fd, TCP, libc::TCP_CONGESTION, 16).unwrap()[..5], *b"reno\0");
    }
    assert_eq!(stack.option(fd, IP, libc::IP_TOS, 1), Ok(vec![0]), "a byte, where one fits");
}

#[test]
fn a_pacing_rate_has_four_bytes_or_eight() {
    const RATE: libc::c_int = libc::SO_MAX_PACING_RATE;
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    let wide = |fd| stack.option(fd, SOCKET, RATE, 8).unwrap();
    assert_eq!(wide(fd), u64::MAX.to_ne_bytes());
    let large = 5_000_000_000_u64;
    stack.set_option(fd, SOCKET, RATE, &large.to_ne_bytes()).unwrap();
    assert_eq!((wide(fd), stack.get(fd, SOCKET, RATE)), (large.to_ne_bytes().to_vec(), Ok(-1)));
    stack.set_option(fd, SOCKET, RATE, &70_000_u32.to_ne_bytes()).unwrap();
    assert_eq!(
        (wide(fd), stack.get(fd, SOCKET, RATE)),
        (70_000_u64.to_ne_bytes().to_vec(), Ok(70_000))
    );
    stack.set_option(fd, SOCKET, RATE, &u32::MAX.to_ne_bytes()).unwrap();
    assert_eq!(wide(fd), u64::MAX.to_ne_bytes());
    assert_eq!(stack.set_option(fd, SOCKET, RATE, &[1, 2]), Err(libc::EINVAL));
}

#[test]
fn the_congestion_control_is_set_and_read_back_by_linuxs_names() {
    let stack = Stack::new("linux");
    let (_, fd, _peer) = accepted(&stack);
    let name = |fd| {
        let name = stack.option(fd, TCP, libc::TCP_CONGESTION, 16).unwrap();
        name.split(|byte| *byte == 0).next().unwrap().to_vec()
    };
    for algorithm in [&b"bbr"[..], b"dctcp", b"reno", b"cubic"] {
        assert_eq!(stack.set_option(fd, TCP, libc::TCP_CONGESTION, algorithm), Ok(0));
        assert_eq!(name(fd), algorithm);
    }
    for unknown in [&b"vegas"[..], b"BBR", b"", b"\xff"] {
        let set = stack.set_option(fd, TCP, libc::TCP_CONGESTION, unknown);
        assert_eq!((set, name(fd)), (Err(libc::ENOENT), b"cubic".to_vec()));
    }
}

#[test]
fn buffers_are_told_as_the_profile_tells_them() {
    let stack = Stack::new("freebsd");
    let fd = stack.socket(libc::AF_INET);
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(65_536));
    let (_, fd, _peer) = accepted(&stack);
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(65_700), "a multiple of the MSS");
    stack.set(fd, SOCKET, libc::SO_RCVBUF, 10_000).unwrap();
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(10_000));
}

#[test]
fn the_first_acks_are_delayed_where_the_system_delays_them() {
    for (flags, delay_us) in [("freebsd", 40_000), ("linux", 0)] {
        let stack = Stack::new(flags);
        let (_, _fd, mut peer) = accepted(&stack);
        let start = stack.time();
        peer.text(b"first");
        let waited = peer.expect().at - start;
        assert!((delay_us..delay_us + 1_000).contains(&waited), "{flags}: {waited}");
    }
}

#[test]
fn buffers_are_rounded_as_soon_as_the_mss_is_known() {
    let stack = Stack::new("freebsd");
    let fd = stack.socket_of(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
    let fd = fd as i32;
    let there = REMOTE.parse().unwrap();
    assert_eq!(stack.connect(fd, Family::Inet, there), Err(libc::EINPROGRESS));
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    peer.there = peer.expect().from;
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(65_536));
    // The peer's SYN meets ours.
    let options = Options { mss: Some(1460), ..Options::default() };
    peer.send_at(peer.seq, Flags::SYN, options, &[]);
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(65_700), "in SYN-RECEIVED");
}

#[test]
fn a_listeners_options_count_for_what_it_accepts() {
    let stack = Stack::new("linux");
    let listener = listening(&stack);
    stack.set(listener, TCP, libc::TCP_MAXSEG, 1_000).unwrap();
    stack.set(listener, TCP, libc::TCP_NODELAY, 1).unwrap();
    stack.set(listener, SOCKET, libc::SO_RCVBUF, 5_000).unwrap();
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    peer.send(Flags::SYN, &[]);
    let answer = peer.expect();
    assert_eq!(answer.options.mss, Some(1_000));
    assert_eq!(answer.window, 5_000);
    peer.seq += 1;
    peer.send(Flags::ACK, &[]);
    let (fd, _) = stack.accept(listener).unwrap();
    assert_eq!(stack.get(fd, TCP, libc::TCP_NODELAY), Ok(1));
    assert_eq!(stack.get(fd, SOCKET, libc::SO_RCVBUF), Ok(10_000));
}

#[test]
fn quick_acks_are_switched_on_and_off() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    for (quick, delayed) in [(1, false), (0, true)] {
        stack.set(fd, TCP, libc::TCP_QUICKACK, quick).unwrap();
        let start = stack.time();
        peer.text(b"x");
        let ack = peer.expect();
        assert_eq!(ack.at - start > 1_000, delayed, "{}", ack.at - start);
    }
}

#[test]
fn uncorking_sends_what_was_held_back() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.set(fd, TCP, libc::TCP_CORK, 1).unwrap();
    stack.write(fd, b"held").unwrap();
    stack.usleep(1_000);
    let start = stack.time();
    stack.set(fd, TCP, libc::TCP_CORK, 0).unwrap();
    let sent = peer.expect();
    assert_eq!(sent.text, b"held");
    assert!((sent.at - start).abs() <= 1);
}

#[test]
fn keepalives_are_sent_when_asked_for() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.set(fd, TCP, libc::TCP_KEEPIDLE, 3).unwrap();
    let start = stack.time();
    stack.set(fd, SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
    let probe = peer.expect();
    let waited = Duration::from_micros((probe.at - start) as u64);
    assert!(waited.abs_diff(Duration::from_secs(3)) < Duration::from_millis(50), "{waited:?}");
}

fn u32_at(info: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(info[offset..offset + 4].try_into().expect("four bytes"))
}

#[test]
fn libcs_getsockopt_tells_tcp_info_in_linuxs_layout() {
    let stack = Stack::new("linux");
    let (listener, fd, mut peer) = accepted(&stack);
    stack.write(fd, &[0; 10 * 1460]).unwrap();
    let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
    assert_eq!(info.len(), 280);
    assert_eq!((info[0], info[1]), (1, 0), "ESTABLISHED, open");
    assert_eq!(u32_at(&info, 16), 1460, "snd_mss");
    assert_eq!(u32_at(&info, 20), 536, "rcv_mss");
    assert_eq!(u32_at(&info, 24), 10, "unacked");
    assert_eq!(u32_at(&info, 76), 0x7fff_ffff, "snd_ssthresh: seven tenths");
    assert_eq!(u32_at(&info, 80), 10, "snd_cwnd");
    assert_eq!(u32_at(&info, 84), 1460, "advmss");
    assert_eq!(u32_at(&info, 88), 3, "reordering");
    peer.expect();
    peer.send(Flags::ACK, &[]);
    let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
    assert_eq!(u32_at(&info, 24), 9, "one is acknowledged");
    assert_eq!(u32_at(&info, 80), 11, "and the window has grown");
    assert_eq!(info[120], 1460u32.to_ne_bytes()[0], "bytes_acked");

    assert_eq!(libc_option(fd, TCP, libc::TCP_CC_INFO, 20), Ok(vec![]));
    let memory = libc_option(fd, SOCKET, libc::SO_MEMINFO, 36).unwrap();
    assert_eq!(u32_at(&memory, 20), 9 * 1460, "wmem_queued");
    let info = libc_option(listener, TCP, libc::TCP_INFO, 104).unwrap();
    assert_eq!((info.len(), info[0], u32_at(&info, 28)), (104, 10, 1), "LISTEN, backlog");
}

#[test]
fn tcp_info_tells_what_the_sender_has_waited_for() {
    let u64_at = |info: &[u8], offset: usize| {
        u64::from_ne_bytes(info[offset..offset + 8].try_into().expect("eight bytes"))
    };
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    peer.window = 2 * 1460;
    peer.text(b"x");
    stack.write(fd, &[0; 3 * 1460]).unwrap();
    stack.usleep(100_000);
    let sent: usize = (0..3).map(|_| peer.expect().text.len()).sum();
    assert_eq!(sent, 2 * 1460, "and an ACK");
    peer.window = 60_000;
    peer.send(Flags::ACK, &[]);
    assert_eq!(peer.expect().text.len(), 1460);
    stack.usleep(50_000);
    peer.send(Flags::ACK, &[]);
    stack.usleep(70_000);
    let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
    let (busy, window_limited) = (u64_at(&info, 168), u64_at(&info, 176));
    assert!((100_000..100_010).contains(&window_limited), "{window_limited}");
    assert!((150_000..150_010).contains(&busy), "{busy}");
    assert_eq!(u64_at(&info, 184), 0, "never by the send buffer");
    assert_eq!(u32_at(&info, 52), 220, "ms since data has come");
}

#[test]
fn a_full_send_buffer_limits_when_the_network_would_take_more() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.set_nonblocking(fd);
    stack.set(fd, SOCKET, libc::SO_SNDBUF, 3_000).unwrap();
    assert_eq!(stack.write(fd, &[0; 10_000]), Ok(3_000));
    stack.usleep(40_000);
    while peer.expect().text.len() == 1460 {}
    peer.send(Flags::ACK, &[]);
    stack.usleep(40_000);
    let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
    let limited = u64::from_ne_bytes(info[184..192].try_into().expect("eight bytes"));
    assert!((40_000..40_010).contains(&limited), "{limited}");
}

#[test]
fn segments_are_counted_in_tcp_info_as_the_device_cuts_them() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    // Segments out and in, those with data in and out.
    let counted = |fd| {
        let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
        [136, 140, 152, 156].map(|offset| u32_at(&info, offset))
    };
    assert_eq!(counted(fd), [0, 1, 0, 0], "the ACK of the handshake");
    stack.write(fd, &[0; 4 * 1460 + 1]).unwrap();
    let sent: Vec<_> = (0..5).map(|_| peer.expect()).collect();
    assert_eq!(sent.len() as u32, counted(fd)[0]);
    assert_eq!(counted(fd), [5, 1, 0, 5]);
    peer.text(b"x");
    peer.expect();
    assert_eq!(counted(fd), [6, 2, 1, 5], "and an ACK");
    peer.send(Flags::RST | Flags::ACK, &[]);
    assert_eq!(counted(fd), [6, 2, 1, 5], "what was counted before the end is kept");
}

#[test]
fn loss_shows_in_tcp_info() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.write(fd, &[0; 10 * 1460]).unwrap();
    let una = peer.ack;
    for _ in 0..10 {
        peer.expect();
    }
    peer.ack = una;
    for _ in 0..3 {
        peer.send(Flags::ACK, &[]);
    }
    let info = libc_option(fd, TCP, libc::TCP_INFO, 104).unwrap();
    assert_eq!(info[1], 3, "recovery");
    assert_eq!(u32_at(&info, 36), 1, "retrans");
    assert_eq!(u32_at(&info, 100), 1, "total_retrans");
    assert_eq!(u32_at(&info, 76), 7, "snd_ssthresh: seven tenths");
}

#[test]
fn reordering_shows_in_tcp_info() {
    let stack = Stack::new("linux");
    let listener = listening(&stack);
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    let options = Options { mss: Some(1460), sack_permitted: true, ..Options::default() };
    peer.open_with(options);
    let (fd, _) = stack.accept(listener).unwrap();
    let reordering = |fd| {
        let info = libc_option(fd, TCP, libc::TCP_INFO, 280).unwrap();
        (u32_at(&info, 88), u32_at(&info, 220))
    };
    assert_eq!(reordering(fd), (3, 0), "Linux's first metric");
    // So many segments overtake the first, which arrives 1 ms later. More than two show a loss
    // until the path is known to reorder.
    for (segments, told) in [(2, (3, 1)), (5, (6, 2)), (4, (6, 3))] {
        let una = peer.ack;
        let at = |segments: u32| una.wrapping_add(segments * 1460);
        stack.write(fd, &[0; 6 * 1460]).unwrap();
        for _ in 0..6 {
            peer.expect();
        }
        let mut sack = Options::default();
        sack.sack.push(SackBlock { start: Seq(at(1)), end: Seq(at(1 + segments)) });
        stack.usleep(10_000);
        peer.ack = una;
        peer.send_at(peer.seq, Flags::ACK, sack, &[]);
        stack.usleep(1_000);
        peer.ack = at(6);
        peer.send(Flags::ACK, &[]);
        assert_eq!(reordering(fd), told);
    }
}

#[test]
fn libcs_getsockopt_still_serves_the_kernels_sockets() {
    use std::os::fd::AsRawFd;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = listener.as_raw_fd();
    let one = 1i32.to_ne_bytes().to_vec();
    assert_eq!(libc_option(fd, SOCKET, libc::SO_ACCEPTCONN, 4), Ok(one));
    assert_eq!(libc_option(-1, SOCKET, libc::SO_ACCEPTCONN, 4), Err(libc::EBADF));
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(libc_option(null.as_raw_fd(), SOCKET, libc::SO_TYPE, 4), Err(libc::ENOTSOCK));
}

#[test]
fn several_doors_live_in_one_process() {
    let (a, b) = (Stack::new("linux"), Stack::new("freebsd"));
    let (in_a, in_b) = (a.socket(libc::AF_INET), b.socket(libc::AF_INET));
    let size = |fd| u32_at(&libc_option(fd, SOCKET, libc::SO_RCVBUF, 4).unwrap(), 0);
    assert_eq!((size(in_a), size(in_b)), (131_072, 65_536));
    assert_eq!(a.listen(in_b, 1), Err(libc::EBADF));
}

#[test]
fn flags_that_make_no_sense_open_no_door() {
    for flags in ["linux,unheard_of=1", "windows", "linux,rto.floor=soon"] {
        assert_eq!(Stack::try_new(flags).err(), Some(libc::EINVAL), "{flags}");
    }
    for flags in ["", "linux,rto.floor=30ms", "freebsd,quirks.insecure_rst,quirks.insecure_syn"] {
        assert!(Stack::try_new(flags).is_ok(), "{flags}");
    }
}
