//! The namespaces of a path: two senders, a router between, and a receiver. They vanish with the
//! site.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use lightwait::clock::Clock;
use lightwait_bench::live::{self, Namespace, Server};
use lightwait_wan::{Ends, LinkText, Release, Router, Snapshot, Steps, Threads, Way};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Sender;
use super::download::download;
use super::kernel::KernelServer;
use crate::plan::Failure;
use crate::report::Report;
use crate::routed::{AnyDevice, packet_socket, run_before_others};

const OURS: &str = "10.9.0.1:80";
const LINUX: &str = "10.9.0.3:80";
/// The age from which on ours keeps a file's contents.
const SETTLED: Duration = Duration::from_secs(3);
/// What a first request asks for. Its connection resolves the addresses of both ends.
pub(super) const SHORT: usize = 1000;
const SHORT_LIMIT: Duration = Duration::from_secs(4);
/// The kernel's buffers may grow to this: its own limits would bind at 600 ms.
const KERNEL_BUFFER: u32 = 64 << 20;

/// The links of a path. The seed is not in the texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// From the senders to the receiver.
    pub(super) forth: String,
    pub(super) back: String,
    /// Changes, as a file of `lightwait wan --steps` has them.
    pub(super) steps: Option<PathBuf>,
}

impl Links {
    /// Links of half of a round trip each; the data's has that rate and queue, and `more`.
    pub(super) fn new(rtt_ms: u32, rate: &str, queue: &str, more: &str) -> Links {
        let delay = format!("delay={}us", rtt_ms * 500);
        let forth = format!("{delay},rate={rate},queue={queue}");
        let forth = if more.is_empty() { forth } else { format!("{forth},{more}") };
        Links { forth, back: delay, steps: None }
    }

    fn seeded(&self, seed: u64) -> Result<[LinkText; 2], Failure> {
        let parse = |text: &String| format!("{text},seed={seed}").parse::<LinkText>();
        Ok([parse(&self.forth)?, parse(&self.back)?])
    }
}

/// A path between two senders and a receiver.
#[derive(Debug)]
pub(super) struct Site {
    program: PathBuf,
    files: PathBuf,
    ours: Namespace,
    linux: Namespace,
    middle: Namespace,
    pub(super) clients: Namespace,
    /// Flags of ours in an ablated run, beside those of each start.
    pub(super) flags: &'static [&'static str],
    /// The controller by which ours sends where BBR is asked for: another one in an ablated run.
    pub(super) model: &'static str,
}

impl Site {
    /// Lays the path, and makes files of these lengths, each named by its length.
    pub(super) fn lay(report: &Report, lengths: &[usize]) -> Result<Site, Failure> {
        let program = live::lightwait()?;
        let files = report.path("site");
        fs::create_dir_all(&files)?;
        for length in lengths.iter().chain([&SHORT]) {
            fs::write(files.join(length.to_string()), vec![b'x'; *length])?;
        }
        let [ours, linux, middle, clients] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for namespace in [&ours, &linux, &middle, &clients] {
            set(namespace, "net.ipv6.conf.default.disable_ipv6=1")?;
        }
        middle.ip("link add bridge type bridge")?;
        middle.ip("link set bridge up")?;
        let pairs = [
            ("ours-b", "ours"),
            ("linux-b", "linux"),
            ("router-b", "router-a"),
            ("router-c", "client"),
        ];
        for (one, other) in pairs {
            middle.ip(&format!("link add {one} type veth peer name {other}"))?;
            middle.ip(&format!("link set {one} up"))?;
        }
        for end in ["ours-b", "linux-b", "router-b"] {
            middle.ip(&format!("link set {end} master bridge"))?;
        }
        middle.ip("link set router-a up")?;
        for (end, namespace) in [("ours", &ours), ("linux", &linux), ("client", &clients)] {
            middle.give(end, namespace)?;
        }
        // Only the packet socket listens at `ours`.
        ours.ip("link set ours up")?;
        for (namespace, end, address) in
            [(&linux, "linux", "10.9.0.3/24"), (&clients, "client", "10.9.0.2/24")]
        {
            namespace.ip(&format!("addr add {address} dev {end}"))?;
            namespace.ip(&format!("link set {end} up"))?;
            set(namespace, "net.ipv4.tcp_no_metrics_save=1")?;
            set(namespace, &format!("net.ipv4.tcp_rmem=4096 131072 {KERNEL_BUFFER}"))?;
            set(namespace, &format!("net.ipv4.tcp_wmem=4096 16384 {KERNEL_BUFFER}"))?;
        }
        thread::sleep(SETTLED);
        let (flags, model) = (&[][..], "bbr");
        Ok(Site { program, files, ours, linux, middle, clients, flags, model })
    }

