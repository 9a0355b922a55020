//! Opens the device of a plan and a stack on it. Wraps the device in what the plan asks for, and
//! logs when the interface goes down or comes up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant as StdInstant};

use lightwait::device::{
    AfPacket, AfXdp, AfXdpConfig, Device, LinkState, Tap, TapConfig, Tun, XdpMode,
};
use lightwait::shard::Shard;
use lightwait::shards::Seat;
use lightwait::stack::secret;
use lightwait::wrap::handover::{Handover, Switch};
use lightwait_core::Config;
use lightwait_core::address::Cidr;
use lightwait_core::config::{Member, TimeWaitState};
use lightwait_core::flow::Steering;

use super::takeover::{Legacy, Takeover};
use super::watched::Watched;
use super::{Entrance, Part, Ready, claim, hardware};
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{DevicePlan, Hardware, Knobs, Plan, Stack};
use crate::zone::zone_of;

/// A device, open.
struct Opened {
    queues: Vec<Box<dyn Device + Send>>,
    /// Whether it knows which shard owns a connection.
    is_steered: io::Result<()>,
    /// The interface's name.
    interface: String,
    /// The interface's own hardware address, if it lasts; a TAP's is made anew with each TAP.
    own: [u8; 6],
    /// A description for people.
    name: String,
}

/// A queue of a device, for a shard of the host on it.
pub(crate) struct Queue {
    device: Box<dyn Device + Send>,
    /// The configuration of the whole host.
    host: Config,
    /// A description of the device.
    pub(crate) name: String,
    shards: u16,
    /// How another process may take the device over, and when the time of its host began.
    handover: Option<(Switch, StdInstant)>,
}

/// Opens the device of a plan that has one, with a queue for each shard; or takes it from the
/// process before.
pub(super) fn open(
    plan: &Plan,
    mut takeover: Option<&mut Takeover>,
    log: &Log,
) -> Result<Vec<Part>, Failure> {
    let legacy = takeover.as_mut().and_then(|takeover| takeover.take_device());
    let mut queues = open_queues(&plan.stack, &plan.knobs, &[], plan.shards, legacy, log)?;
    if let Some(takeover) = takeover {
        let Config { secret, hardware, .. } = &queues[0].host;
        if queues[0].host.tcp.time_wait.state == TimeWaitState::Full {
            let text = "--takeover: what time_wait.state=full keeps cannot be handed over";
            return Err(Failure::Usage(text.to_owned()));
        }
        let descriptors = queues.iter().map(|queue| match queue.device.wait_on() {
            Some(descriptor) => descriptor.try_clone_to_owned(),
            None => Err(io::Error::other("the device has no descriptor")),
        });
        let descriptors = descriptors.collect::<io::Result<_>>().map_err(Failure::Stack)?;
        takeover.hold_device(*secret, *hardware, descriptors);
        for (queue, switch) in queues.iter_mut().zip(&takeover.switches) {
            queue.handover = Some((switch.clone(), takeover.origin()));
        }
    }
    Ok(queues.into_iter().map(|queue| Part::Device(Box::new(queue))).collect())
}

impl Queue {
    /// Opens the shard of a server on it, which listens.
    pub(super) fn open(
        self,
        plan: &Plan,
        seat: Option<Seat>,
        watched: &Watched<'_>,
    ) -> Result<Ready, Failure> {
        let Stack::Device { addresses, port, .. } = &plan.stack else {
            unreachable!("a plan with a device")
        };
        let name = self.name.clone();
        let shard = self.shard(seat, |device, member| watched.device(device, member))?;
        let handle = shard.handle();
        let secure = plan.tls.as_ref().map(|tls| ("https", tls.port));
        let (mut entrances, mut urls) = (Vec::new(), Vec::new());
        for (scheme, port) in [("http", *port)].into_iter().chain(secure) {
            let entrance = Entrance::open(&handle, any(addresses, port));
            entrances.push(entrance.map_err(Failure::Stack)?);
            let at = addresses.iter().map(|cidr| SocketAddr::new(cidr.address(), port));
            urls.extend(at.map(|at| url(scheme, at)));
        }
        Ok(Ready { shards: vec![shard], handle, entrances, urls, name, front: None })
    }

