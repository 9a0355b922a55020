//! Turns the parsed command line into a checked plan. It checks the whole command line before the
//! program opens anything.

mod buffers;
mod capture;
mod files;
mod knobs;
mod log;
mod memory;
mod ports;
mod restarts;
mod shards;
mod time_wait;
mod tls;

pub(crate) use buffers::{PoolPolicy, SendBuffer};
pub(crate) use capture::{Bytes, Capture, Target as CaptureTarget};
pub(crate) use files::{BasicAuth, ErrorPage, SitePath, Vhost, origin};
use files::{bridged_connections, descriptors, files, vhosts};
use knobs::page_bytes;
pub(crate) use knobs::{Knobs, Setting, complaint_of, knobs_named, refuse_two_values};
pub(crate) use log::LogPlan;
pub(crate) use memory::Memory;
pub(crate) use ports::Ports;
pub(crate) use shards::ShardCount;
pub(crate) use tls::{Pair, Shown, TlsPlan};

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lightwait::shards::Cores;
use lightwait_core::Medium;
use lightwait_core::address::Cidr;
use lightwait_http::{Disk, FilesConfig, ServerConfig};
use lightwait_netem::LinkConfig;

use crate::args::{DeviceArgs, FileIo, OnOff, ServeArgs, TimeWaitArg};
use crate::failure::Failure;
use crate::serve::admin::AdminAddress;

/// Everything `lightwait serve` needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    /// The sites with names of their own.
    pub(crate) vhosts: Vec<Vhost>,
    pub(crate) files: FilesConfig,
    /// The files that its passwords come from.
    pub(crate) password_files: Vec<PathBuf>,
    /// How to read them from a disk.
    pub(crate) disk: Disk,
    /// The extra delay of each read of a file.
    pub(crate) file_delay: Duration,
    pub(crate) server: ServerConfig,
    /// How full TIME-WAIT is, in percent, when every answer begins to ask its client to close.
    pub(crate) ask_at: Option<u8>,
    pub(crate) stack: Stack,
    /// HTTPS beside HTTP.
    pub(crate) tls: Option<TlsPlan>,
    pub(crate) knobs: Knobs,
    pub(crate) watch: Watch,
    pub(crate) log: LogPlan,
    /// Where the admin door is.
    pub(crate) admin: Option<AdminAddress>,
    /// Where another process takes over.
    pub(crate) takeover: Option<PathBuf>,
    /// What the server does not do it may not do.
    pub(crate) sandbox: bool,
    /// Shards, a thread each.
    pub(crate) shards: u16,
    pub(crate) cores: Cores,
}

/// Where the stack stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// Behind an ordinary listening socket.
    Bridge {
        /// The kernel's address.
        listen: SocketAddr,
    },
    /// On a device of its own.
    Device {
        device: DevicePlan,
        /// Our addresses; at least one.
        addresses: Vec<Cidr>,
        /// At most one for each IP version.
        gateways: Vec<IpAddr>,
        hardware: Hardware,
        /// How long the stack probes for another host with these addresses.
        probe: Duration,
        port: u16,
    },
}

/// Which hardware address the stack uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hardware {
    /// A derived address that is the same each time.
    Stable,
    /// The interface's own.
    Interface,
    /// The address on the command line.
    Given([u8; 6]),
}

impl FromStr for Hardware {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Hardware, Self::Err> {
        if text == "interface" {
            return Ok(Hardware::Interface);
        }
        let octet = |text: &str| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(text, 16).ok().filter(|_| digits)
        };
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        match octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok()) {
            Some(octets) if octets[0] & 1 != 0 => Err("this is the address of a group"),
            Some([0, 0, 0, 0, 0, 0]) => Err("this is nobody's address"),
            Some(octets) => Ok(Hardware::Given(octets)),
            None => Err("give six octets, as in 02:00:00:00:00:01, or `interface`"),
        }
    }
}

/// The device that the stack runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DevicePlan {
    /// A TAP, or a TUN.
    Tap {
        is_tun: bool,
        name: String,
        mtu: u16,
        /// The kernel's addresses at its end.
        host_addresses: Vec<Cidr>,
    },
    AfPacket {
        interface: String,
    },
    AfXdp {
        interface: String,
        /// The ports to which TCP is ours, if not all is.
        ports: Option<Ports>,
    },
    Macvtap {
        interface: String,
    },
}

