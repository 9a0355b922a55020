//! A network of hosts for the tests of any program: hosts by name, links between all of them, and
//! faults: loss, cuts, pauses, and power failures.
//!
//! ```
//! use std::time::Duration;
//!
//! use lightwait::local::{TcpListener, TcpStream};
//! use lightwait_sim::Simulation;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let mut sim = Simulation::new(7);
//! sim.set_links(&"delay=20ms,rate=10Mbit,loss=5%".parse().unwrap());
//! // What a host runs, from its start on, and again each time it is started.
//! let server = sim.host("server", || async {
//!     let listener = TcpListener::bind("0.0.0.0:80").await?;
//!     loop {
//!         listener.accept().await?.0.write_all(b"hello").await?;
//!     }
//! });
//! // What the run is over with.
//! let client = sim.client("client", async {
//!     let mut heard = String::new();
//!     TcpStream::connect("server:80").await?.read_to_string(&mut heard).await?;
//!     Ok(assert_eq!(heard, "hello"))
//! });
//! sim.cut(client, server);
//! sim.after(Duration::from_secs(2), move |sim| sim.join(client, server));
//! sim.run(Duration::from_secs(60)).unwrap();
//! assert!(sim.elapsed() > Duration::from_secs(2));
//! ```
//!
//! All that is random follows from the seed: the same seed is the same run, to the byte
//! ([`Simulation::digest`]).

mod capture;
mod current;
mod failure;
mod host;
mod names;
mod seeds;
mod switch;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::net::StackHandle;
use lightwait::shard::Handle;
use lightwait_core::capture::pcapng::Direction;
use lightwait_core::{Config, Host, Instant};
use lightwait_netem::LinkConfig;

use crate::world::{BEGIN, PASSES_AT_ONCE};
pub use capture::Capture;
pub use current::current_stack;
pub use failure::{Cause, Failure};
use host::{Program, SimHost};
use names::Names;
pub use seeds::each_seed;
use switch::Switch;

/// What a program returns.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A host of a [`Simulation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(usize);

/// Hosts, the links between them, and the time. See the [module](self).
///
/// A panic of any task is one of the call that lets time pass; the seed is printed then.
pub struct Simulation {
    seed: u64,
    now: Instant,
    hosts: Vec<SimHost>,
    names: Rc<RefCell<Names>>,
    switch: Rc<RefCell<Switch>>,
    plan: BTreeMap<(Instant, u64), Event>,
    planned: u64,
}

/// What is to happen at its time.
type Event = Box<dyn FnOnce(&mut Simulation)>;