    /// The rule by which shards own connections.
    pub(crate) fn steering(&self) -> Steering {
        Steering::new(&self.host.secret, self.shards)
    }

    /// The shard on it.
    pub(crate) fn shard(
        self,
        seat: Option<Seat>,
        watched: impl FnOnce(Box<dyn Device>, Member) -> Box<dyn Device>,
    ) -> Result<Shard, Failure> {
        let member = seat.as_ref().map_or(Member::ALONE, Seat::member);
        let config = self.host.member(member);
        let shard = match self.handover {
            None => Shard::new(config, watched(self.device, member)),
            Some((switch, origin)) => {
                let device = Box::new(Handover::new(self.device, &switch));
                Shard::since(config, watched(device, member), origin)
            }
        };
        let shard = shard.map_err(Failure::Stack)?;
        Ok(match seat {
            Some(seat) => shard.seated(seat),
            None => shard,
        })
    }
}

/// Opens a device with a queue for each shard of a host that has the addresses in `ranges` as well.
/// Tells it which shard owns a connection, and logs it if that is refused. `legacy`: another
/// process has opened it and set it up.
pub(crate) fn open_queues(
    stack: &Stack,
    knobs: &Knobs,
    ranges: &[Cidr],
    shards: u16,
    legacy: Option<Legacy>,
    log: &Log,
) -> Result<Vec<Queue>, Failure> {
    let Stack::Device { device, addresses, gateways, hardware, probe, .. } = stack else {
        unreachable!("a plan with a device")
    };
    claim::refuse_kernels(device.interface(), addresses)?;
    if let DevicePlan::Tap { name, host_addresses, .. } = device {
        claim::refuse_others(name, host_addresses, addresses)?;
    }
    let before = legacy.as_ref().map(|legacy| (legacy.secret, legacy.hardware));
    let secret = match before {
        Some((secret, _)) => secret,
        None => secret().map_err(Failure::Stack)?,
    };
    let steering = Steering::new(&secret, shards);
    let Opened { queues, is_steered, interface, own, name } = match legacy {
        Some(Legacy { queues, .. }) => take_device(device, queues, log)?,
        None => open_device(device, addresses, &steering, log)?,
    };
    let config = Config::new(queues[0].capabilities(), addresses[0], secret);
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
    if let Some((_, hardware)) = before {
        // The addresses are ours already, and connections live at the hardware address.
        (config.hardware, config.address_probe) = (hardware, Duration::ZERO);
    }
    if let Err(error) = is_steered {
        let text = format!(
            "{interface}: frames come to any shard, and are handed over to their own, which costs \
             time: {error}."
        );
        log.write(Record::Trouble { text });
    }
    let name = format!("{name}{}", of(shards));
    let queue =
        |device| Queue { device, host: config.clone(), name: name.clone(), shards, handover: None };
    Ok(queues.into_iter().map(queue).collect())
}

/// What follows the name of a device with so many shards.
pub(super) fn of(shards: u16) -> String {
    if shards == 1 { String::new() } else { format!(", {shards} shards") }
}