impl DevicePlan {
    /// What its frames are.
    pub(crate) fn medium(&self) -> Medium {
        let is_tun = matches!(self, DevicePlan::Tap { is_tun: true, .. });
        if is_tun { Medium::Ip } else { Medium::Ethernet }
    }

    /// The interface's name.
    pub(crate) fn interface(&self) -> &str {
        let (DevicePlan::Tap { name: interface, .. }
        | DevicePlan::AfPacket { interface }
        | DevicePlan::AfXdp { interface, .. }
        | DevicePlan::Macvtap { interface }) = self;
        interface
    }
}

/// The wrappers that see or change frames: capture, trace, an emulated bad link.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) capture: Option<Capture>,
    pub(crate) trace: bool,
    pub(crate) fault: Option<LinkConfig>,
}

/// A response that waits for longer is reset before it goes on.
const FILE_DELAY_MOST: Duration = Duration::from_secs(30);

const BRIDGE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEVICE_PORT: u16 = 80;
const TAP_MTU: u16 = 1500;
/// RFC 791 §3.2 and RFC 8200 §5: what every host must be able to take.
const LEAST_MTU_V4: u16 = 576;
const LEAST_MTU_V6: u16 = 1280;

impl Plan {
    /// The plan, or one line that says which flag is wrong and what would be right.
    pub(crate) fn new(args: &ServeArgs) -> Result<Plan, Failure> {
        if args.index.is_empty() || args.index.contains('/') {
            return Err(usage(format!("--index {:?}: give a file's name, no path", args.index)));
        }
        let capture = Capture::new(args)?;
        let watch = Watch { capture, trace: args.trace, fault: fault(args)? };
        let log = LogPlan::new(args)?;
        let stack = stack(args)?;
        let tls = tls::plan(&args.tls, &stack)?;
        if let Some(text) = args.memory.and_then(Memory::excess) {
            return Err(usage(text));
        }
        let memory = args.memory.unwrap_or_else(Memory::of_machine).bytes();
        let memory = if let Stack::Bridge { .. } = stack { memory / 2 } else { memory };
        refuse_two_values(&knobs_of_flags(args), &args.set)?;
        let knobs = Knobs::new(memory, &settings(args, memory, &stack)?)?;
        let files = files(args, knobs.page_bytes())?;
        let ask_at = time_wait::ask_at(args)?;
        let mut server = server(args)?;
        if let Stack::Bridge { .. } = stack {
            let most = bridged_connections(descriptors(), files.cache_open);
            server.max_connections = server.max_connections.min(most);
        }
        let disk = match args.file_io {
            FileIo::Threads => Disk::Threads,
            FileIo::IoUring => Disk::Uring,
        };
        let file_delay = args.file_delay.unwrap_or_default();
        if file_delay > FILE_DELAY_MOST {
            return Err(usage(format!("--file-delay: {FILE_DELAY_MOST:?} at most")));
        }
        let (shards, cores) = args.shards.plan()?;
        let plan = Plan {
            directory: args.dir.clone(),
            takeover: restarts::takeover(args, &stack)?,
            vhosts: vhosts(&args.vhost)?,
            files,
            password_files: args.basic_auth.iter().map(|auth| auth.file().to_owned()).collect(),
            disk,
            file_delay,
            server,
            ask_at,
            stack,
            tls,
            knobs,
            watch,
            log,
            admin: args.admin.clone(),
            sandbox: args.sandbox == OnOff::On,
            shards,
            cores,
        };
        plan.check_parts()?;
        Ok(plan)
    }
}

/// The link of `--fault`. Refuses a queue without a rate: nothing waits in it.
fn fault(args: &ServeArgs) -> Result<Option<LinkConfig>, Failure> {
    let link = args.fault.clone();
    let unlimited = link.iter().find(|link| !link.has_queue());
    match unlimited.and_then(LinkConfig::bound_on_waiting) {
        Some(idle) => Err(usage(format!(
            "--fault: {idle} does nothing without a rate, since no packet waits: add rate=…"
        ))),
        None => Ok(link),
    }
}

