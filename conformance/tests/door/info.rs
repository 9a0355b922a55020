//! TCP_INFO: each field that has a meaning here tells what has happened.

use lightwait_core::flow::Seq;
use lightwait_core::wire::options::{Options, SackBlock};
use lightwait_core::wire::tcp::Flags;

use crate::peer::Peer;
use crate::stack::{Stack, libc_option};
use crate::{LOCAL, REMOTE, accepted, listening};

const MSS: u32 = 1460;

/// Where each field begins in `struct tcp_info`, in bytes.
mod at {
    pub(super) const APP_LIMITED: usize = 7;
    pub(super) const SACKED: usize = 28;
    pub(super) const LOST: usize = 32;
    pub(super) const RETRANS: usize = 36;
    pub(super) const PMTU: usize = 60;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const DSACK_DUPS: usize = 216;
}

/// What TCP_INFO tells of a socket.
struct Told(Vec<u8>);

impl Told {
    fn of(fd: i32) -> Told {
        Told(libc_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 280).expect("TCP_INFO"))
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..offset + 8].try_into().expect("eight bytes"))
    }

    fn flag(&self, offset: usize) -> u8 {
        self.0[offset] & 1
    }
}

/// An accepted connection with a peer that sends SACK blocks.
fn with_sack(stack: &Stack) -> (i32, Peer) {
    let listener = listening(stack);
    let mut peer = Peer::new(stack, REMOTE, LOCAL);
    peer.open_with(Options { mss: Some(1460), sack_permitted: true, ..Options::default() });
    let (fd, _) = stack.accept(listener).expect("a connection");
    (fd, peer)
}

/// So many whole segments leave.
fn send_segments(stack: &Stack, fd: i32, peer: &mut Peer, segments: usize) {
    stack.write(fd, &vec![0; segments * MSS as usize]).expect("room");
    for _ in 0..segments {
        peer.expect();
    }
}

/// Acknowledges all before `ack` and reports a block.
fn sack(peer: &mut Peer, ack: u32, block: (u32, u32)) {
    let mut options = Options::default();
    options.sack.push(SackBlock { start: Seq(block.0), end: Seq(block.1) });
    peer.ack = ack;
    peer.send_at(peer.seq, Flags::ACK, options, &[]);
}

#[test]
fn round_trips() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    assert_eq!(Told::of(fd).u32(at::MIN_RTT), u32::MAX, "none is known");
    for (wait_us, least_us) in [(20_000, 20_000), (60_000, 20_000)] {
        send_segments(&stack, fd, &mut peer, 4);
        stack.usleep(wait_us);
        peer.send(Flags::ACK, &[]);
        let told = Told::of(fd);
        assert_eq!(told.u32(at::MIN_RTT) / 100 * 100, least_us);
    }
    // RFC 6298: 20 ms at first, of the handshake as well; then an eighth of the difference.
    let told = Told::of(fd);
    assert!((20_000..60_000).contains(&told.u32(at::RTT)), "{}", told.u32(at::RTT));
    assert!((5_000..40_000).contains(&told.u32(at::RTTVAR)), "{}", told.u32(at::RTTVAR));
}

#[test]
fn what_is_sacked_lost_and_sent_again() {
    let stack = Stack::new("linux");
    let (fd, mut peer) = with_sack(&stack);
    let una = peer.ack;
    send_segments(&stack, fd, &mut peer, 10);
    let at = |segments: u32| una.wrapping_add(segments * MSS);
    let told = |fd| {
        let told = Told::of(fd);
        [at::SACKED, at::LOST, at::RETRANS, at::TOTAL_RETRANS].map(|offset| told.u32(offset))
    };
    stack.usleep(20_000);
    sack(&mut peer, una, (at(3), at(4)));
    assert_eq!(told(fd), [1, 0, 0, 0]);
    sack(&mut peer, una, (at(3), at(6)));
    let [sacked, lost, resent, total] = told(fd);
    assert_eq!((sacked, lost), (3, 3));
    assert!((1..=3).contains(&resent) && total == resent, "{resent} {total}");
    let bytes = Told::of(fd).u64(at::BYTES_RETRANS);
    assert_eq!(bytes, u64::from(total * MSS));
    peer.ack = at(10);
    peer.send(Flags::ACK, &[]);
    assert_eq!(told(fd), [0, 0, 0, total]);
}