impl Simulation {
    /// An empty network. Links are perfect until [`Simulation::set_links`] says something else.
    pub fn new(seed: u64) -> Simulation {
        Simulation {
            seed,
            now: BEGIN,
            hosts: Vec::new(),
            names: Rc::default(),
            switch: Rc::new(RefCell::new(Switch::new(seed))),
            plan: BTreeMap::new(),
            planned: 0,
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    // ---- hosts

    /// A host that runs `program` from now on, and again from its begin each time that it is
    /// started ([`Simulation::restart`]). The program's error ends the run.
    ///
    /// # Panics
    /// If there is a host of that name.
    pub fn host<F>(&mut self, name: &str, program: impl Fn() -> F + 'static) -> HostId
    where
        F: Future<Output = Outcome> + 'static,
    {
        self.host_with(name, |_| (), program)
    }

    /// A host whose configuration `set` has changed: buffers, timeouts, congestion control. Its
    /// address and its device stay.
    ///
    /// # Panics
    /// As [`Simulation::host`]; and if the configuration makes no host.
    pub fn host_with<F>(
        &mut self,
        name: &str,
        set: impl Fn(&mut Config) + 'static,
        program: impl Fn() -> F + 'static,
    ) -> HostId
    where
        F: Future<Output = Outcome> + 'static,
    {
        let program = move || Box::pin(program()) as host::Running;
        self.add(name, Box::new(set), Program::Again(Box::new(program)))
    }

    /// A host that runs `program` once. [`Simulation::run`] waits for the end of all of these.
    ///
    /// # Panics
    /// As [`Simulation::host`].
    pub fn client(
        &mut self,
        name: &str,
        program: impl Future<Output = Outcome> + 'static,
    ) -> HostId {
        self.add(name, Box::new(|_| ()), Program::Once(Some(Box::pin(program))))
    }

    fn add(&mut self, name: &str, set: host::Set, program: Program) -> HostId {
        let number = self.hosts.len();
        let is_new = self.names.borrow_mut().add(name, number);
        assert!(is_new, "there are two hosts with the name {name}");
        self.switch.borrow_mut().add(self.now);
        let mut host = SimHost::new(name, number, set, program);
        host.start(self.seed, self.now, &self.switch, &self.names);
        self.hosts.push(host);
        HostId(number)
    }

    /// The host's IPv4 address. Programs find each other by their hosts' names as well.
    pub fn address(&self, host: HostId) -> IpAddr {
        self.hosts[host.0].address().into()
    }

    /// The host's IPv6 address: it has one of each version.
    pub fn ipv6_address(&self, host: HostId) -> IpAddr {
        self.hosts[host.0].ipv6_address().into()
    }

    /// Lets the hosts' names stand for their IPv6 addresses from now on, or for those of IPv4, as
    /// at the begin.
    pub fn names_are_ipv6(&mut self, ipv6: bool) {
        self.names.borrow_mut().ipv6 = ipv6;
    }

    /// The stack of a host, for sockets of [`lightwait::net`]; `None` while it is down. Its
    /// programs have it by [`current_stack`].
    pub fn stack(&self, host: HostId) -> Option<StackHandle> {
        self.hosts[host.0].stack()
    }

    /// The shard of a host, for sockets and tasks beside its program; `None` while it is down.
    pub fn handle(&self, host: HostId) -> Option<Handle> {
        self.hosts[host.0].handle()
    }

    /// Gives `look` the host: its counters, and its connections. `None` while it is down.
    pub fn look<R>(&self, host: HostId, look: impl FnOnce(&Host) -> R) -> Option<R> {
        self.handle(host).map(|handle| handle.with_host(look))
    }

    // ---- links

    /// Sets what all links are like, from now on, in each direction.
    ///
    /// The delays and losses of [`LinkConfig`]; its seed is not used.
    pub fn set_links(&mut self, link: &LinkConfig) {
        self.switch.borrow_mut().set_all(self.now, link);
    }

    /// Sets what the link between two hosts is like, both ways, from now on.
    pub fn set_link(&mut self, one: HostId, other: HostId, link: &LinkConfig) {
        self.set_link_one_way(one, other, link);
        self.set_link_one_way(other, one, link);
    }

    /// Sets what the link from one host to another is like, from now on.
    pub fn set_link_one_way(&mut self, from: HostId, to: HostId, link: &LinkConfig) {
        self.switch.borrow_mut().set(self.now, (from.0, to.0), link);
    }

    /// Cuts two hosts off from each other: what is sent from now on is lost. What is on its way
    /// arrives.
    pub fn cut(&mut self, one: HostId, other: HostId) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Loses what `from` sends to `to` from now on; the other way is open.
    pub fn cut_one_way(&mut self, from: HostId, to: HostId) {
        self.switch.borrow_mut().set_cut((from.0, to.0), true);
    }

    /// Joins two hosts again.
    pub fn join(&mut self, one: HostId, other: HostId) {
        for ends in [(one.0, other.0), (other.0, one.0)] {
            self.switch.borrow_mut().set_cut(ends, false);
        }
    }

    /// Cuts the hosts of one side off from all others.
    pub fn partition(&mut self, side: &[HostId]) {
        self.each_across(side, Simulation::cut);
    }

    /// Joins the hosts of one side and all others again.
    pub fn heal(&mut self, side: &[HostId]) {
        self.each_across(side, Simulation::join);
    }

    fn each_across(&mut self, side: &[HostId], mut call: impl FnMut(&mut Self, HostId, HostId)) {
        let others = (0..self.hosts.len()).map(HostId).filter(|host| !side.contains(host));
        for other in others.collect::<Vec<_>>() {
            side.iter().for_each(|one| call(self, *one, other));
        }
    }

    /// Loses the IP packets from one host to another for which `loses` is true, until another such
    /// call. [`lightwait_core::wire`] reads them.
    pub fn lose(&mut self, from: HostId, to: HostId, loses: impl FnMut(&[u8]) -> bool + 'static) {
        self.switch.borrow_mut().set_filter((from.0, to.0), Box::new(loses));
    }

    // ---- faults of hosts

    /// Stops a host, as a debugger or a hypervisor does: its programs and its stack do nothing.
    /// What arrives waits on its links.
    pub fn pause(&mut self, host: HostId) {
        self.hosts[host.0].is_paused = true;
    }

    /// Lets it go on. Its timers are late by then.
    pub fn resume(&mut self, host: HostId) {
        self.hosts[host.0].is_paused = false;
    }

    /// Takes a host's power: its programs, connections and TIME-WAIT are gone, and no peer is told.
    pub fn crash(&mut self, host: HostId) {
        self.hosts[host.0].stop();
    }

    /// Takes a host's power, and starts it, with an empty stack and its program from the begin. One
    /// that runs its program once runs nothing then.
    pub fn restart(&mut self, host: HostId) {
        self.crash(host);
        let number = host.0;
        self.switch.borrow_mut().discard(self.now, number);
        self.hosts[number].start(self.seed, self.now, &self.switch, &self.names);
    }

    // ---- time

    /// The time since the begin.
    pub fn elapsed(&self) -> Duration {
        self.now.since(BEGIN)
    }

    /// Does `event` after that time.
    pub fn after(&mut self, delay: Duration, event: impl FnOnce(&mut Simulation) + 'static) {
        self.planned += 1;
        self.plan.insert((self.now + delay, self.planned), Box::new(event));
    }

    /// Lets time pass until all clients have ended, for `limit` at most.
    ///
    /// # Errors
    /// A program's error; or what kept the clients from their end.
    pub fn run(&mut self, limit: Duration) -> Result<(), Failure> {
        self.run_until(limit, |sim| sim.hosts.iter().all(SimHost::is_done))
    }

    /// Lets `duration` pass.
    ///
    /// # Errors
    /// A program's error; or [`Cause::Spinning`].
    pub fn run_for(&mut self, duration: Duration) -> Result<(), Failure> {
        let end = self.now + duration;
        self.after(duration, |_| ());
        self.run_until(duration, |sim| sim.now >= end)
    }

    /// Lets time pass until `done`, for `limit` at most.
    ///
    /// # Errors
    /// A program's error; or what kept it from `done`.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&Simulation) -> bool,
    ) -> Result<(), Failure> {
        let end = self.now + limit;
        loop {
            self.settle()?;
            if done(self) {
                return Ok(());
            }
            let shards = self.hosts.iter().filter_map(|host| host.deadline(self.now)).min();
            let planned = self.plan.first_key_value().map(|((at, _), _)| *at);
            let next = shards.into_iter().chain(planned).min();
            self.now = match next {
                None => return Err(self.failure(Cause::Quiet)),
                Some(next) if next > end => {
                    self.now = end;
                    return Err(self.failure(Cause::Late));
                }
                Some(next) => next.max(self.now),
            };
        }
    }

    /// Does what is planned, and gives every host turns, until none has work at this instant.
    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..PASSES_AT_ONCE {
            while let Some(entry) = self.plan.first_entry().filter(|it| it.key().0 <= self.now) {
                entry.remove()(self);
            }
            for host in &mut self.hosts {
                host.turn(self.now);
            }
            self.check_programs()?;
            let has_work =
                |host: &SimHost| host.deadline(self.now).is_some_and(|at| at <= self.now);
            if !self.hosts.iter().any(has_work) {
                return Ok(());
            }
        }
        Err(self.failure(Cause::Spinning))
    }

    fn check_programs(&self) -> Result<(), Failure> {
        for host in &self.hosts {
            if let Some(error) = host.take_error() {
                let host = host.name().to_owned();
                return Err(self.failure(Cause::Program { host, error }));
            }
        }
        Ok(())
    }

    fn failure(&self, cause: Cause) -> Failure {
        Failure { seed: self.seed, after: self.elapsed(), cause }
    }

    // ---- what happened

    /// Prints a line for each packet that is sent, from now on.
    pub fn trace(&mut self) {
        self.switch.borrow_mut().trace = true;
    }

    /// Records what two hosts send each other from now on.
    pub fn capture(&mut self, one: HostId, other: HostId) -> Capture {
        let capture = Capture::new(self.hosts[one.0].name());
        let mut switch = self.switch.borrow_mut();
        switch.record((one.0, other.0), &capture, Direction::Outbound);
        switch.record((other.0, one.0), &capture, Direction::Inbound);
        capture
    }

    /// Packets that were sent from one host to another, and of these the lost ones.
    pub fn packets(&self, from: HostId, to: HostId) -> Packets {
        self.switch.borrow().packets((from.0, to.0))
    }

    /// A hash of every packet so far, and of its time. Two runs of a seed that differ in it have a
    /// program that does something which the seed does not decide.
    pub fn digest(&self) -> u64 {
        self.switch.borrow().digest
    }
}

/// Packets from one host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Those that were sent.
    pub sent: u64,
    /// Those of them that were lost by a cut or by [`Simulation::lose`]; what a link loses by
    /// itself is not among them.
    pub lost: u64,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation: seed {}, after {:?}", self.seed, self.elapsed());
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("elapsed", &self.elapsed())
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