/// The flags that are given and decide a knob, each with that knob. A knob that a flag merely has a
/// default for, such as the most that a buffer holds, is not among them.
fn knobs_of_flags(args: &ServeArgs) -> Vec<(&'static str, &'static str)> {
    let negotiates = args.time_wait == TimeWaitArg::Negotiate;
    let buffer = args.send_buffer;
    let flags = [
        ("--congestion", "congestion.algorithm", args.congestion.is_some()),
        ("--memory", "limits.pages", args.memory.is_some()),
        ("--pool", "limits.pages", args.pool.is_some()),
        ("--pool-policy", "pool.policy", args.pool_policy.is_some()),
        ("--send-buffer", "buffers.send_size", buffer.is_some()),
        ("--send-buffer", "buffers.send", buffer.is_some_and(SendBuffer::says_size)),
        ("--send-buffer", "buffers.send_lowat", buffer.is_some_and(SendBuffer::says_lowat)),
        ("--time-wait negotiate", time_wait::KNOB, negotiates),
    ];
    let given = flags.into_iter().filter(|(.., is_given)| *is_given);
    given.map(|(flag, knob, _)| (flag, knob)).collect()
}

/// The knobs that other flags set, followed by those of `--set`, so that a value given by name
/// wins. Each stack has `memory` bytes.
fn settings(args: &ServeArgs, memory: u64, stack: &Stack) -> Result<Vec<Setting>, Failure> {
    let mut settings = Vec::new();
    let pool = args.pool.map_or(memory, |Bytes(bytes)| bytes);
    settings.extend(args.send_buffer.unwrap_or(SendBuffer::Los).settings(pool));
    let policy = args.pool_policy.unwrap_or(PoolPolicy::Priority);
    settings.extend(policy.settings(pool, args.max_connections));
    settings.extend(args.congestion.as_deref().map(Setting::congestion));
    if let Some(Bytes(bytes)) = args.pool {
        if bytes > memory || bytes < POOL_LEAST {
            let text = "--pool: give 256K at least, and no more than a stack has of --memory";
            return Err(usage(text.to_owned()));
        }
        let pages = bytes / page_bytes(&args.set) as u64;
        settings.push(Setting::new("limits.pages", &pages.to_string()));
    }
    settings.extend(time_wait::settings(args, stack)?);
    Ok(settings)
}

/// An HTTP connection takes 21 KiB of the pool. In half of this, six downloads at once stood still.
const POOL_LEAST: u64 = 256 << 10;

fn usage(text: String) -> Failure {
    Failure::Usage(text)
}

fn server(args: &ServeArgs) -> Result<ServerConfig, Failure> {
    let limits = [
        ("--max-connections", args.max_connections),
        ("--max-client-connections", args.max_client_connections),
        ("--max-responses", args.max_responses),
    ];
    if let Some((flag, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
        return Err(usage(format!("{flag} 0: give 1 at least, or no client is served")));
    }
    let default = ServerConfig::default();
    Ok(ServerConfig {
        max_connections: args.max_connections,
        max_client_connections: args.max_client_connections,
        max_responses: args.max_responses,
        min_rate_bytes: args.min_rate,
        ask_client: args.time_wait == TimeWaitArg::AskClient,
        strict_transport: args.tls.hsts.map(Duration::from_secs),
        client_close_grace: args.ask_grace.unwrap_or(default.client_close_grace),
        ..default
    })
}

fn stack(args: &ServeArgs) -> Result<Stack, Failure> {
    if !args.device.name_one() {
        return bridge(args);
    }
    if args.listen.is_some() {
        let text = "--listen is the bridge's; on a device give --ip and --port instead";
        return Err(usage(text.to_owned()));
    }
    let port = match args.port {
        Some(0) => return Err(usage("--port 0: give a port from 1 to 65535".to_owned())),
        given => given.unwrap_or(DEVICE_PORT),
    };
    let mut stack = device_stack(&args.device, port)?;
    if let (Some(taken), Stack::Device { device: DevicePlan::AfXdp { ports, .. }, .. }) =
        (args.afxdp_ports, &mut stack)
    {
        if !(taken.first..=taken.last).contains(&port) {
            let text =
                format!("--afxdp-ports {taken}: the server's port, {port}, is not among them");
            return Err(usage(text));
        }
        *ports = Some(taken);
    }
    Ok(stack)
}

/// A stack on the device that the command line names.
///
/// # Panics
/// If the command line names none.
pub(crate) fn device_stack(args: &DeviceArgs, port: u16) -> Result<Stack, Failure> {
    let addresses = addresses(&args.ip)?;
    let gateways = gateways(&args.gateway, &addresses)?;
    let existing = |interface: &Option<String>, plan: fn(String) -> DevicePlan| {
        interface.clone().map(|interface| refuse_tap_flags(args).map(|()| plan(interface)))
    };
    let made = [(&args.tap, false), (&args.tun, true)];
    let made = made.into_iter().find_map(|(name, is_tun)| Some((name.as_ref()?, is_tun)));
    let device = made
        .map(|(name, is_tun)| tap(args, name, is_tun, &addresses))
        .or_else(|| existing(&args.af_packet, |interface| DevicePlan::AfPacket { interface }))
        .or_else(|| existing(&args.afxdp, |interface| DevicePlan::AfXdp { interface, ports: None }))
        .or_else(|| existing(&args.macvtap, |interface| DevicePlan::Macvtap { interface }))
        .expect("a device is named")?;
    let (hardware, probe) = claim(args, &device)?;
    Ok(Stack::Device { device, addresses, gateways, hardware, probe, port })
}

fn bridge(args: &ServeArgs) -> Result<Stack, Failure> {
    refuse_device_flags(&args.device)?;
    let listen = match (args.listen, args.port) {
        (Some(_), Some(_)) => {
            return Err(usage("--listen says the port already: leave out --port".to_owned()));
        }
        (Some(listen), None) => listen,
        (None, port) => SocketAddr::new(BRIDGE.ip(), port.unwrap_or(BRIDGE.port())),
    };
    Ok(Stack::Bridge { listen })
}

/// Refuses flags that need a device, where the command line names none.
pub(crate) fn refuse_device_flags(args: &DeviceArgs) -> Result<(), Failure> {
    let given = [
        ("--ip", !args.ip.is_empty()),
        ("--host-ip", !args.host_ip.is_empty()),
        ("--gateway", !args.gateway.is_empty()),
        ("--mac", args.mac.is_some()),
        ("--probe", args.probe.is_some()),
        ("--mtu", args.mtu.is_some()),
    ];
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
        let text = format!(
            "{flag} needs a device: give --tap NAME, --tun NAME, or --af-packet, --macvtap or \
             --afxdp IFACE"
        );
        return Err(usage(text));
    }
    Ok(())
}

