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
    pub(super) const RETRANSMITS: usize = 2;
    pub(super) const BACKOFF: usize = 4;
    pub(super) const OPTIONS: usize = 5;
    pub(super) const APP_LIMITED: usize = 7;
    pub(super) const UNACKED: usize = 24;
    pub(super) const SACKED: usize = 28;
    pub(super) const LOST: usize = 32;
    pub(super) const RETRANS: usize = 36;
    pub(super) const LAST_DATA_SENT: usize = 44;
    pub(super) const LAST_ACK_RECV: usize = 56;
    pub(super) const PMTU: usize = 60;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const DELIVERED: usize = 192;
    pub(super) const DELIVERED_CE: usize = 196;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const DSACK_DUPS: usize = 216;
    pub(super) const RCV_OOOPACK: usize = 224;
    pub(super) const SND_WND: usize = 228;
    pub(super) const TOTAL_RTO: usize = 240;
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
fn what_waits_to_be_sent_and_since_when() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.write(fd, &[0; 15 * 1460]).expect("room");
    (0..10).for_each(|_| drop(peer.expect()));
    stack.usleep(20_000);
    let told = Told::of(fd);
    assert_eq!(told.u32(at::NOTSENT_BYTES), 5 * MSS);
    assert_eq!([at::LAST_DATA_SENT, at::LAST_ACK_RECV].map(|offset| told.u32(offset)), [20, 20]);
    peer.window = 20_000;
    peer.send(Flags::ACK, &[]);
    stack.usleep(5000);
    let told = Told::of(fd);
    assert_eq!((told.u32(at::NOTSENT_BYTES), told.u32(at::SND_WND)), (0, 20_000));
    assert_eq!([at::LAST_DATA_SENT, at::LAST_ACK_RECV].map(|offset| told.u32(offset)), [5, 5]);
}

#[test]
fn timeouts_in_a_row_and_in_all() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    send_segments(&stack, fd, &mut peer, 1);
    while Told::of(fd).u32(at::TOTAL_RTO) < 2 {
        peer.expect();
    }
    let in_a_row = |fd| [at::RETRANSMITS, at::BACKOFF].map(|offset| Told::of(fd).0[offset]);
    assert_eq!(in_a_row(fd), [2, 2]);
    peer.send(Flags::ACK, &[]);
    assert_eq!((in_a_row(fd), Told::of(fd).u32(at::TOTAL_RTO)), ([0, 0], 2));
}

#[test]
fn what_came_out_of_order_and_what_was_agreed_on() {
    let stack = Stack::new("linux");
    let (fd, mut peer) = with_sack(&stack);
    assert_eq!(Told::of(fd).0[at::OPTIONS], 2, "TCPI_OPT_SACK alone");
    peer.send_at(peer.seq + 4, Flags::ACK, Options::default(), b"late");
    peer.expect();
    peer.text(b"soon");
    let told = Told::of(fd);
    assert_eq!((told.u32(at::RCV_OOOPACK), told.u64(at::BYTES_RECEIVED)), (1, 8));
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
    let mut most = 0;
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
        // What leaves after a pause tells what the application sends, not what the path carries: it
        // counts only if it is as much.
        let is_limited = told.flag(at::APP_LIMITED) == 1;
        assert!(!is_limited || (round > 0 && rate >= most), "{round}: {rate} {most}");
        most = most.max(rate);
    }
}

#[test]
fn the_rate_of_delivery_without_a_model() {
    for algorithm in ["cubic", "reno", "dctcp"] {
        let stack = Stack::new("linux");
        let (fd, mut peer) = with_sack(&stack);
        let name = algorithm.as_bytes();
        stack.set_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name).expect("an algorithm");
        let told = Told::of(fd);
        assert_eq!((told.u64(at::DELIVERY_RATE), told.flag(at::APP_LIMITED)), (0, 1));
        // Five segments in 20 ms are 365,000 bytes a second.
        send_segments(&stack, fd, &mut peer, 5);
        stack.usleep(20_000);
        peer.send(Flags::ACK, &[]);
        let told = Told::of(fd);
        let rate = told.u64(at::DELIVERY_RATE);
        assert!((360_000..=365_000).contains(&rate), "{algorithm}: {rate}");
        assert_eq!(told.flag(at::APP_LIMITED), 1, "{algorithm}: it had no more");
        // Less tells nothing of the path.
        send_segments(&stack, fd, &mut peer, 1);
        stack.usleep(20_000);
        peer.send(Flags::ACK, &[]);
        assert_eq!(Told::of(fd).u64(at::DELIVERY_RATE), rate, "{algorithm}");
        // Where more waits than the window lets out, the path is the limit.
        stack.write(fd, &[0; 60 * 1460]).expect("room");
        for _ in 0..2 {
            let in_flight = Told::of(fd).u32(at::UNACKED);
            let last = peer.ack.wrapping_add(in_flight * MSS);
            while peer.ack != last {
                peer.expect();
            }
            stack.usleep(20_000);
            peer.send(Flags::ACK, &[]);
        }
        let told = Told::of(fd);
        assert!(told.u64(at::DELIVERY_RATE) > rate, "{algorithm}");
        assert_eq!(told.flag(at::APP_LIMITED), 0, "{algorithm}");
    }
}

#[test]
fn segments_that_arrived() {
    let stack = Stack::new("linux");
    let (fd, mut peer) = with_sack(&stack);
    let una = peer.ack;
    let at = |segments: u32| una.wrapping_add(segments * MSS);
    let told = |fd| {
        let told = Told::of(fd);
        [at::DELIVERED, at::DELIVERED_CE].map(|offset| told.u32(offset))
    };
    assert_eq!(told(fd), [1, 0], "the SYN");
    send_segments(&stack, fd, &mut peer, 10);
    stack.usleep(20_000);
    sack(&mut peer, at(2), (at(6), at(10)));
    assert_eq!(told(fd), [1 + 6, 0]);
    peer.ack = at(10);
    peer.send(Flags::ACK | Flags::ECE, &[]);
    assert_eq!(told(fd), [1 + 10, 0], "nobody has agreed on ECN");
}

#[test]
fn segments_that_arrived_by_a_congested_path() {
    let stack = Stack::new("linux,ecn=passive");
    let listener = listening(&stack);
    let mut peer = Peer::new(&stack, REMOTE, LOCAL);
    let options = Options { mss: Some(1460), ..Options::default() };
    peer.send_at(peer.seq, Flags::SYN | Flags::ECE | Flags::CWR, options, &[]);
    peer.seq = peer.seq.wrapping_add(1);
    assert_eq!(peer.expect().flags, Flags::SYN | Flags::ACK | Flags::ECE);
    peer.send(Flags::ACK, &[]);
    let (fd, _) = stack.accept(listener).expect("a connection");
    let una = peer.ack;
    send_segments(&stack, fd, &mut peer, 5);
    for (flags, segments, expected) in
        [(Flags::ECE, 2, [3, 2]), (Flags::default(), 4, [5, 2]), (Flags::ECE, 5, [6, 3])]
    {
        peer.ack = una.wrapping_add(segments * MSS);
        peer.send(Flags::ACK | flags, &[]);
        let told = Told::of(fd);
        assert_eq!([at::DELIVERED, at::DELIVERED_CE].map(|offset| told.u32(offset)), expected);
    }
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
}
