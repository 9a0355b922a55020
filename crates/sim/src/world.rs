//! Shards and a clock: time goes from one event to the next, without waiting.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::JoinHandle;
use lightwait::shard::{Handle, Seat, Shard};
use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use lightwait_netem::LinkConfig;

use crate::cable::{Cable, Side};
use crate::queues::{Crew, Queue};

/// Passes over all shards at one instant. More of them mean an endless loop: a shard always has
/// work that takes no time.
pub(crate) const PASSES_AT_ONCE: usize = 1_000_000;

/// Largest IP packet between two hosts by default, in bytes.
const MTU: u16 = 1500;
/// The time at which their world begins. Zero is as good, and hides what is wrong with large ones.
pub(crate) const BEGIN: Instant = Instant::from_millis(1_000_000_000);

/// Two hosts, a cable between them, and the time.
#[derive(Debug)]
pub struct World {
    now: Instant,
    /// Those of side A, then those of side B.
    shards: Vec<Shard>,
    /// How many are of side A.
    of_a: usize,
    cable: Rc<std::cell::RefCell<Cable>>,
}

/// The failure that ended a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// An oracle saw a broken rule.
    Broken(String),
    /// No event follows, and the run is not done.
    Quiet(Instant),
    /// The time limit is over, and the run is not done.
    Late(Instant),
    /// The clock stands still: there is always more to do at once.
    Spinning(Instant),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Broken(rule) => f.write_str(rule),
            Trouble::Quiet(at) => write!(f, "{at}: nothing will ever happen again"),
            Trouble::Late(at) => write!(f, "{at}: still not done"),
            Trouble::Spinning(at) => write!(f, "{at}: work without end that takes no time"),
        }
    }
}

impl std::error::Error for Trouble {}

impl World {
    /// Two hosts on the ends of a cable, at the time `now`.
    ///
    /// # Errors
    /// If a configuration is invalid.
    pub fn new(
        now: Instant,
        cable: (Rc<std::cell::RefCell<Cable>>, [crate::Port; 2]),
        configs: [Config; 2],
    ) -> io::Result<World> {
        World::with_shards(now, cable, configs, [Crew::ONE; 2])
    }

    /// Two hosts of several shards each.
    ///
    /// # Errors
    /// If a configuration is invalid.
    pub fn with_shards(
        now: Instant,
        cable: (Rc<std::cell::RefCell<Cable>>, [crate::Port; 2]),
        configs: [Config; 2],
        crews: [Crew; 2],
    ) -> io::Result<World> {
        let (cable, ports) = cable;
        let mut shards = Vec::new();
        for (((side, port), config), crew) in
            [Side::A, Side::B].into_iter().zip(ports).zip(configs).zip(crews)
        {
            let crew: Vec<Shard> = if crew.shards == 1 {
                vec![Shard::in_made_time(config, Box::new(port))?]
            } else {
                let queues = Queue::all(port, crew, &config.secret).into_iter();
                let seated = queues.zip(Seat::all(crew.shards)).map(|(queue, seat)| {
                    let config = config.member(seat.member());
                    Ok(Shard::in_made_time(config, Box::new(queue))?.seated(seat))
                });
                seated.collect::<io::Result<_>>()?
            };
            cable.borrow_mut().attach(side, crew.iter().map(Shard::handle).collect());
            shards.push(crew);
        }
        let of_a = shards[0].len();
        Ok(World { now, shards: shards.into_iter().flatten().collect(), of_a, cable })
    }