/// A TAP, or a TUN, which the program makes.
fn tap(
    args: &DeviceArgs,
    name: &str,
    is_tun: bool,
    addresses: &[Cidr],
) -> Result<DevicePlan, Failure> {
    if is_tun && (args.mac.is_some() || args.probe.is_some()) {
        let text = "--mac and --probe are for a link: a TUN carries IP packets alone";
        return Err(usage(text.to_owned()));
    }
    let mtu = args.mtu.unwrap_or(TAP_MTU);
    let v6 = addresses.iter().any(|cidr| cidr.address().is_ipv6());
    let least = if v6 { LEAST_MTU_V6 } else { LEAST_MTU_V4 };
    if mtu < least {
        return Err(usage(format!("--mtu {mtu}: at least {least}")));
    }
    let host_addresses = if args.host_ip.is_empty() {
        let chosen = host_addresses(addresses);
        let alone = |ours: &&Cidr| !chosen.iter().any(|host| ours.contains(host.address()));
        if let Some(ours) = addresses.iter().find(alone) {
            let text = format!(
                "--ip {ours}: this subnet has no address for the kernel's end of the TAP; \
                 take a larger one, such as {}/24",
                ours.address()
            );
            return Err(usage(text));
        }
        chosen
    } else {
        for host in &args.host_ip {
            check_host_address(*host, addresses)?;
        }
        args.host_ip.clone()
    };
    Ok(DevicePlan::Tap { is_tun, name: name.to_owned(), mtu, host_addresses })
}

/// Refuses what only the maker of an interface can choose.
fn refuse_tap_flags(args: &DeviceArgs) -> Result<(), Failure> {
    let flags = [("--mtu", args.mtu.is_some()), ("--host-ip", !args.host_ip.is_empty())];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        let text = format!(
            "{flag} is for --tap and --tun; an existing interface has its own (ip link, ip addr)"
        );
        return Err(usage(text));
    }
    Ok(())
}

/// How long the link is probed for another host with our addresses, at most. RFC 5227's 7 s are for
/// any link of IEEE 802; its three probes and the wait behind them keep their proportions here. A
/// host that answers later than a quarter of a second is heard when the address is announced, and
/// that conflict is logged.
const PROBE: Duration = Duration::from_millis(1200);