#[test]
fn duplicates_that_the_peer_reports() {
    let stack = Stack::new("linux");
    let (fd, mut peer) = with_sack(&stack);
    let una = peer.ack;
    let at = |segments: u32| una.wrapping_add(segments * MSS);
    send_segments(&stack, fd, &mut peer, 10);
    stack.usleep(20_000);
    sack(&mut peer, una, (at(1), at(6)));
    assert_eq!(Told::of(fd).u32(at::DSACK_DUPS), 0);
    sack(&mut peer, at(6), (at(0), at(1)));
    assert_eq!(Told::of(fd).u32(at::DSACK_DUPS), 1);
}

#[test]
fn bytes_both_ways() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    send_segments(&stack, fd, &mut peer, 2);
    let told = |fd| {
        let told = Told::of(fd);
        [at::BYTES_SENT, at::BYTES_ACKED, at::BYTES_RETRANS, at::BYTES_RECEIVED]
            .map(|offset| told.u64(offset))
    };
    assert_eq!(told(fd), [2920, 0, 0, 0]);
    peer.ack = peer.ack.wrapping_sub(MSS);
    peer.text(b"four");
    assert_eq!(told(fd), [2920, 1460, 0, 4], "and not read");
    // Nothing comes: the last one leaves again.
    while told(fd)[2] == 0 {
        peer.expect();
    }
    assert_eq!(told(fd), [2920 + 1460, 1460, 1460, 4]);
}

#[test]
fn the_rates_of_a_model() {
    let stack = Stack::new("linux");
    let (fd, mut peer) = with_sack(&stack);
    let set = stack.set_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"bbr");
    assert_eq!((set, Told::of(fd).u64(at::DELIVERY_RATE)), (Ok(0), 0));
    // 10 segments a round trip of 20 ms are 730,000 bytes a second.
    for round in 0..3 {
        stack.write(fd, &[0; 10 * 1460]).expect("room");
        let last = peer.ack.wrapping_add(10 * MSS);
        while peer.ack != last {
            peer.expect();
        }
        stack.usleep(20_000);
        peer.send(Flags::ACK, &[]);
        let told = Told::of(fd);
        let (rate, pace) = (told.u64(at::DELIVERY_RATE), told.u64(at::PACING_RATE));
        assert!((300_000..=730_000).contains(&rate), "{round}: {rate}");
        assert!(pace > rate / 2 && pace < 4 * rate, "{round}: {pace}");
        // What leaves after a pause tells what the application sends, not what the path carries.
        assert_eq!(told.flag(at::APP_LIMITED), u8::from(round > 0), "{round}");
    }
}

#[test]
fn without_a_model_the_pace_is_that_of_the_window() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    send_segments(&stack, fd, &mut peer, 4);
    stack.usleep(20_000);
    peer.send(Flags::ACK, &[]);
    let told = Told::of(fd);
    let (window, rtt) = (told.u32(80), told.u32(at::RTT));
    let rate = 2 * u64::from(window * MSS) * 1_000_000 / u64::from(rtt);
    assert_eq!(told.u64(at::PACING_RATE) / 1000, rate / 1000);
    assert_eq!((told.u64(at::DELIVERY_RATE), told.flag(at::APP_LIMITED)), (0, 0));
}

#[test]
fn the_mtu_of_the_path() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    let mtu = |fd| {
        let option = stack.get(fd, libc::IPPROTO_IP, libc::IP_MTU).expect("an option");
        (Told::of(fd).u32(at::PMTU), option)
    };
    assert_eq!(mtu(fd), (1500, 1500));
    let una = peer.ack;
    send_segments(&stack, fd, &mut peer, 1);
    peer.too_big(una, 1200);
    assert_eq!(mtu(fd), (1200, 1200));
}
