//! A device that loses, doubles, reorders and damages frames at random, without the delays of an
//! emulated link.

use std::time::Duration;

use lightwait_netem::{LinkConfig, QueueLimit, Rate};

use super::Link;
use crate::device::Device;

/// Puts faults before `device`, both ways: the loss, duplication, corruption and reordering of
/// `config`, from its seed. Its rate, queue, delay and jitter are ignored. (A reordered packet
/// still waits for its `reorder_delay`: the packets behind it need that time to overtake it.)
pub fn fault<D: Device>(device: D, config: &LinkConfig) -> Link<D> {
    let config = LinkConfig {
        rate: Rate::Unlimited,
        queue: QueueLimit::Unlimited,
        codel: None,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        ..config.clone()
    };
    Link::both_ways(device, &config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use lightwait_core::{Capabilities, Instant, Medium, Outbox};

    #[test]
    fn faults_happen_at_once_and_not_at_all_when_none_are_asked_for() {
        let doubled = |text: &str| {
            let plain = Capabilities::plain(Medium::Ip, 1500);
            let (device, mut wire) = MemoryDevice::with_wire(plain, 8);
            let mut device = fault(device, &text.parse().unwrap());
            let mut outbox = Outbox::new(1);
            outbox.push().unwrap().head.push(1);
            device.transmit(Instant::ZERO, &mut outbox).unwrap();
            std::iter::from_fn(|| wire.drain()).count()
        };
        assert_eq!(doubled("delay=1s,rate=1bit,duplicate=100%"), 2);
        assert_eq!(doubled("delay=1s,rate=1bit"), 1);
        assert_eq!(doubled("loss=100%"), 0);
    }
}