/// The hardware address of the stack, and how long it probes a shared link for conflicts. A TAP's
/// other end is the kernel, which needs no probe: its addresses are known.
fn claim(args: &DeviceArgs, device: &DevicePlan) -> Result<(Hardware, Duration), Failure> {
    let is_card = matches!(device, DevicePlan::AfXdp { .. } | DevicePlan::Macvtap { .. });
    if is_card && args.mac.is_some_and(|mac| mac != Hardware::Interface) {
        let text = "--mac: it hears its own address alone; leave it out with --afxdp and --macvtap";
        return Err(usage(text.to_owned()));
    }
    let default = if is_card { Hardware::Interface } else { Hardware::Stable };
    let hardware = args.mac.unwrap_or(default);
    let shared = match device {
        DevicePlan::Tap { .. } if hardware == Hardware::Interface => {
            let text = "--mac interface: on a TAP that is the kernel's end; give another";
            return Err(usage(text.to_owned()));
        }
        DevicePlan::Tap { .. } => false,
        DevicePlan::AfPacket { .. } | DevicePlan::AfXdp { .. } | DevicePlan::Macvtap { .. } => true,
    };
    let default = if shared { PROBE } else { Duration::ZERO };
    Ok((hardware, args.probe.unwrap_or(default)))
}

/// Our addresses, each one a host can have.
fn addresses(given: &[Cidr]) -> Result<Vec<Cidr>, Failure> {
    if given.is_empty() {
        let text = "a device needs an address: give --ip A/N, such as --ip 10.9.0.2/24";
        return Err(usage(text.to_owned()));
    }
    for (index, cidr) in given.iter().enumerate() {
        if let Some(why) = unfit(*cidr) {
            return Err(usage(format!("--ip {cidr}: {why}")));
        }
        if given[..index].iter().any(|other| other.address() == cidr.address()) {
            return Err(usage(format!("--ip {cidr}: given twice")));
        }
    }
    Ok(given.to_vec())
}

/// Why a host cannot have this address on this subnet; `None` if it can.
fn unfit(cidr: Cidr) -> Option<&'static str> {
    let address = cidr.address();
    let point_to_point = if address.is_ipv4() { 31 } else { 127 };
    if address.is_unspecified() || address.is_multicast() {
        Some("not an address that a host can have")
    } else if address.is_loopback() {
        Some("loopback addresses never leave a host")
    } else if cidr.broadcast().is_some_and(|broadcast| IpAddr::V4(broadcast) == address) {
        Some("this is the subnet's broadcast address")
    } else if cidr.prefix_len() < point_to_point && cidr.nth(0) == address {
        Some("this is the subnet itself: give an address in it")
    } else {
        None
    }
}

/// One address for the kernel's end in each subnet of ours that has another.
fn host_addresses(addresses: &[Cidr]) -> Vec<Cidr> {
    let mut chosen: Vec<Cidr> = Vec::new();
    for ours in addresses {
        let served = chosen.iter().any(|host| ours.contains(host.address()));
        chosen.extend(first_other(*ours, addresses).filter(|_| !served));
    }
    chosen
}

/// The first address of a subnet that a host can have and that is not ours.
fn first_other(ours: Cidr, addresses: &[Cidr]) -> Option<Cidr> {
    let candidates = ours.size().min(addresses.len() as u128 + 2);
    (0..candidates).filter_map(|index| Cidr::new(ours.nth(index), ours.prefix_len())).find(|cidr| {
        unfit(*cidr).is_none() && addresses.iter().all(|a| a.address() != cidr.address())
    })
}

fn check_host_address(host: Cidr, addresses: &[Cidr]) -> Result<(), Failure> {
    let why = if let Some(why) = unfit(host) {
        why
    } else if addresses.iter().any(|ours| ours.address() == host.address()) {
        "this is our own address: the kernel's end needs another"
    } else if !addresses.iter().any(|ours| ours.contains(host.address())) {
        "not in the subnet of any --ip"
    } else {
        return Ok(());
    };
    Err(usage(format!("--host-ip {host}: {why}")))
}

fn gateways(given: &[IpAddr], addresses: &[Cidr]) -> Result<Vec<IpAddr>, Failure> {
    for (index, gateway) in given.iter().enumerate() {
        let why = if given[..index].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            "one gateway for each IP version"
        } else if addresses.iter().any(|ours| ours.address() == *gateway) {
            "this is our own address"
        } else if !addresses.iter().any(|ours| ours.contains(*gateway)) {
            "not in the subnet of any --ip, so it cannot be reached"
        } else {
            continue;
        };
        return Err(usage(format!("--gateway {gateway}: {why}")));
    }
    Ok(given.to_vec())
}

#[cfg(test)]
mod tests;
