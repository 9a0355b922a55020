//! The stack on a device of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lightwait::device::{AfPacket, Device, Tap, TapConfig};
use lightwait::net::TcpListener;
use lightwait::shard::Shard;
use lightwait::wrap::{Link, Trace};
use lightwait_core::Config;
use lightwait_core::host::address::Cidr;
use rustix::rand::{GetRandomFlags, getrandom};

use super::{Ready, capture};
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{DevicePlan, Plan, Watch};

/// Opens the device, and a host on it that listens.
pub(super) fn open(
    device: &DevicePlan,
    addresses: &[Cidr],
    gateways: &[IpAddr],
    port: u16,
    plan: &Plan,
    log: &Log,
) -> Result<Ready, Failure> {
    let (name, opened) = open_device(device)?;
    let config = Config::new(opened.capabilities(), addresses[0], random()?);
    let mut config = plan.knobs.on(config);
    config.addresses = addresses.to_vec();
    config.gateways = gateways.to_vec();
    config.hardware = hardware(random()?);
    let shard = Shard::new(config, watched(opened, &plan.watch, log)?).map_err(Failure::Stack)?;
    let handle = shard.handle();
    let listener = TcpListener::bind_on(&handle, any(addresses, port)).map_err(Failure::Stack)?;
    let urls = addresses.iter().map(|cidr| url(cidr.address(), port)).collect();
    Ok(Ready { shards: vec![shard], handle, listener, urls, name, front: None })
}

fn open_device(plan: &DevicePlan) -> Result<(String, Box<dyn Device>), Failure> {
    match plan {
        DevicePlan::Tap { name, mtu, host_addresses } => {
            let mut config = TapConfig::new(name);
            config.mtu = *mtu;
            config.host_addresses.clone_from(host_addresses);
            let flag = format!("--tap {name}");
            let tap = Tap::open(&config).map_err(|error| Failure::Device(flag, error))?;
            Ok((format!("TAP {}", tap.name()), Box::new(tap)))
        }
        DevicePlan::AfPacket { interface } => {
            let flag = format!("--af-packet {interface}");
            let socket =
                AfPacket::open(interface, true).map_err(|error| Failure::Device(flag, error))?;
            Ok((format!("packet socket on {interface}"), Box::new(socket)))
        }
    }
}

/// The device with what was asked for in front of it: the bad link next to the device, then who
/// watches, so that what is seen is what the stack sends and gets.
pub(super) fn watched(
    device: Box<dyn Device>,
    watch: &Watch,
    log: &Log,
) -> Result<Box<dyn Device>, Failure> {
    let mut device = device;
    if let Some(link) = &watch.fault {
        device = Box::new(Link::both_ways(device, link));
    }
    if let Some(capture) = &watch.capture {
        device = Box::new(capture::captured(device, capture, log)?);
    }
    if watch.trace {
        let log = log.clone();
        device = Box::new(Trace::new(device, move |line| {
            log.write(Record::Frame { line: line.to_owned() });
        }));
    }
    Ok(device)
}

/// The unspecified address that stands for all of ours.
fn any(addresses: &[Cidr], port: u16) -> SocketAddr {
    let v6 = addresses.iter().any(|cidr| cidr.address().is_ipv6());
    if v6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() }
}

/// As a browser wants it: without the port that HTTP has anyway.
pub(super) fn url(address: IpAddr, port: u16) -> String {
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    if port == 80 { format!("http://{host}/") } else { format!("http://{host}:{port}/") }
}

/// Secret bytes, from the kernel.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let more = getrandom(&mut bytes[filled..], GetRandomFlags::empty());
        filled += more.map_err(|errno| Failure::Stack(errno.into()))?;
    }
    Ok(bytes)
}

/// A hardware address of our own: one station, administered locally (IEEE 802, the two low bits of
/// the first byte).
pub(super) fn hardware(random: [u8; 6]) -> [u8; 6] {
    let mut address = random;
    address[0] = address[0] & 0xfc | 0x02;
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_port_when_it_is_not_80() {
        let (v4, v6) = ("10.9.0.2".parse().unwrap(), "fd00::2".parse().unwrap());
        assert_eq!(url(v4, 80), "http://10.9.0.2/");
        assert_eq!(url(v6, 8080), "http://[fd00::2]:8080/");
    }

    #[test]
    fn hardware_addresses_are_local_and_of_one_station() {
        for first in 0..=255 {
            let address = hardware([first, 1, 2, 3, 4, 5]);
            assert_eq!((address[0] & 0x03, &address[1..]), (0x02, &[1, 2, 3, 4, 5][..]));
        }
    }

    #[test]
    fn two_secrets_differ() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