    /// Lets the kernel ask for ECN and agree to it, or not.
    pub(super) fn use_ecn(&self, is_used: bool) -> Result<(), Failure> {
        for namespace in [&self.linux, &self.clients] {
            set(namespace, &format!("net.ipv4.tcp_ecn={}", u8::from(is_used)))?;
        }
        Ok(())
    }

    /// Starts a sender, with more flags for ours.
    pub(super) fn start(&self, sender: Sender, flags: &[&str]) -> Result<Source, Failure> {
        match sender {
            Sender::Ours(controller) => {
                let mut serve = self.ours.command(&self.program);
                serve.args(["serve", "--af-packet", "ours", "--ip", "10.9.0.1/24"]);
                serve.args(["--probe", "0s", "--min-rate", "0"]);
                let controller = if controller == "bbr" { self.model } else { controller };
                serve.args(["--congestion", controller]).args(flags).args(self.flags);
                let server = Server::start(serve.arg(&self.files))?;
                Ok(Source { address: OURS.parse()?, running: Running::Ours(server) })
            }
            Sender::Linux(controller) => {
                let address = LINUX.parse()?;
                let server = KernelServer::start(&self.linux, address, controller)?;
                Ok(Source { address, running: Running::Linux(server) })
            }
        }
    }

    /// Makes a short request, so that both ends know each other's hardware addresses.
    pub(super) fn greet(&self, source: &Source) -> Result<(), Failure> {
        let mut last = None;
        for _ in 0..5 {
            match download(&self.clients, source.address, SHORT, SHORT_LIMIT) {
                Ok(found) if found.is_complete => return Ok(()),
                Ok(_) => {}
                Err(why) => last = Some(why),
            }
        }
        Err(last.unwrap_or_else(|| "no short request is answered".into()))
    }

    /// Runs `body` while the router has these links, with that seed. `wrap` may change what comes
    /// from the senders.
    pub(super) fn routed<T>(
        &self,
        links: &Links,
        seed: u64,
        wrap: impl Fn(AnyDevice) -> AnyDevice + Send,
        body: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Snapshot), Failure> {
        let texts = links.seeded(seed)?;
        let steps = match &links.steps {
            Some(path) => Steps::read(path, &texts)?,
            None => Steps::default(),
        };
        let stop = &AtomicBool::new(false);
        let (ready, is_ready) = sync_channel(1);
        thread::scope(|scope| {
            let router = scope.spawn(move || {
                let ready = || {
                    // The receiver may be gone if the experiment is over.
                    let _ = ready.send(());
                };
                self.route(&texts, &steps, wrap, stop, ready).map_err(|why| why.to_string())
            });
            // If the router is never ready, its thread has ended, with the reason.
            let found = is_ready.recv().map_err(Failure::from).and_then(|()| body());
            stop.store(true, Ordering::Relaxed);
            let snapshot = router.join().map_err(|_| "the router panicked")??;
            Ok((found?, snapshot))
        })
    }

    fn route(
        &self,
        texts: &[LinkText; 2],
        steps: &Steps,
        wrap: impl Fn(AnyDevice) -> AnyDevice,
        stop: &AtomicBool,
        ready: impl FnOnce(),
    ) -> Result<Snapshot, Failure> {
        enter(&self.middle)?;
        run_before_others();
        let Ends { receiving, sending } = packet_socket("router-a")?;
        let a = Ends { receiving: wrap(receiving), sending: wrap(sending) };
        let devices = [a, packet_socket("router-c")?];
        let configs = [texts[0].config(Way::AToB)?, texts[1].config(Way::BToA)?];
        let clock = Clock::new();
        let begin = clock.now();
        let mut router = Router::new(devices, configs, Release::Polling, steps, begin).with_flows();
        ready();
        let is_over = || stop.load(Ordering::Relaxed);
        router.run(Threads::One, &clock, is_over, None, Duration::from_secs(1), |_, _| ())?;
        Ok(router.snapshot(clock.now()))
    }

