//! Random worlds: a seed determines links, configurations and conversations, and a run gives a
//! verdict.
//!
//! A scenario succeeds if every conversation that was not cut on purpose delivered every byte, no
//! oracle reports a broken rule, everything closes in time, and no memory stays in use.

mod conversation;
mod datagrams;
mod draw;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::JoinHandle;
use lightwait::local::TcpListener;
use lightwait::shard::Handle;
use lightwait_core::address::Cidr;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::{Limits, TcpConfig};
use lightwait_core::counters::Counters;
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use lightwait_netem::LinkConfig;

use crate::cable::{Cable, Side};
use crate::queues::Crew;
use crate::world::{Trouble, World};

use conversation::{Board, accept_all, converse};
pub use conversation::{Conversation, Ending, Outcome};
pub use datagrams::Exchange;
use datagrams::{Accounts, Counted, End};

/// The port that side B listens on.
const PORT: u16 = 80;
/// The limit by which all conversations are over, with any links: beyond the longest time-out.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(3600);
/// The limit by which everything is closed and forgotten: beyond the longest TIME-WAIT and
/// FIN-WAIT-2.
const CLOSING_LIMIT: Duration = Duration::from_secs(900);

/// The contents of one world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all random choices.
    pub seed: u64,
    /// The time at which the world begins.
    pub begin: Instant,
    /// True for IPv6, else IPv4.
    pub ipv6: bool,
    /// Largest IP packet on the cable, in bytes.
    pub mtu: u16,
    /// The first and the last port that side A opens from.
    pub client_ports: (u16, u16),
    /// The links for frames of side A and of side B.
    pub links: [LinkConfig; 2],
    /// TCP at side A and at side B.
    pub tcp: [TcpConfig; 2],
    /// The shards of the host at side A and at side B.
    pub crews: [Crew; 2],
    /// Pages of each host, if fewer than usual.
    pub pages: [Option<usize>; 2],
    /// The conversations between A and B.
    pub conversations: Vec<Conversation>,
    /// The datagrams between A and B.
    pub exchanges: Vec<Exchange>,
    /// By the sending side: from when on a router has a link of so small an MTU on the way.
    pub narrows: [Option<(Duration, u16)>; 2],
}

/// The results of a successful scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// A hash of every frame and its time.
    pub digest: u64,
    /// The time at which the last conversation was over.
    pub conversed: Instant,
    /// The time at which everything was closed and forgotten.
    pub end: Instant,
    /// Segments that the oracle checked.
    pub segments: u64,
    /// TIME-WAITs at side A and at side B.
    pub time_waits: [u64; 2],
    /// TIME-WAITs that a new connection between the same ends replaced.
    pub reuses: [u64; 2],
    /// Orphans in FIN-WAIT-2 that were dropped, at both sides.
    pub given_up: u64,
    /// Times that a connection came to rest.
    pub rests: u64,
    /// Frames that came to a wrong shard and were handed over.
    pub handed_over: u64,
    /// Times that a part of a limit went from a shard to another.
    pub limits_moved: u64,
    /// Datagrams that were sent, and that were read.
    pub datagrams: (u64, u64),
    /// Times that a path's MTU went down because ICMP said so.
    pub path_mtu_lowered: u64,
    /// The outcome of each conversation.
    pub outcomes: Vec<Outcome>,
}

impl Scenario {
    /// The scenario of that seed.
    pub fn from_seed(seed: u64) -> Scenario {
        draw::scenario(seed)
    }

