//! `lightwait wan` makes a plan ([`plan`]) of the command line ([`args`]). The router runs by it,
//! shown on the terminal ([`live`]), and reports the result.

pub(crate) mod args;
mod live;
mod plan;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device, LinkState, Tap, TapConfig, kernel_addresses};
use lightwait::wrap::{Pcap, Plain, Recording};
use lightwait_core::address::Cidr;
use lightwait_wan::{Ends, RECEIVE_BUFFER_BYTES, Report, Router, Threads, WayReport};

use crate::failure::{Failure, print};
use crate::serve::device::no_carrier;
use crate::serve::signals::Signals;
use args::{DeviceName, WanArgs};
use live::{Teller, View};
use plan::WanPlan;

/// Routes until a signal, the end of the time or a failure of a device, and reports.
pub(crate) fn wan(args: &WanArgs) -> Result<ExitCode, Failure> {
    let plan = WanPlan::new(args)?;
    let signals = Signals::install().map_err(Failure::Stack)?;
    let view = View::new(&plan);
    let devices = open_both(&plan, view.teller())?;
    let names = devices.each_ref().map(|device| device.name.clone());
    announce(&plan, &devices);
    let clock = Clock::new();
    let begin = clock.now();
    let devices = devices.map(|device| device.ends);
    let mut router = Router::new(devices, plan.links.clone(), plan.release, &plan.steps, begin);
    if plan.flows {
        router = router.with_flows();
    }
    let until = plan.duration.map(|duration| begin + duration);
    let outcome = router.run(
        plan.threads,
        &clock,
        || signals.is_stop(),
        until,
        live::INTERVAL,
        |way, live| view.show(way, live),
    );
    view.end();
    let report = Report {
        devices: names,
        release: plan.release,
        threads: plan.threads,
        ways: plan.texts.each_ref().map(|text| WayReport { link: text.to_string() }),
        snapshot: router.snapshot(clock.now()),
    };
    let text = if plan.json { format!("{:#}\n", report.json()) } else { report.text() };
    print(&text)?;
    if plan.json {
        report.warnings().iter().for_each(|warning| eprintln!("lightwait: {warning}"));
    }
    // The report includes everything up to the failure.
    outcome.map_err(Failure::Router)?;
    Ok(signals.exit_code())
}

/// A device, or a handle on one, for any thread.
type AnyDevice = Box<dyn Device + Send>;

/// An open device.
struct Opened {
    ends: Ends<AnyDevice>,
    /// The interface's name.
    name: String,
}

fn open_both(plan: &WanPlan, teller: &Teller) -> Result<[Opened; 2], Failure> {
    let [a, b] = [0, 1].map(|n| open(&plan.devices[n], plan.pcaps[n].as_ref(), teller));
    Ok([a?, b?])
}

/// Opens a device that moves packets as they are on a wire.
fn open(name: &DeviceName, pcap: Option<&PathBuf>, teller: &Teller) -> Result<Opened, Failure> {
    let opened = match name {
        DeviceName::Tap(name) => open_tap(name, teller),
        DeviceName::Interface(name) => open_interface(name, teller),
    }?;
    // What is not known is no reason to stop.
    let addresses = kernel_addresses(&opened.name).unwrap_or_default();
    if let Some(text) = addressed(&opened.name, &addresses) {
        teller.say(&text);
    }
    let Some(path) = pcap else { return Ok(opened) };
    let ends = captured(opened.ends, path, &opened.name, teller)?;
    Ok(Opened { ends, ..opened })
}

/// The warning about a device on which the kernel has an IPv4 address.
fn addressed(name: &str, addresses: &[Cidr]) -> Option<String> {
    let address = addresses.iter().find(|cidr| cidr.address().is_ipv4())?;
    Some(format!(
        "{name} has the address {address}: the kernel answers there, and sends there, beside the \
         router (`sudo ip addr del {address} dev {name}`)"
    ))
}

fn open_tap(name: &str, teller: &Teller) -> Result<Opened, Failure> {
    let config = TapConfig { offload: false, ..TapConfig::new(name) };
    let flag = |error| Failure::Device(format!("tap:{name}"), error);
    let tap = Tap::open(&config).map_err(flag)?;
    let other = tap.try_clone().map_err(flag)?;
    let name = tap.name().to_owned();
    let tell = tell_link(&name, teller);
    let [receiving, sending] =
        [tap, other].map(|tap| Box::new(Plain::new(tap.on_link(tell.clone()))) as _);
    Ok(Opened { ends: Ends { receiving, sending }, name })
}

