//! A macvtap on a veth, against the kernel at the veth's other end. All namespaces share one
//! `/dev`, where a macvtap's file is named by the number of its interface.

use std::thread;
use std::time::Duration;

use lightwait::device::{Device, Losses, Tap};
use lightwait_core::frame::TxChecksum;

use crate::frames::{BROADCAST, OUR_MAC, arp};
use crate::kernel_tcp::{self, MUCH};
use crate::namespace::{can_make_tap, inside, ip};
use crate::queues::{CONNECTIONS, drain, knock, syn};
use crate::{KERNEL, OURS, checksums_are_left_to_the_other_side, send, the_kernel_answers_an_echo};

#[test]
fn a_macvtap_is_on_the_wire_of_another_interface() {
    inside("macvtap::a_macvtap_is_on_the_wire_of_another_interface", || {
        if !can_make_tap() {
            return;
        }
        crate::veth();
        ip("link set lw0 up");
        let error = Tap::open_macvtap("lw0").unwrap_err().to_string();
        assert!(error.contains("it is no macvtap"), "{error}");
        // The kernel takes a moment to remove the file of a namespace that has ended.
        let number = 100_000 + std::process::id();
        let mode = "address 02:00:00:00:00:42 type macvtap mode bridge";
        ip(&format!("link add link lw0 name mv0 index {number} {mode}"));
        let file = format!("/dev/tap{number}");
        if !std::path::Path::new(&file).exists() {
            eprintln!("skipped: no {file}, since /dev is no devtmpfs");
            return;
        }
        let mut tap = Tap::open_macvtap("mv0").unwrap();
        assert_eq!((tap.name(), tap.hardware()), ("mv0", Some(OUR_MAC)));
        assert!(tap.capabilities().checksum);
        the_kernel_answers_an_echo(&mut tap);
        checksums_are_left_to_the_other_side(&mut tap);
        assert_eq!(tap.losses().unwrap(), Losses::default());
        drop(tap);

        let mut queues = Tap::open_macvtap_queues("mv0", 3).unwrap();
        for queue in &mut queues {
            send(queue, &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
        }
        ip("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:42 dev lw1");
        thread::sleep(Duration::from_millis(50));
        let is_reply = |b: &[u8]| (b[12..14] == [8, 6] && b[20..22] == [0, 2]).then_some(());
        assert_eq!(drain(&mut queues, is_reply).concat().len(), 3);
        knock(OURS.into());
        let found = drain(&mut queues, syn);
        assert!(found.iter().all(|queue| !queue.is_empty()), "{found:?}");
        assert_eq!(found.concat().len(), CONNECTIONS.into(), "each comes once");
        let refused = queues[0].steer(&lightwait_core::flow::Steering::new(&[0; 32], 3));
        assert!(refused.is_err());
        // Nobody fetches: what finds no room is counted, once.
        // A socket waits for room when 200 of its frames are under way.
        for _ in 0..60 {
            let socket = std::net::UdpSocket::bind((KERNEL, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            for _ in 0..100 {
                let _ = socket.send_to(b"late", (OURS, 9000));
            }
        }
        let missed: Vec<_> = queues.iter_mut().map(|q| q.losses().unwrap().missed).collect();
        assert!(missed[0] > 1000 && missed[1..] == [0, 0], "{missed:?}");
        drop(queues);

        let tap = Tap::open_macvtap("mv0").unwrap();
        kernel_tcp::exchange(move || Box::new(tap), MUCH);
    });
}