/// The device of the process before, by its descriptors. It is set up, and steers.
fn take_device(plan: &DevicePlan, queues: Vec<OwnedFd>, log: &Log) -> Result<Opened, Failure> {
    let (flag, interface) = match plan {
        DevicePlan::Tap { is_tun, name, .. } => (if *is_tun { "--tun" } else { "--tap" }, name),
        DevicePlan::AfPacket { interface } => ("--af-packet", interface),
        DevicePlan::AfXdp { .. } | DevicePlan::Macvtap { .. } => {
            unreachable!("a plan refuses to hand them over")
        }
    };
    let refused = |error| Failure::Device(format!("{flag} {interface}"), error);
    let queues = queues.into_iter();
    let (mut own, link) = ([0; 6], |name: &str| log_link(name, log));
    let queues: Vec<Box<dyn Device + Send>> = match plan {
        DevicePlan::Tap { is_tun: true, name, .. } => {
            let all = queues.map(Tun::from_fd).collect::<io::Result<_>>().map_err(refused)?;
            first_tells(all, |tun| tun.on_link(link(name)))
        }
        DevicePlan::Tap { name, .. } => {
            let all = queues.map(Tap::from_fd).collect::<io::Result<_>>().map_err(refused)?;
            first_tells(all, |tap| tap.on_link(link(name)))
        }
        _ => {
            let all = queues.map(|queue| AfPacket::from_fd(interface, queue));
            let all: Vec<AfPacket> = all.collect::<io::Result<_>>().map_err(refused)?;
            own = all.first().map_or(own, AfPacket::hardware);
            first_tells(all, |socket| socket.on_link(link(interface)))
        }
    };
    let name = format!("{} {interface}", flag.trim_start_matches('-'));
    Ok(Opened { queues, is_steered: Ok(()), interface: interface.clone(), own, name })
}

fn open_device(
    plan: &DevicePlan,
    addresses: &[Cidr],
    steering: &Steering,
    log: &Log,
) -> Result<Opened, Failure> {
    let queues = usize::from(steering.shards());
    match plan {
        DevicePlan::Tap { is_tun, name, mtu, host_addresses } => {
            let host_addresses = host_addresses.clone();
            let config = TapConfig { mtu: *mtu, host_addresses, ..TapConfig::new(name) };
            open_made(*is_tun, &config, steering, log)
        }
        DevicePlan::AfPacket { interface } => {
            let flag = format!("--af-packet {interface}");
            let all = AfPacket::open_queues(interface, true, queues)
                .map_err(|error| Failure::Device(flag, error))?;
            let (interface, own) = (interface.clone(), all[0].hardware());
            let name = format!("packet socket on {interface}");
            if let Ok(false) = all[0].has_carrier() {
                log.write(Record::Trouble { text: no_carrier(&interface) });
            }
            let is_steered = all[0].steer(steering);
            let queues = first_tells(all, |socket| socket.on_link(log_link(&interface, log)));
            Ok(Opened { queues, is_steered, interface, own, name })
        }
        DevicePlan::Macvtap { interface } => {
            let flag = format!("--macvtap {interface}");
            let all = Tap::open_macvtap_queues(interface, queues)
                .map_err(|error| Failure::Device(flag, error))?;
            let (interface, own) = (interface.clone(), all[0].hardware().unwrap_or_default());
            let name = format!("macvtap {interface}");
            let queues: Vec<_> = all.into_iter().map(|queue| Box::new(queue) as _).collect();
            let is_steered = by_its_own_hash(queues.len());
            Ok(Opened { queues, is_steered, interface, own, name })
        }
        DevicePlan::AfXdp { interface, ports } => {
            let flag = format!("--afxdp {interface}");
            let ours = addresses.iter().map(|cidr| cidr.address()).collect();
            let ports = ports.map(|ports| ports.first..=ports.last);
            let config = AfXdpConfig { ports, ..AfXdpConfig::new(interface, ours) };
            let all = AfXdp::open_queues(&config, queues)
                .map_err(|error| Failure::Device(flag, error))?;
            let (interface, own) = (interface.clone(), all[0].hardware());
            let name = format!("AF_XDP on {interface}, {}", mode_text(all[0].mode()));
            if let Ok(false) = all[0].has_carrier() {
                log.write(Record::Trouble { text: no_carrier(&interface) });
            }
            let queues = first_tells(all, |socket| socket.on_link(log_link(&interface, log)));
            let is_steered = by_its_own_hash(queues.len());
            Ok(Opened { queues, is_steered, interface, own, name })
        }
    }
}

