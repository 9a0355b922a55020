//! Opens the device of a plan and a stack on it. Wraps the device in what the plan asks for, and
//! logs when the interface goes down or comes up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lightwait::device::{AfPacket, Device, LinkState, Tap, TapConfig};
use lightwait::net::TcpListener;
use lightwait::shard::Shard;
use lightwait::stack::secret;
use lightwait::wrap::{Link, Trace};
use lightwait_core::Config;
use lightwait_core::address::Cidr;

use super::{Ready, capture, claim, hardware};
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{DevicePlan, Hardware, Knobs, Plan, Stack, Watch};
use crate::zone::zone_of;

/// A device, open.
struct Opened {
    device: Box<dyn Device>,
    /// The interface's name.
    interface: String,
    /// The interface's own hardware address, if it lasts; a TAP's is made anew with each TAP.
    own: [u8; 6],
    /// A description for people.
    name: String,
}

/// Opens the device of a plan that has one, and a host on it that listens.
pub(super) fn open(plan: &Plan, log: &Log) -> Result<Ready, Failure> {
    let Stack::Device { addresses, port, .. } = &plan.stack else {
        unreachable!("a plan with a device")
    };
    let watched = |device| watched(device, &plan.watch, log);
    let (shard, name) = open_shard(&plan.stack, &plan.knobs, &[], watched, log)?;
    let handle = shard.handle();
    let listener = TcpListener::bind_on(&handle, any(addresses, *port)).map_err(Failure::Stack)?;
    let urls = addresses.iter().map(|cidr| url(SocketAddr::new(cidr.address(), *port))).collect();
    Ok(Ready { shards: vec![shard], handle, listener, urls, name, front: None })
}

/// Opens a device, and a host on it that has the addresses in `ranges` as well. Also returns a
/// description of the device.
pub(crate) fn open_shard(
    stack: &Stack,
    knobs: &Knobs,
    ranges: &[Cidr],
    watched: impl FnOnce(Box<dyn Device>) -> Result<Box<dyn Device>, Failure>,
    log: &Log,
) -> Result<(Shard, String), Failure> {
    let Stack::Device { device, addresses, gateways, hardware, probe, .. } = stack else {
        unreachable!("a plan with a device")
    };
    let (DevicePlan::Tap { name: interface, .. } | DevicePlan::AfPacket { interface }) = device;
    claim::refuse_kernels(interface, addresses)?;
    if let DevicePlan::Tap { name, host_addresses, .. } = device {
        claim::refuse_others(name, host_addresses)?;
    }
    let Opened { device, interface, own, name } = open_device(device, log)?;
    let config =
        Config::new(device.capabilities(), addresses[0], secret().map_err(Failure::Stack)?);
    let mut config = knobs.on(config);
    config.addresses.clone_from(addresses);
    config.ranges = ranges.to_vec();
    config.gateways.clone_from(gateways);
    config.hardware = match hardware {
        Hardware::Given(address) => *address,
        Hardware::Interface if own == [0; 6] => {
            let text = format!("{interface} has no hardware address");
            return Err(Failure::Device("--mac interface".to_owned(), io::Error::other(text)));
        }
        Hardware::Interface => own,
        // Without a stable one the host derives it from its secret, which differs each time.
        Hardware::Stable => {
            hardware::stable(&interface, own, addresses[0]).unwrap_or(config.hardware)
        }
    };
    (config.address_probe, config.address_announce) = (*probe, true);
    let shard = Shard::new(config, watched(device)?).map_err(Failure::Stack)?;
    Ok((shard, name))
}

fn open_device(plan: &DevicePlan, log: &Log) -> Result<Opened, Failure> {
    match plan {
        DevicePlan::Tap { name, mtu, host_addresses } => {
            let mut config = TapConfig::new(name);
            config.mtu = *mtu;
            config.host_addresses.clone_from(host_addresses);
            let flag = format!("--tap {name}");
            let tap = Tap::open(&config).map_err(|error| Failure::Device(flag, error))?;
            let interface = tap.name().to_owned();
            let name = format!("TAP {interface}");
            let tap = tap.on_link(log_link(&interface, log));
            Ok(Opened { device: Box::new(tap), interface, own: [0; 6], name })
        }
        DevicePlan::AfPacket { interface } => {
            let flag = format!("--af-packet {interface}");
            let socket =
                AfPacket::open(interface, true).map_err(|error| Failure::Device(flag, error))?;
            let (interface, own) = (interface.clone(), socket.hardware());
            let name = format!("packet socket on {interface}");
            if let Ok(false) = socket.has_carrier() {
                log.write(Record::Trouble { text: no_carrier(&interface) });
            }
            let socket = socket.on_link(log_link(&interface, log));
            Ok(Opened { device: Box::new(socket), interface, own, name })
        }
    }
}

/// The warning about an interface whose cable leads nowhere.
pub(crate) fn no_carrier(interface: &str) -> String {
    format!(
        "{interface} has no carrier: nothing comes or goes until its other end is up (`ip link`)."
    )
}

/// Logs that the interface is down, and that it is up again.
fn log_link(interface: &str, log: &Log) -> impl FnMut(LinkState) + Send + use<> {
    let (interface, log) = (interface.to_owned(), log.clone());
    move |state| {
        let text = match state {
            LinkState::Down => format!(
                "{interface} is down: nothing comes or goes until it is up again (`ip link set \
                 dev {interface} up`)."
            ),
            LinkState::Up => format!("{interface} is up again."),
        };
        log.write(Record::Trouble { text });
    }
}

/// The device with the wrappers that the plan asks for. The emulated bad link is next to the
/// device. The capture and the trace are outside it, so that they show the frames that the stack
/// sends and receives.
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

/// A URL as a browser shows it: without the port if it is HTTP's default.
pub(super) fn url(address: SocketAddr) -> String {
    let port = address.port();
    let host = match (address.ip(), zone_of(address)) {
        (IpAddr::V4(address), _) => address.to_string(),
        (IpAddr::V6(address), None) => format!("[{address}]"),
        // RFC 6874 §2.
        (IpAddr::V6(address), Some(zone)) => format!("[{address}%25{zone}]"),
    };
    if port == 80 { format!("http://{host}/") } else { format!("http://{host}:{port}/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_port_when_it_is_not_80() {
        let at = |text: &str| url(crate::zone::parse(text).unwrap());
        assert_eq!(at("10.9.0.2:80"), "http://10.9.0.2/");
        assert_eq!(at("[fd00::2]:8080"), "http://[fd00::2]:8080/");
        assert_eq!(at("[fe80::2%lo]:8080"), "http://[fe80::2%25lo]:8080/");
    }
}