fn open_interface(name: &str, teller: &Teller) -> Result<Opened, Failure> {
    let sockets = AfPacket::open(name, true)
        .and_then(|socket| socket.with_receive_buffer(RECEIVE_BUFFER_BYTES))
        .and_then(|socket| Ok([socket.try_clone()?, socket]));
    let sockets = sockets.map_err(|error| {
        let text = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("{error}; `ip link` shows those there are, and tap:{name} makes a TAP")
            }
            _ => error.to_string(),
        };
        Failure::Device(name.to_owned(), io::Error::new(error.kind(), text))
    })?;
    if let Ok(false) = sockets[0].has_carrier() {
        teller.say(&no_carrier(name));
    }
    let tell = tell_link(name, teller);
    let [receiving, sending] =
        sockets.map(|socket| Box::new(Plain::new(socket.on_link(tell.clone()))) as _);
    Ok(Opened { ends: Ends { receiving, sending }, name: name.to_owned() })
}

/// Says when the interface goes down and comes up: once, though both handles may notice.
fn tell_link(name: &str, teller: &Teller) -> impl FnMut(LinkState) + Clone + Send + use<> {
    let (name, teller) = (name.to_owned(), teller.clone());
    let told = Arc::new(Mutex::new(LinkState::Up));
    move |state| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *told, state) == state {
            return;
        }
        match state {
            LinkState::Down => teller.say(&format!("{name} is down: `ip link set dev {name} up`")),
            LinkState::Up => teller.say(&format!("{name} is up again")),
        }
    }
}

/// Captures both ends into one file.
fn captured(
    ends: Ends<AnyDevice>,
    path: &Path,
    name: &str,
    teller: &Teller,
) -> Result<Ends<AnyDevice>, Failure> {
    let recording = Recording::create(path, ends.receiving.capabilities().medium, &[name]);
    let recording = recording.map_err(|error| Failure::Output(path.to_owned(), error))?;
    let shown = path.display().to_string();
    let (on_error, on_loss) = ((shown.clone(), teller.clone()), (shown, teller.clone()));
    let recording = recording.on_error(move |error| {
        let (path, teller) = &on_error;
        teller.say(&format!("{path}: capture ended: {error}"));
    });
    let recording = recording.on_loss(move |frames| {
        let (path, teller) = &on_loss;
        teller.say(&format!("{path}: {frames} frames lost: it is written too slowly"));
    });
    let capture = |device| Box::new(Pcap::new(device, &recording, 0)) as _;
    Ok(Ends { receiving: capture(ends.receiving), sending: capture(ends.sending) })
}

/// Reports on standard error that routing begins, and describes the links.
fn announce(plan: &WanPlan, devices: &[Opened; 2]) {
    let [a, b] = devices.each_ref().map(|device| &device.name);
    let [there, back] = plan.texts.each_ref().map(|text| match text.to_string() {
        text if text.is_empty() => "a perfect link".to_owned(),
        text => text,
    });
    eprintln!("{a} → {b}: {there}\n{b} → {a}: {back}");
    let [mtu_a, mtu_b] = devices.each_ref().map(|device| device.ends.sending.capabilities().mtu);
    if mtu_a != mtu_b {
        eprintln!(
            "lightwait: the MTU of {a} is {mtu_a}, that of {b} {mtu_b}: larger packets do not pass"
        );
    }
    let threads = match plan.threads {
        Threads::One => "",
        Threads::OneEach => " on two threads",
    };
    match plan.duration {
        Some(duration) => eprintln!("Routing for {duration:?}{threads}."),
        None => eprintln!("Routing{threads}; Ctrl-C ends it with a report."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_with_an_ipv4_address_is_warned_of() {
        let warning = |texts: &[&str]| {
            let addresses: Vec<Cidr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            addressed("eth1", &addresses)
        };
        // An interface has a link-local address of IPv6 by itself.
        assert_eq!([warning(&[]), warning(&["fe80::1/64"])], [None, None]);
        let text = warning(&["fe80::1/64", "10.9.0.1/24"]).unwrap();
        assert!(text.contains("`sudo ip addr del 10.9.0.1/24 dev eth1`"), "{text}");
    }
}
