//! Experiments with real packets. They run in a network namespace of their own. The program enters
//! it by starting itself again, and it vanishes with that process.
//!
//! ```text
//!  lw0 ═ lw1 (A) ─ router ─ (B) lw2 ═ lw3
//! ```

use std::io;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device, Tap, TapConfig};
use lightwait::wrap::Plain;
use lightwait_wan::{
    Ends, LinkText, RECEIVE_BUFFER_BYTES, Release, Router, Snapshot, Steps, Threads, Way,
};
use rustix::process::setpriority_process;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};

/// The highest priority of a thread without real-time scheduling.
const HIGHEST: i32 = -20;

/// The measurements of the experiment of that name, from a namespace, perhaps without what an
/// ablation takes away.
pub(crate) fn measured(id: &str, ablation: Option<&Ablation>) -> Result<Value, Failure> {
    let mut unshare = Command::new("unshare");
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        unshare.args(["--user", "--map-root-user"]);
    }
    let program = std::env::current_exe()?;
    unshare.arg("--net").arg(program).args([id, "--live"]);
    if let Some(ablation) = ablation {
        unshare.args(["--ablated", ablation.name]);
    }
    let output = unshare.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("no measurement in a network namespace: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Gives this thread, and threads that it starts, priority over other programs on the machine.
pub(crate) fn run_before_others() {
    // If the system refuses, other programs take the processor more often.
    let _ = setpriority_process(None, HIGHEST);
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(arguments: &str) -> Outcome {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments}: {status}").into()) }
}

/// Two cables of veth, all four ends up, and silent: the kernel's IPv6 sends no frames on them.
pub(crate) fn lay_cables() -> Outcome {
    // The router's ends receive ARP requests for other addresses of the kernel.
    std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1")?;
    for (one, other) in [("lw0", "lw1"), ("lw2", "lw3")] {
        ip(&format!("link add {one} type veth peer name {other}"))?;
        for end in [one, other] {
            silence(end)?;
            ip(&format!("link set {end} up"))?;
        }
    }
    Ok(())
}

/// Keeps the kernel's IPv6 off an interface.
pub(crate) fn silence(interface: &str) -> Outcome {
    Ok(std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1")?)
}

/// The devices of a router.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Packet sockets on `lw1` and `lw2`.
    Sockets,
    /// TAPs of these names.
    Taps(&'static str, &'static str),
}

/// A router's result, and its processor time: that of the thread from B to A if there are two.
pub(crate) struct Routed<T> {
    pub(crate) found: T,
    pub(crate) snapshot: Snapshot,
    pub(crate) processor: Duration,
}

/// Runs `body` while a router, on a thread of its own, has these links from A to B and back.
pub(crate) fn routed<T>(
    kind: Kind,
    links: [&str; 2],
    release: Release,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Result<Routed<T>, Failure> {
    routed_by(Threads::One, kind, links, release, body)
}

/// Does as [`routed`], with so many threads of the router's.
pub(crate) fn routed_by<T>(
    threads: Threads,
    kind: Kind,
    links: [&str; 2],
    release: Release,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Result<Routed<T>, Failure> {
    let stop = &AtomicBool::new(false);
    let (ready, is_ready) = sync_channel(1);
    thread::scope(|scope| {
        let router = scope.spawn(move || {
            run(threads, kind, links, release, stop, || {
                // The receiver may be gone if the experiment is over.
                let _ = ready.send(());
            })
        });
        // If the router is never ready, its thread has ended, with the reason.
        let found = is_ready.recv().map_err(Failure::from).and_then(|()| body());
        stop.store(true, Ordering::Relaxed);
        let ended = router.join().map_err(|_| "the router panicked")?;
        let (snapshot, processor) = ended?;
        Ok(Routed { found: found?, snapshot, processor })
    })
}

fn run(
    threads: Threads,
    kind: Kind,
    links: [&str; 2],
    release: Release,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(Snapshot, Duration), String> {
    let text = |error: &dyn ToString| error.to_string();
    let devices = open(kind).map_err(|error| text(&error))?;
    let [there, back] = links.map(str::parse::<LinkText>);
    let there = there.and_then(|link| link.config(Way::AToB)).map_err(|error| text(&error))?;
    let back = back.and_then(|link| link.config(Way::BToA)).map_err(|error| text(&error))?;
    let clock = Clock::new();
    let begin = clock.now();
    let mut router = Router::new(devices, [there, back], release, &Steps::default(), begin);
    ready();
    let before = processor_time();
    let is_over = || stop.load(Ordering::Relaxed);
    let ended = router.run(threads, &clock, is_over, None, Duration::from_secs(1), |_, _| ());
    let processor = processor_time() - before;
    ended.map_err(|error| text(&error))?;
    Ok((router.snapshot(clock.now()), processor))
}

fn open(kind: Kind) -> io::Result<[Ends<AnyDevice>; 2]> {
    match kind {
        Kind::Sockets => Ok([packet_socket("lw1")?, packet_socket("lw2")?]),
        Kind::Taps(a, b) => {
            let tap = |name| {
                let tap = Tap::open(&TapConfig { offload: false, ..TapConfig::new(name) })?;
                Ok::<_, io::Error>(ends(tap.try_clone()?, tap))
            };
            Ok([tap(a)?, tap(b)?])
        }
    }
}

/// A device of a router, or a handle on one.
pub(crate) type AnyDevice = Box<dyn Device + Send>;

/// A packet socket with the room that `lightwait wan` gives it.
pub(crate) fn packet_socket(interface: &str) -> io::Result<Ends<AnyDevice>> {
    let socket = AfPacket::open(interface, true)?.with_receive_buffer(RECEIVE_BUFFER_BYTES)?;
    Ok(ends(socket.try_clone()?, socket))
}

/// Two handles on a device, whose offloads are undone.
fn ends(
    receiving: impl Device + Send + 'static,
    sending: impl Device + Send + 'static,
) -> Ends<AnyDevice> {
    Ends { receiving: Box::new(Plain::new(receiving)), sending: Box::new(Plain::new(sending)) }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
