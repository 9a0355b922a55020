//! Time: which calls move it, and how far.

use lightwait_conformance::address::Family;
use lightwait_core::wire::tcp::Flags;

use crate::stack::Stack;
use crate::{REMOTE, accepted, listening, peer::Peer};

#[test]
fn time_moves_as_it_is_asked_for() {
    let stack = Stack::new("linux");
    let start = stack.time();
    assert_eq!(stack.time(), start + 1, "a look at the clock takes a microsecond");
    stack.usleep(1_000_000);
    assert_eq!(stack.time(), start + 1_000_002);
    let (packet, _) = stack.packet_out();
    assert!(packet.is_empty(), "nothing ever happens, and that is told");
    assert_eq!(stack.time(), start + 121_000_003, "after 120 s");
}

#[test]
fn packets_leave_at_their_own_times_however_far_time_is_moved() {
    let stack = Stack::new("linux,ack.timer=40ms,ack.quick=0,rto.initial=1s");
    let (_, fd, mut peer) = accepted(&stack);
    let start = stack.time();
    assert_eq!(stack.write(fd, &[7; 100]), Ok(100));
    stack.usleep(10_000_000);
    let times: Vec<i64> = (0..3).map(|_| peer.expect().at - start).collect();
    assert!(times[0] <= 1, "at once: {times:?}");
    assert!(times[1] >= 199_000, "and again when the timer says so: {times:?}");
    let (first, second) = (times[1] - times[0], times[2] - times[1]);
    assert!((second - 2 * first).abs() < first / 10, "backing off: {times:?}");
    assert!(stack.time() >= start + 10_000_000);
}

#[test]
fn waiting_for_a_packet_moves_time_to_it_and_no_further() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    stack.write(fd, b"x").expect("room");
    peer.expect();
    let again = peer.expect();
    assert_eq!(again.text, b"x");
    assert_eq!(stack.time(), again.at + 1);
}

#[test]
fn packets_larger_than_the_mtu_come_in() {
    let stack = Stack::new("linux");
    let (_, fd, mut peer) = accepted(&stack);
    peer.text(&[9; 20_000]);
    assert_eq!(stack.read(fd, 65_536).expect("data").len(), 20_000);
}

#[test]
fn a_syn_gets_its_answer_at_once_and_again_later() {
    let stack = Stack::new("linux,rto.initial=1s");
    listening(&stack);
    let peer = Peer::new(&stack, REMOTE, crate::LOCAL);
    peer.send(Flags::SYN, &[]);
    let first = peer.next().expect("an answer");
    let second = peer.next().expect("another");
    assert_eq!(second.flags, Flags::SYN | Flags::ACK);
    assert_eq!(second.seq, first.seq);
    assert_eq!((second.at - first.at + 500_000) / 1_000_000, 1);
}

#[test]
fn nonsense_is_no_packet() {
    let stack = Stack::new("linux");
    listening(&stack);
    for packet in [&[][..], &[0x45], &[0; 20], &[0xff; 100]] {
        stack.packet_in(packet);
    }
    assert!(stack.packet_out().0.is_empty());
}

#[test]
fn a_burst_is_cut_into_packets_of_which_the_last_is_pushed() {
    for (local, remote) in
        [(crate::LOCAL, REMOTE), ("[fd3d:fa7b:d17d::1]:8080", "[2001:db8::1]:40000")]
    {
        let stack = Stack::new("linux");
        let listener = stack.socket(libc::AF_INET6);
        stack.bind(listener, Family::Inet6, local.parse().unwrap()).unwrap();
        stack.listen(listener, 1).unwrap();
        let mut peer = Peer::new(&stack, remote, local);
        peer.open();
        let (fd, _) = stack.accept(listener).unwrap();
        let text: Vec<u8> = (0..12_000u32).map(|i| i as u8).collect();
        stack.write(fd, &text).unwrap();
        let sent: Vec<_> = (0..9).map(|_| peer.expect()).collect();
        let whole: Vec<u8> = sent.iter().flat_map(|sent| sent.text.clone()).collect();
        assert_eq!(whole, text);
        let (size, whole_at) = (sent[0].text.len(), sent[0].at);
        assert!(sent[..8].iter().all(|sent| sent.text.len() == size), "full ones");
        assert!(sent.iter().all(|sent| sent.at == whole_at), "at once");
        let pushed: Vec<bool> = sent.iter().map(|sent| sent.flags.contains(Flags::PSH)).collect();
        assert_eq!(pushed.iter().position(|pushed| *pushed), Some(8));
        assert!(sent.windows(2).all(|two| two[1].seq - two[0].seq == size as u32));
    }
}

#[test]
fn without_segmentation_the_engine_cuts() {
    let stack = Stack::new("linux,segmentation=0");
    let (_, fd, mut peer) = accepted(&stack);
    stack.write(fd, &[0; 3_000]).unwrap();
    let lens: Vec<usize> = (0..3).map(|_| peer.expect().text.len()).collect();
    assert_eq!(lens, [1460, 1460, 80]);
}

#[test]
fn packets_that_nobody_fetches_are_kept_up_to_a_bound() {
    const BOUND: usize = 1 << 16;
    let stack = Stack::new("linux");
    let fd = stack.socket(libc::AF_INET);
    stack.bind(fd, Family::Inet, crate::LOCAL.parse().unwrap()).unwrap();
    let mut peer = Peer::new(&stack, REMOTE, "192.168.7.9:1");
    for i in 0..=BOUND as u32 {
        peer.ack = i;
        peer.send(Flags::ACK, &[]);
    }
    let resets: Vec<u32> = std::iter::from_fn(|| peer.next()).map(|sent| sent.seq).collect();
    assert_eq!(resets.len(), BOUND, "and not one more");
    assert_eq!(resets.last(), Some(&(BOUND as u32 - 1)));
}