    /// Two hosts for any program: 10.9.0.1 at A and 10.9.0.2 at B, with the same link each way and
    /// TCP as it is by default. All that is random follows from `seed`, also on the links.
    ///
    /// # Panics
    /// Never, as long as the defaults make a host.
    pub fn two_hosts(link: &LinkConfig, seed: u64) -> World {
        let configs = [Side::A, Side::B].map(|side| {
            let number = side.index() as u8 + 1;
            let address = Cidr::new(Ipv4Addr::new(10, 9, 0, number).into(), 24);
            let mut secret = [number; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            let device = Capabilities::plain(Medium::Ethernet, MTU);
            let mut config = Config::new(device, address.expect("a prefix of IPv4"), secret);
            config.hardware = [2, 0, 0, 0, 0, number];
            config
        });
        let link = |side: Side| {
            let seed = seed.wrapping_mul(2).wrapping_add(side.index() as u64);
            LinkConfig { seed, ..link.clone() }
        };
        let cable = Cable::new(link(Side::A), link(Side::B), MTU);
        World::new(BEGIN, cable, configs).expect("a host by default")
    }

    /// The first address of the host at that end.
    pub fn address(&self, side: Side) -> IpAddr {
        self.host(side, |host| host.addresses()[0])
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The cable between the hosts.
    pub fn cable(&self) -> std::cell::Ref<'_, Cable> {
        self.cable.borrow()
    }

    /// The shard at that end of the cable; the first of several.
    pub fn handle(&self, side: Side) -> Handle {
        self.shards_at(side)[0].handle()
    }

    /// All shards at that end of the cable.
    pub fn handles(&self, side: Side) -> impl Iterator<Item = Handle> + '_ {
        self.shards_at(side).iter().map(Shard::handle)
    }

    fn shards_at(&self, side: Side) -> &[Shard] {
        let (a, b) = self.shards.split_at(self.of_a);
        if side == Side::A { a } else { b }
    }

    /// Prints a line for each sent frame from now on.
    pub fn trace(&mut self) {
        self.cable.borrow_mut().trace();
    }

    /// Gives `look` the host at that end, or of its first shard.
    pub fn host<R>(&self, side: Side, look: impl FnOnce(&Host) -> R) -> R {
        self.handle(side).with_host(look)
    }

    /// Gives `look` the host of each shard at that end.
    pub fn hosts<R>(&self, side: Side, mut look: impl FnMut(&Host) -> R) -> Vec<R> {
        self.handles(side).map(|handle| handle.with_host(&mut look)).collect()
    }

    /// Runs a future as a task of the shard at that end.
    pub fn spawn<F>(&self, side: Side, task: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        self.handle(side).spawn_local(task)
    }

    /// Runs a future as a task of the shard at that end until it has ended, for `limit` of the
    /// world's time at most. Returns its output.
    ///
    /// # Errors
    /// The failure that kept it from its end.
    pub fn run<T: 'static>(
        &mut self,
        side: Side,
        limit: Duration,
        task: impl Future<Output = T> + 'static,
    ) -> Result<T, Trouble> {
        let output = Rc::new(Cell::new(None));
        let returned = output.clone();
        let running = self.spawn(side, async move { returned.set(Some(task.await)) });
        self.run_until(limit, |_| running.is_finished())?;
        Ok(output.take().expect("the task has ended"))
    }

    /// Lets time pass until `done`, for `limit` at most.
    ///
    /// # Errors
    /// The failure that kept it from `done`.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&World) -> bool,
    ) -> Result<(), Trouble> {
        let end = self.now + limit;
        loop {
            self.settle()?;
            if done(self) {
                return Ok(());
            }
            let next = self.shards.iter().filter_map(|shard| shard.deadline(self.now)).min();
            self.now = match next {
                None => return Err(Trouble::Quiet(self.now)),
                Some(next) if next > end => {
                    self.now = end;
                    return Err(Trouble::Late(end));
                }
                Some(next) => next.max(self.now),
            };
        }
    }

    /// Lets `duration` pass, with or without events.
    ///
    /// # Errors
    /// The rule that an oracle saw broken.
    pub fn run_for(&mut self, duration: Duration) -> Result<(), Trouble> {
        let end = self.now + duration;
        match self.run_until(duration, |world| world.now >= end) {
            Err(Trouble::Quiet(_)) => {
                self.now = end;
                self.settle()
            }
            Err(Trouble::Late(_)) => self.settle(),
            outcome => outcome,
        }
    }

    /// Gives every shard turns until none has work at this instant.
    fn settle(&mut self) -> Result<(), Trouble> {
        for _ in 0..PASSES_AT_ONCE {
            let now = self.now;
            for shard in &mut self.shards {
                shard.turn(now);
            }
            if let Some(rule) = self.cable.borrow().oracle().broken() {
                return Err(Trouble::Broken(rule.to_owned()));
            }
            if self.shards.iter().all(|shard| shard.deadline(now).is_none_or(|next| next > now)) {
                return Ok(());
            }
        }
        Err(Trouble::Spinning(self.now))
    }
}