/// Whether so many queues have what they own, where nobody takes our rule.
fn by_its_own_hash(queues: usize) -> io::Result<()> {
    match queues {
        1 => Ok(()),
        _ => Err(io::Error::other("a hash of its own chooses the queue")),
    }
}

/// Opens a TAP or a TUN, which is made if there is none.
fn open_made(
    is_tun: bool,
    config: &TapConfig,
    steering: &Steering,
    log: &Log,
) -> Result<Opened, Failure> {
    let queues = usize::from(steering.shards());
    let mode = if is_tun { "tun" } else { "tap" };
    let refused = |error| Failure::Device(format!("--{mode} {}", config.name), error);
    let (interface, steered, queues) = if is_tun {
        let all = Tun::open_queues(config, queues).map_err(refused)?;
        let (name, steered) = (all[0].name().to_owned(), all[0].steer(steering));
        let queues = first_tells(all, |tun| tun.on_link(log_link(&name, log)));
        (name, steered, queues)
    } else {
        let all = Tap::open_queues(config, queues).map_err(refused)?;
        let (name, steered) = (all[0].name().to_owned(), all[0].steer(steering));
        let queues = first_tells(all, |tap| tap.on_link(log_link(&name, log)));
        (name, steered, queues)
    };
    // There is no choice with one queue.
    let is_steered = if queues.len() > 1 { steered } else { Ok(()) };
    let name = format!("{} {interface}", mode.to_uppercase());
    Ok(Opened { queues, is_steered, interface, own: [0; 6], name })
}

/// The name of a way to a card, for people.
fn mode_text(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::ZeroCopy => "without copies",
        XdpMode::Driver => "the driver's program, with a copy",
        XdpMode::Generic => "the kernel's program, with copies",
    }
}

/// The queues as devices. The first alone tells of the link: it is one.
fn first_tells<D: Device + Send + 'static>(
    queues: Vec<D>,
    tells: impl FnOnce(D) -> D,
) -> Vec<Box<dyn Device + Send>> {
    let mut queues = queues.into_iter();
    let first = queues.next().map(|first| Box::new(tells(first)) as _);
    first.into_iter().chain(queues.map(|queue| Box::new(queue) as _)).collect()
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

/// The unspecified address that stands for all of ours.
fn any(addresses: &[Cidr], port: u16) -> SocketAddr {
    let v6 = addresses.iter().any(|cidr| cidr.address().is_ipv6());
    if v6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() }
}

/// A URL as a browser shows it: without the port if it is the scheme's default.
pub(super) fn url(scheme: &str, address: SocketAddr) -> String {
    let port = address.port();
    let host = match (address.ip(), zone_of(address)) {
        (IpAddr::V4(address), _) => address.to_string(),
        (IpAddr::V6(address), None) => format!("[{address}]"),
        // RFC 6874 §2.
        (IpAddr::V6(address), Some(zone)) => format!("[{address}%25{zone}]"),
    };
    let default = if scheme == "https" { 443 } else { 80 };
    match port {
        port if port == default => format!("{scheme}://{host}/"),
        port => format!("{scheme}://{host}:{port}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_port_when_it_is_not_the_schemes() {
        let at = |text: &str| url("http", crate::zone::parse(text).unwrap());
        assert_eq!(at("10.9.0.2:80"), "http://10.9.0.2/");
        assert_eq!(at("[fd00::2]:8080"), "http://[fd00::2]:8080/");
        let secure = |text: &str| url("https", crate::zone::parse(text).unwrap());
        assert_eq!(secure("10.9.0.2:443"), "https://10.9.0.2/");
        assert_eq!(secure("10.9.0.2:80"), "https://10.9.0.2:80/");
        assert_eq!(at("[fe80::2%lo]:8080"), "http://[fe80::2%25lo]:8080/");
    }
}
