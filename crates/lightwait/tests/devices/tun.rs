//! A TUN, against the kernel.

use lightwait::device::{Device, Tap, TapConfig, Tun};
use lightwait_core::flow::{Steering, Tuple};
use lightwait_core::wire::ends;
use lightwait_core::{Capabilities, Medium};

use crate::kernel_tcp::{self, MUCH};
use crate::namespace::{can_make_tap, inside};
use crate::queues::{CONNECTIONS, drain, is_steered, knock};

fn config() -> TapConfig {
    let host_addresses = vec!["10.77.0.1/24".parse().unwrap(), "fd77::1/64".parse().unwrap()];
    TapConfig { host_addresses, ..TapConfig::new("lw0") }
}

#[test]
fn over_a_tun_the_kernel_talks_tcp_both_ways() {
    inside("tun::over_a_tun_the_kernel_talks_tcp_both_ways", || {
        if !can_make_tap() {
            return;
        }
        for offload in [true, false] {
            let tun = Tun::open(&TapConfig { offload, ..config() }).unwrap();
            let plain = Capabilities::plain(Medium::Ip, 1500);
            assert_eq!((tun.name(), tun.capabilities() == plain), ("lw0", !offload));
            assert_eq!(tun.capabilities().medium, Medium::Ip);
            kernel_tcp::exchange(move || Box::new(tun), MUCH);
        }
    });
}

#[test]
fn a_tun_is_no_tap_and_its_descriptor_may_be_handed_over() {
    inside("tun::a_tun_is_no_tap_and_its_descriptor_may_be_handed_over", || {
        if !can_make_tap() {
            return;
        }
        let first = Tun::open(&config()).unwrap();
        let clone = || first.wait_on().unwrap().try_clone_to_owned().unwrap();
        let (wrong, fd) = (clone(), clone());
        let error = Tap::from_fd(wrong).unwrap_err().to_string();
        assert!(error.contains("`lw0` is a TUN; a TAP is needed"), "{error}");
        let error = Tap::open(&TapConfig::new("lw0")).unwrap_err().to_string();
        assert!(error.contains("it is no TAP"), "{error}");
        drop(first);
        let tun = Tun::from_fd(fd).unwrap();
        kernel_tcp::exchange(move || Box::new(tun), MUCH);
        let tap = Tap::open(&TapConfig::new("lw1")).unwrap();
        let error = Tun::from_fd(tap.wait_on().unwrap().try_clone_to_owned().unwrap());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`lw1` is a TAP; a TUN is needed"), "{error}");
    });
}

#[test]
fn the_queues_of_a_tun_have_what_they_own() {
    inside("tun::the_queues_of_a_tun_have_what_they_own", || {
        if !can_make_tap() {
            return;
        }
        let mut queues = Tun::open_queues(&config(), 4).unwrap();
        let steering = Steering::new(&[5; 32], 4);
        if !is_steered(queues[0].steer(&steering)) {
            return;
        }
        for ours in ["10.77.0.2", "fd77::2"] {
            drain(&mut queues, |_| None::<()>);
            knock(ours.parse().unwrap());
            let found: Vec<Vec<Tuple>> = drain(&mut queues, ends::of_packet);
            for (queue, tuples) in found.iter().enumerate() {
                let owned = tuples.iter().all(|tuple| usize::from(steering.owner(tuple)) == queue);
                assert!(owned && !tuples.is_empty(), "{ours}: {queue} {tuples:?}");
            }
            assert_eq!(found.concat().len(), CONNECTIONS.into(), "{ours}");
        }
    });
}