    /// Runs it to its end. With `trace`, it prints a line for each frame.
    ///
    /// # Errors
    /// A line with the reason of the failure.
    pub fn run(&self, trace: bool) -> Result<Summary, String> {
        let mut world = self.world().map_err(|error| error.to_string())?;
        if trace {
            world.trace();
        }
        let board = Rc::new(RefCell::new(Board::new(self.conversations.len())));
        let acceptors = self.start(&world, &board)?;
        let accounts = self.exchange(&world)?;
        let conversed = world.run_until(CONVERSATION_LIMIT, |_| {
            let failed = board.borrow().verdict().is_err();
            failed || board.borrow().is_over() && accounts.borrow().is_over()
        });
        if let Err(trouble) = conversed {
            if trace {
                print_counters(&world);
            }
            return Err(format!("{trouble}; {}", board.borrow()));
        }
        board.borrow().verdict()?;
        accounts.borrow().verdict()?;
        let conversed = world.now();
        acceptors.iter().for_each(JoinHandle::abort);
        world
            .run_until(CLOSING_LIMIT, |world| {
                let mut sides = [Side::A, Side::B].into_iter();
                sides.all(|side| world.hosts(side, is_forgotten).into_iter().all(|is| is))
            })
            .map_err(|trouble| format!("{trouble}: {}", leftovers(&world)))?;
        check_leftovers(&world)?;
        let counted = [Side::A, Side::B].map(|side| Counted::by(world.hosts(side, Counted::of)));
        accounts.borrow().check(counted, &world.cable())?;
        let sums = |count: fn(&Counters) -> u64| {
            [Side::A, Side::B]
                .map(|side| world.hosts(side, |host| count(host.counters())).iter().sum())
        };
        let sum = |count| sums(count).iter().sum::<u64>();
        Ok(Summary {
            digest: world.cable().digest(),
            conversed,
            end: world.now(),
            segments: world.cable().oracle().segments(),
            time_waits: sums(|counters| counters.time_wait_entered),
            reuses: sums(|counters| counters.time_wait_reused),
            given_up: sum(|counters| counters.fin_wait_2_expired),
            rests: sum(|counters| counters.rested),
            handed_over: sum(|counters| counters.handed_over),
            limits_moved: sum(|counters| counters.limits_moved),
            datagrams: accounts.borrow().counts(),
            path_mtu_lowered: sum(|counters| counters.path_mtu_lowered),
            outcomes: board.borrow().outcomes.clone(),
        })
    }

    fn world(&self) -> Result<World, Trouble> {
        let [a_to_b, b_to_a] = self.links.clone();
        let cable = Cable::new(a_to_b, b_to_a, self.mtu);
        for (side, narrow) in [Side::A, Side::B].into_iter().zip(self.narrows) {
            if let Some((after, mtu)) = narrow {
                cable.0.borrow_mut().narrow(side, self.begin + after, mtu);
            }
        }
        let configs = [self.config(Side::A), self.config(Side::B)];
        World::with_shards(self.begin, cable, configs, self.crews)
            .map_err(|error| Trouble::Broken(error.to_string()))
    }