    /// Counters of the receiver's kernel.
    pub(super) fn receiver_counts(&self) -> Result<KernelCounts, Failure> {
        KernelCounts::of(&self.clients)
    }

    /// Counters of the sending kernel.
    pub(super) fn linux_counts(&self) -> Result<KernelCounts, Failure> {
        KernelCounts::of(&self.linux)
    }
}

/// A running sender.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) address: SocketAddr,
    running: Running,
}

#[derive(Debug)]
enum Running {
    Ours(Server),
    Linux(#[expect(dead_code, reason = "it runs until it is dropped")] KernelServer),
}

impl Source {
    /// Counters of ours; `None` for the kernel.
    pub(super) fn counters<const N: usize>(
        &mut self,
        names: [&str; N],
    ) -> Result<Option<[u64; N]>, Failure> {
        let Running::Ours(server) = &mut self.running else { return Ok(None) };
        let (counts, mut found) = (server.counts()?, [0; N]);
        for (value, name) in found.iter_mut().zip(names) {
            *value = counts.counter(name)?;
        }
        Ok(Some(found))
    }
}

/// The kernel's counters of a namespace, from /proc/net/snmp and /proc/net/netstat.
#[derive(Clone, Debug)]
pub(super) struct KernelCounts(String);

impl KernelCounts {
    fn of(namespace: &Namespace) -> Result<KernelCounts, Failure> {
        let mut cat = namespace.command("cat");
        Ok(KernelCounts(live::run(cat.args(["/proc/net/snmp", "/proc/net/netstat"]))?))
    }

    /// The sum of counters by name; one that the kernel lacks counts as 0.
    pub(super) fn sum(&self, names: &[&str]) -> u64 {
        let lines: Vec<&str> = self.0.lines().collect();
        let pairs =
            lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
        let chosen = pairs.filter(|(name, _)| names.contains(name));
        chosen.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    }

    /// What was added to these counters since `before`.
    pub(super) fn since(&self, before: &KernelCounts, names: &[&str]) -> u64 {
        self.sum(names).saturating_sub(before.sum(names))
    }
}

/// The result of `act` on a thread in a namespace. Sockets stay in the one where they were made.
pub(super) fn inside<T: Send>(
    namespace: &Namespace,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, Failure> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace).map_err(|why| why.to_string())?;
            act().map_err(|why| why.to_string())
        });
        Ok(thread.join().map_err(|_| "a thread panicked in a namespace")??)
    })
}

/// Moves this thread into a namespace.
fn enter(namespace: &Namespace) -> Result<(), Failure> {
    let file = namespace.file()?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn set(namespace: &Namespace, setting: &str) -> Result<(), Failure> {
    live::run(namespace.command(Path::new("sysctl")).args(["-q", "-w", setting])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_are_found_by_name() {
        let text = "Tcp: InSegs RetransSegs\nTcp: 9 4\nTcpExt: TCPTimeouts X\nTcpExt: 2 7\n";
        let counts = KernelCounts(text.to_owned());
        assert_eq!(counts.sum(&["RetransSegs", "TCPTimeouts", "Unknown"]), 6);
        let before = KernelCounts("Tcp: RetransSegs\nTcp: 1\n".to_owned());
        assert_eq!(counts.since(&before, &["RetransSegs"]), 3);
    }

    #[test]
    fn a_path_has_half_of_its_round_trip_each_way() {
        let links = Links::new(41, "50Mbit", "256KiB", "loss=1%");
        let [forth, back] = links.seeded(7).unwrap();
        let [forth, back] = [forth.config(Way::AToB).unwrap(), back.config(Way::BToA).unwrap()];
        assert_eq!([forth.delay, back.delay], [Duration::from_micros(20_500); 2]);
        assert_ne!(forth.seed, back.seed);
        assert!(Links::new(1, "50Mbit", "256KiB", "loss=2").seeded(1).is_err());
    }
}
