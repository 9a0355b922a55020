//! A device's reports when its interface goes down, comes up, or is deleted.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lightwait::device::{AfPacket, Device, LinkState, Tap, TapConfig, Tun, kernel_address};
use lightwait::driver;
use lightwait::shard::Shard;
use lightwait_core::{Instant, Outbox};

use crate::namespace;

/// How long a driver may take to find that its device is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives on the device at that second.
fn receive(device: &mut dyn Device, second: u64) -> io::Result<usize> {
    device.receive(Instant::from_millis(second * 1000), 64, &mut |_| ())
}

/// Sends a frame at that second.
fn send(device: &mut dyn Device, second: u64) -> io::Result<()> {
    let mut outbox = Outbox::new(1);
    outbox.push().unwrap().head.extend_from_slice(&[0xff; 60]);
    device.transmit(Instant::from_millis(second * 1000), &mut outbox)
}

/// The failure of a device whose interface is gone.
fn assert_gone(result: io::Result<impl std::fmt::Debug>, name: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.starts_with(&format!("{name} is gone: it was deleted")), "{text}");
}

/// The interface goes down, up, and down again for good.
fn is_told_of_its_link(device: &mut dyn Device, told: &Mutex<Vec<LinkState>>) {
    assert_eq!(device.deadline(), None);
    namespace::ip("link set lw0 down");
    receive(device, 1).unwrap();
    send(device, 1).unwrap();
    assert_eq!(*told.lock().unwrap(), [LinkState::Down]);
    assert_eq!(device.deadline(), Some(Instant::from_millis(2000)));
    receive(device, 2).unwrap();
    assert_eq!(*told.lock().unwrap(), [LinkState::Down], "told once");
    namespace::ip("link set lw0 up");
    receive(device, 2).unwrap();
    assert_eq!(*told.lock().unwrap(), [LinkState::Down], "not yet looked at");
    receive(device, 3).unwrap();
    assert_eq!(*told.lock().unwrap(), [LinkState::Down, LinkState::Up]);
    assert_eq!(device.deadline(), None);
}

#[test]
fn a_packet_socket_tells_of_its_interface_down_and_up_and_gone() {
    let test = "presence::a_packet_socket_tells_of_its_interface_down_and_up_and_gone";
    namespace::inside(test, || {
        for from_down in [false, true] {
            crate::veth();
            let told: Arc<Mutex<Vec<LinkState>>> = Arc::default();
            let listener = told.clone();
            let device = AfPacket::open("lw0", true).unwrap();
            let mut device = device.on_link(move |state| listener.lock().unwrap().push(state));
            is_told_of_its_link(&mut device, &told);
            if from_down {
                namespace::ip("link set lw0 down");
                receive(&mut device, 4).unwrap();
            }
            namespace::ip("link del lw0");
            assert_gone(receive(&mut device, 6), "the interface `lw0`");
            assert_gone(send(&mut device, 6), "the interface `lw0`");
        }
    });
}

#[test]
fn a_tap_tells_of_its_interface_down_and_up_and_gone() {
    namespace::inside("presence::a_tap_tells_of_its_interface_down_and_up_and_gone", || {
        if namespace::can_make_tap() {
            let told: Arc<Mutex<Vec<LinkState>>> = Arc::default();
            let listener = told.clone();
            let tap: Tap = crate::tap(true);
            let mut tap = tap.on_link(move |state| listener.lock().unwrap().push(state));
            is_told_of_its_link(&mut tap, &told);
            namespace::ip("link del lw0");
            assert_gone(receive(&mut tap, 4), "the TAP `lw0`");
            assert_gone(send(&mut tap, 4), "the TAP `lw0`");
        }
    });
}

#[test]
fn a_driver_in_tokio_ends_with_its_device() {
    namespace::inside("presence::a_driver_in_tokio_ends_with_its_device", || {
        if !namespace::can_make_tap() {
            return;
        }
        let tap: fn() -> Box<dyn Device> = || Box::new(crate::tap(true));
        let tun: fn() -> Box<dyn Device> = || Box::new(Tun::open(&TapConfig::new("lw0")).unwrap());
        for (open, name) in [(tap, "the TAP `lw0`"), (tun, "the TUN `lw0`")] {
            let shard = Shard::new(crate::kernel_tcp::config(), open()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let outcome = runtime.unwrap().block_on(async {
                let ended = tokio::time::timeout(PATIENCE, driver::drive(vec![shard]));
                let deleted = async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    namespace::ip("link del lw0");
                };
                tokio::join!(ended, deleted).0
            });
            assert_gone(outcome.expect("it ends by itself"), name);
        }
    });
}

#[test]
fn the_kernels_own_addresses_are_found_with_their_interface() {
    namespace::inside("presence::the_kernels_own_addresses_are_found_with_their_interface", || {
        crate::veth();
        let of_kernel = |interface: &str, address: &str| {
            let found = kernel_address(interface, address.parse().unwrap()).unwrap();
            found.map(|found| (found.interface, found.address.to_string()))
        };
        let on_lw1 = |text: &str| Some(("lw1".to_owned(), text.to_owned()));
        assert_eq!(of_kernel("lw0", "10.77.0.1"), on_lw1("10.77.0.1/24"));
        assert_eq!(of_kernel("lw1", "fd77::1"), on_lw1("fd77::1/64"));
        assert_eq!(of_kernel("lw0", "10.77.0.2"), None);
        namespace::ip("addr add fe80::77/64 dev lw1 nodad");
        assert_eq!(of_kernel("lw1", "fe80::77"), on_lw1("fe80::77/64"));
        assert_eq!(of_kernel("lw0", "fe80::77"), None, "another link");
        // One answer of the kernel does not hold so many addresses.
        for third in 0..4 {
            let add = (0..250).map(|n| format!("addr add 10.78.{third}.{n}/16 dev lw1\n"));
            let path = std::env::temp_dir().join(format!("lightwait-{}", std::process::id()));
            std::fs::write(&path, add.collect::<String>()).unwrap();
            namespace::ip(&format!("-batch {}", path.display()));
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(of_kernel("lw0", "10.78.3.249"), on_lw1("10.78.3.249/16"));
    });
}