    /// A host's configuration. The two hosts share only the subnet.
    fn config(&self, side: Side) -> Config {
        let number = side.index() as u16 + 1;
        let (address, prefix) = if self.ipv6 {
            (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number)), 64)
        } else {
            (IpAddr::V4(Ipv4Addr::new(10, 9, 0, number as u8)), 24)
        };
        let address = Cidr::new(address, prefix).expect("the prefix fits the address");
        let capabilities = Capabilities::plain(Medium::Ethernet, self.mtu);
        let mut secret = [number as u8; 32];
        secret[..8].copy_from_slice(&self.seed.to_le_bytes());
        let mut config = Config::new(capabilities, address, secret);
        config.hardware = [2, 0, 0, 0, 0, number as u8];
        config.tcp = self.tcp[side.index()].clone();
        if let Some(pages) = self.pages[side.index()] {
            config.limits.pages = pages;
            config.limits.receive_window_bytes = (pages * PAGE_BYTES / 2) as u64;
        }
        if side == Side::A {
            config.ephemeral_ports = self.client_ports;
        }
        config
    }

    /// Starts the servers at B and every conversation at A.
    fn start(
        &self,
        world: &World,
        board: &Rc<RefCell<Board>>,
    ) -> Result<Vec<JoinHandle<()>>, String> {
        let any: IpAddr =
            if self.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let conversations: Rc<[Conversation]> = self.conversations.clone().into();
        let server = self.config(Side::B).addresses[0].address();
        let clients: Vec<Handle> = world.handles(Side::A).collect();
        for (number, client) in (0..self.conversations.len()).zip(clients.iter().cycle()) {
            let address = SocketAddr::new(server, PORT);
            let conversations = conversations.clone();
            client.spawn_local(converse(address, self.seed, conversations, number, board.clone()));
        }
        let accept = |server: Handle| {
            let listener = TcpListener::bind_on(&server, SocketAddr::new(any, PORT))
                .map_err(|error| format!("cannot listen: {error}"))?;
            let conversations = conversations.clone();
            Ok(server.spawn_local(accept_all(listener, self.seed, conversations, board.clone())))
        };
        world.handles(Side::B).map(accept).collect()
    }

    /// Starts both ends of every exchange of datagrams.
    fn exchange(&self, world: &World) -> Result<Rc<RefCell<Accounts>>, String> {
        let accounts = Rc::new(RefCell::new(Accounts::new(self.seed, self.exchanges.len())));
        let exchanges: Rc<[Exchange]> = self.exchanges.clone().into();
        let addresses = [Side::A, Side::B].map(|side| self.config(side).addresses[0].address());
        let clients: Vec<Handle> = world.handles(Side::A).collect();
        for (number, client) in (0..self.exchanges.len()).zip(clients.iter().cycle()) {
            let end = |side| {
                let (exchanges, accounts) = (exchanges.clone(), accounts.clone());
                End { number, side, addresses, exchanges, accounts }
            };
            for server in world.handles(Side::B) {
                end(Side::B).start_server(&server)?;
            }
            client.spawn_local(end(Side::A).run_client());
        }
        Ok(accounts)
    }
}

/// Prints what each shard has counted.
fn print_counters(world: &World) {
    for side in [Side::A, Side::B] {
        for (shard, counters) in world.hosts(side, |host| *host.counters()).iter().enumerate() {
            let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
            println!("{side:?} {shard}: {counted:?}");
        }
    }
}

/// True if a host has no state of any connection.
fn is_forgotten(host: &Host) -> bool {
    let records = host.fin_wait_2_len() + host.time_wait_len();
    host.connections() + host.half_open() + records == 0
}

fn leftovers(world: &World) -> String {
    let of = |side| {
        let shards = world.hosts(side, |host| {
            format!(
                "{side:?}: {} connections, {} half open, {} orphans, {} in TIME-WAIT, {} pages, \
                 {} B promised",
                host.connections(),
                host.half_open(),
                host.fin_wait_2_len(),
                host.time_wait_len(),
                host.pages_in_use(),
                host.receive_window_promised()
            )
        });
        shards.join("; ")
    };
    format!("{}; {}", of(Side::A), of(Side::B))
}

/// Checks that no memory is held when all is closed, and that every TIME-WAIT has ended as
/// expected.
fn check_leftovers(world: &World) -> Result<(), String> {
    for side in [Side::A, Side::B] {
        let clean = world.hosts(side, |host| {
            let counters = host.counters();
            let ended = counters.time_wait_expired
                + counters.time_wait_evicted
                + counters.time_wait_reused
                + counters.time_wait_taken_over
                + counters.time_wait_skipped;
            host.pages_in_use() == 0
                && host.receive_window_promised() == 0
                && ended == counters.time_wait_entered
        });
        if clean.contains(&false) {
            return Err(format!("something is left: {}", leftovers(world)));
        }
        let limits = world.hosts(side, |host| {
            let parts = [host.limits(), &host.config().limits];
            parts.map(|limits| {
                let Limits { pages, connections, syn_cache, time_wait, .. } = *limits;
                let windows = limits.receive_window_bytes as usize;
                [pages, connections, syn_cache, time_wait, windows]
            })
        });
        let sum = |which: usize| {
            [0, 1, 2, 3, 4].map(|limit| limits.iter().map(|of| of[which][limit]).sum::<usize>())
        };
        if sum(0) != sum(1) {
            return Err(format!("limits have changed: {limits:?}"));
        }
    }
    Ok(())
}
