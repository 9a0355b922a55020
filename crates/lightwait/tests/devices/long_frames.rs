//! A packet socket receives frames of every length in order: short ones from its ring, longer ones
//! from the socket.

use lightwait::device::{AfPacket, Device};
use lightwait_core::Instant;
use lightwait_core::frame::TxChecksum;

use crate::frames::{BROADCAST, arp};
use crate::namespace::{inside, ip};
use crate::{KERNEL, OURS, send};

/// Bytes behind a request of ARP. The longest frame of the ring has 2048 with its headers.
const LENGTHS: [usize; 7] = [18, 5000, 1400, 1900, 2100, 8900, 18];

#[test]
fn long_and_short_frames_arrive_whole_and_in_order() {
    inside("long_frames::long_and_short_frames_arrive_whole_and_in_order", || {
        ip("link add lw0 mtu 9000 type veth peer name lw1 mtu 9000");
        for offload in [true, false] {
            let [mut from, mut to] =
                ["lw0", "lw1"].map(|name| AfPacket::open(name, offload).unwrap());
            // More than the ring has slots, so that it is gone around.
            for round in 0..700u32 {
                let fill = round as u8;
                let sent = LENGTHS
                    .map(|length| [arp(BROADCAST, 1, OURS, KERNEL), vec![fill; length]].concat());
                sent.iter().for_each(|frame| send(&mut from, frame, TxChecksum::Complete));
                let mut received = Vec::new();
                let mut sink = |frames: &[lightwait_core::RxFrame<'_>]| {
                    received.extend(frames.iter().map(|frame| frame.bytes.to_vec()));
                };
                to.receive(Instant::ZERO, usize::MAX, &mut sink).unwrap();
                // The kernel sends a few frames of its own.
                received.retain(|frame| frame.get(12..14) == Some(&[8, 6]));
                assert!(
                    received == sent,
                    "{:?}",
                    received.iter().map(Vec::len).collect::<Vec<_>>()
                );
            }
            assert_eq!(to.losses().unwrap().missed, 0);
        }
    });
}
