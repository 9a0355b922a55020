//! A stack of ours in the test's own process.

use std::future::Future;
use std::thread;

use lightwait::device::{AfPacket, Device, Tap, TapConfig, Tun};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::shard::Shard;
use lightwait_core::{Capabilities, Config, Medium};

use crate::server::{Cable, OURS};

/// Opens our end of the best cable there is here; the kernel's end has its addresses.
pub(crate) fn open_device() -> Box<dyn Device> {
    let cable = Cable::best();
    cable.prepare();
    let host_addresses = ["10.77.0.1/24", "fd77::1/64"].map(|it| it.parse().unwrap()).into();
    let config = TapConfig { host_addresses, ..TapConfig::new("lw0") };
    match cable {
        Cable::Tap => Box::new(Tap::open(&config).unwrap()),
        Cable::Tun => Box::new(Tun::open(&config).unwrap()),
        Cable::PacketSocket => Box::new(AfPacket::open("lw0", true).unwrap()),
    }
}

/// Runs a host on this thread until `task` has ended.
pub(crate) fn run(device: Box<dyn Device>, task: impl Future<Output = ()> + 'static) {
    let stop = Stop::new();
    let stop_at_end = StopAtEnd(stop.clone());
    drive(device, &stop, async move {
        let _stop = stop_at_end;
        task.await;
    });
}

/// Runs a host on this thread, with `task` on it, until `beside`, on another thread, has ended.
pub(crate) fn run_beside(
    device: Box<dyn Device>,
    task: impl Future<Output = ()> + 'static,
    beside: impl FnOnce() + Send,
) {
    let stop = Stop::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopAtEnd(stop.clone());
            beside();
        });
        drive(device, &stop, task);
    });
}

fn drive(device: Box<dyn Device>, stop: &Stop, task: impl Future<Output = ()> + 'static) {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let [v4, v6] = [format!("{}/24", OURS[0]), format!("{}/64", OURS[1])];
    let config = Config {
        hardware: [2, 0, 0, 0, 0, 7],
        addresses: vec![v4.parse().unwrap(), v6.parse().unwrap()],
        ..Config::new(plain, v4.parse().unwrap(), [5; 32])
    };
    let shard = Shard::new(config, device).unwrap();
    shard.handle().spawn_local(task);
    driver::run(&mut [shard], stop, SPIN).unwrap();
}

/// Stops the host when dropped: a panic, too, is an end.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}
