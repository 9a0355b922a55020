//! One host of a simulation: its shard while it has power, and the program that it runs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::rc::Rc;

use lightwait::driver::Driven;
use lightwait::executor::JoinHandle;
use lightwait::net::{self, ServedShard, StackHandle};
use lightwait::shard::{Handle, Shard};
use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Instant, Medium};

use super::names::Names;
use super::switch::{self, Port, Switch};
use super::{Outcome, current};

/// Largest IP packet between two hosts, in bytes.
const MTU: u16 = 1500;

/// A program that runs.
pub(super) type Running = Pin<Box<dyn Future<Output = Outcome>>>;

/// Changes a configuration.
pub(super) type Set = Box<dyn Fn(&mut Config)>;

/// What a host runs.
pub(super) enum Program {
    /// At each start.
    Again(Box<dyn Fn() -> Running>),
    /// At the first. The run is over with it.
    Once(Option<Running>),
}

pub(super) struct SimHost {
    name: String,
    number: usize,
    set: Set,
    program: Program,
    /// How often it was started: its secret differs each time.
    starts: u32,
    power: Option<Power>,
    pub(super) is_paused: bool,
    running: Option<JoinHandle<()>>,
    error: Rc<RefCell<Option<String>>>,
}

/// What a host has while it has power.
struct Power {
    shard: ServedShard,
    handle: Handle,
    /// For sockets of [`lightwait::net`].
    stack: StackHandle,
}

impl SimHost {
    pub(super) fn new(name: &str, number: usize, set: Set, program: Program) -> SimHost {
        SimHost {
            name: name.to_owned(),
            number,
            set,
            program,
            starts: 0,
            power: None,
            is_paused: false,
            running: None,
            error: Rc::default(),
        }
    }

    /// Gives it power.
    pub(super) fn start(
        &mut self,
        seed: u64,
        now: Instant,
        switch: &Rc<RefCell<Switch>>,
        names: &Rc<RefCell<Names>>,
    ) {
        let device = Capabilities::plain(Medium::Ip, MTU);
        let mut secret = [1; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        secret[8..16].copy_from_slice(&(self.number as u64).to_le_bytes());
        secret[16..20].copy_from_slice(&self.starts.to_le_bytes());
        self.starts += 1;
        let addresses = [(self.address().into(), 16), (self.ipv6_address().into(), 64)];
        let addresses = addresses.map(|(address, len): (IpAddr, u8)| Cidr::new(address, len));
        let addresses = addresses.map(|cidr| cidr.expect("a prefix of its version"));
        let mut config = Config::new(device, addresses[0], secret);
        (self.set)(&mut config);
        config.addresses = addresses.to_vec();
        let port = Port::new(switch, self.number, device);
        let shard = Shard::in_made_time(config, Box::new(port));
        let mut shard = shard.unwrap_or_else(|error| panic!("the host {}: {error}", self.name));
        // Its clock is the world's before its program asks for the time.
        shard.turn(now);
        let names = names.clone();
        let handle = shard.handle();
        handle.set_resolver(move |name| names.borrow().find(name));
        let (shard, stack) = net::serve(shard);
        let program = match &mut self.program {
            Program::Again(begin) => Some(current::with(&stack, begin)),
            Program::Once(program) => program.take(),
        };
        let error = self.error.clone();
        self.running = program.map(|program| {
            handle.spawn_local(async move {
                if let Err(failure) = program.await {
                    *error.borrow_mut() = Some(failure.to_string());
                }
            })
        });
        self.power = Some(Power { shard, handle, stack });
    }

    /// Takes its power: tasks, connections and all that is queued are gone.
    pub(super) fn stop(&mut self) {
        (self.power, self.running, self.is_paused) = (None, None, false);
    }

    pub(super) fn turn(&mut self, now: Instant) {
        if let Some(Power { shard, stack, .. }) = self.power.as_mut().filter(|_| !self.is_paused) {
            current::with(stack, || shard.turn(now)).expect("a simulated device never fails");
        }
    }

    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.power.as_ref().filter(|_| !self.is_paused)?.shard.deadline(now)
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.power.as_ref().map(|power| power.handle.clone())
    }

    pub(super) fn stack(&self) -> Option<StackHandle> {
        self.power.as_ref().map(|power| power.stack.clone())
    }

    /// True unless it is one that a run waits for.
    pub(super) fn is_done(&self) -> bool {
        let is_client = matches!(self.program, Program::Once(_));
        !is_client || self.running.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The error that its program has returned, once.
    pub(super) fn take_error(&self) -> Option<String> {
        self.error.borrow_mut().take()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        switch::address(self.number)
    }

    pub(super) fn ipv6_address(&self) -> Ipv6Addr {
        switch::ipv6_address(self.number)
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost")
            .field("name", &self.name)
            .field("address", &self.address())
            .field("has_power", &self.power.is_some())
            .field("is_paused", &self.is_paused)
            .finish_non_exhaustive()
    }
}
