//! A flood of SYNs from forged addresses keeps the SYN cache full for a minute. Clients of every
//! kind are served beside it: fresh ones by a cookie, and those that meet their own TIME-WAIT,
//! which no cookie can serve, by an entry beyond the cache's limit.

use super::pair::{Pair, Side, config};
use super::peer::{HOSTS, Peer, S, Say};
use crate::config::{Config, Wish};
use crate::error::Error;
use crate::event::ListenerId;
use crate::frame::RxFrame;
use crate::tcp::time_wait::negotiate::Code;
use crate::time::Duration;
use core::net::{IpAddr, SocketAddr};
use std::vec::Vec;

const PLACES: usize = 256;
/// A client begins so often.
const PACE: Duration = Duration::from_millis(100);
const CLIENTS: u32 = 600;
/// Forged SYNs between two clients: 500 a second.
const FORGED: u32 = 50;

#[derive(Clone, Copy, Debug)]
struct Kind {
    ipv6: bool,
    stamped: bool,
    /// Each port is used again within the length of TIME-WAIT, which the server holds.
    meets_its_own: bool,
    /// Both ends require an agreement that this end holds TIME-WAIT.
    negotiates: Option<Wish>,
}

impl Kind {
    fn all() -> Vec<Kind> {
        let mut all = Vec::new();
        let wishes = [None, Some(Wish::Server), Some(Wish::Client)];
        for number in 0..24 {
            let bit = |place: u32| number >> place & 1 == 1;
            let negotiates = wishes[number / 8];
            all.push(Kind { ipv6: bit(0), stamped: bit(1), meets_its_own: bit(2), negotiates });
        }
        // Where the client holds it, it waits itself before it uses a port again.
        all.retain(|kind| kind.negotiates != Some(Wish::Client) || !kind.meets_its_own);
        all
    }

    fn configs(self) -> [Config; 2] {
        let addresses = if self.ipv6 { ["fd00::1", HOSTS[1]] } else { ["10.0.0.1", HOSTS[0]] };
        let [mut client, mut server] = addresses.map(config);
        for config in [&mut client, &mut server] {
            config.tcp.timestamps = self.stamped;
            config.tcp.time_wait.negotiate = self.negotiates.unwrap_or(Wish::Off);
            config.tcp.time_wait.require = self.negotiates.is_some();
        }
        if self.meets_its_own {
            client.ephemeral_ports = (40_000, 40_099);
        }
        server.limits.syn_cache = PLACES;
        [client, server]
    }
}

/// Two hosts and a flood between them.
struct Flooded {
    pair: Pair,
    listener: ListenerId,
    remote: SocketAddr,
    /// Writes the forged SYNs.
    forger: Peer,
    forged: u32,
    /// They ask which end shall hold TIME-WAIT.
    asks: bool,
}

impl Flooded {
    fn new(kind: Kind) -> Flooded {
        let [client, server] = kind.configs();
        let forger = Peer::new(config(HOSTS[usize::from(kind.ipv6)]));
        let mut pair = Pair::with(client, server);
        let remote = forger.ends().0;
        let listener = pair.server.listen(remote, 16).unwrap();
        Flooded { pair, listener, remote, forger, forged: 0, asks: kind.negotiates.is_some() }
    }

    /// So many SYNs of addresses that nobody has.
    fn forge(&mut self, count: u32) {
        for number in self.forged..self.forged + count {
            let last = 3 + (number % 250) as u8;
            self.forger.ip = match self.forger.ip {
                IpAddr::V4(_) => [10, 0, 0, last].into(),
                IpAddr::V6(_) => [0xfd00, 0, 0, 0, 0, 0, 1, u16::from(last)].into(),
            };
            self.forger.port = 1024 + (number / 250) as u16;
            let mut syn = Say::new(S, number, 0).fast(number);
            if self.asks {
                let code = Code::of(&self.pair.server.config().tcp);
                syn.options.experimental = code.option(self.remote.ip());
            }
            let syn = self.forger.packet(syn);
            self.pair.server.on_frame(self.pair.now, RxFrame::plain(&syn));
        }
        self.forged += count;
    }

    /// A client opens, says and hears a word, and both ends close, the server first. False if it is
    /// not served within 50 ms, in which no SYN is sent again.
    fn serve_one(&mut self, kind: Kind) -> Result<(), Option<Error>> {
        let pair = &mut self.pair;
        let any = SocketAddr::new(if kind.ipv6 { [0; 16].into() } else { [0; 4].into() }, 0);
        let client = pair.client.connect(pair.now, any, self.remote).unwrap();
        pair.run_for(Duration::from_millis(20));
        let now = pair.now;
        let is_written = pair.client.write(now, client, b"ask").is_ok();
        pair.run_for(Duration::from_millis(20));
        let now = pair.now;
        let server = pair.server.accept(now, self.listener);
        let Some(server) = server.ok().filter(|_| is_written) else {
            let error = pair.client.take_error(client);
            pair.client.abort(now, client);
            return Err(error);
        };
        let mut word = [0; 9];
        assert_eq!(pair.server.read(now, server, &mut word), Ok(3), "{kind:?}");
        pair.close(Side::Server, server, Duration::from_millis(20));
        pair.close(Side::Client, client, Duration::from_millis(20));
        Ok(())
    }
}

/// How many clients of this kind are served in a minute, beside a flood or without.
fn served(kind: Kind, forged: u32) -> u32 {
    let mut world = Flooded::new(kind);
    if forged > 0 {
        world.forge(PLACES as u32);
    }
    let mut served = 0;
    for number in 0..CLIENTS {
        world.forge(forged);
        let is_full = world.pair.server.half_open() >= PLACES;
        assert_eq!(is_full, forged > 0, "{kind:?}, client {number}");
        let begun = world.pair.now;
        served += u32::from(world.serve_one(kind).is_ok());
        world.pair.run_for(PACE - world.pair.now.since(begun));
    }
    let counters = *world.pair.server.counters();
    let by_cookie = forged > 0 && !kind.meets_its_own;
    assert_eq!(counters.cookies_accepted > 0, forged > 0, "{kind:?}");
    assert_eq!(counters.cookies_accepted >= u64::from(CLIENTS) * 99 / 100, by_cookie, "{kind:?}");
    let beyond = if forged > 0 && kind.meets_its_own { u64::from(CLIENTS) * 8 / 10 } else { 0 };
    assert!(counters.syn_cache_over_limit >= beyond, "{kind:?}: {counters:?}");
    assert_eq!(counters.syn_cache_expired_early > 0, forged > 0, "{kind:?}");
    served
}

#[test]
fn a_full_syn_cache_keeps_no_kind_of_client_from_being_served() {
    for kind in Kind::all() {
        let (calm, flooded) = (served(kind, 0), served(kind, FORGED));
        assert_eq!(calm, CLIENTS, "{kind:?}");
        assert!(flooded * 100 >= CLIENTS * 99, "{kind:?}: {flooded} of {CLIENTS}");
    }
}

/// The flood ends, and within 7 s nothing is left of it but what was beneath the limit.
#[test]
fn a_full_syn_cache_is_full_for_no_longer_than_the_flood_lasts() {
    let kind = Kind { ipv6: false, stamped: true, meets_its_own: false, negotiates: None };
    let mut world = Flooded::new(kind);
    world.forge(PLACES as u32 + 1);
    assert_eq!(world.pair.server.counters().cookies_sent, 1);
    world.pair.run_for(Duration::from_millis(6_999));
    assert_eq!(world.pair.server.half_open(), PLACES);
    world.pair.run_for(Duration::from_millis(1));
    assert_eq!(world.pair.server.half_open(), PLACES - 1, "one has room, and the others wait");
    world.serve_one(kind).unwrap();
    assert_eq!(world.pair.server.counters().cookies_accepted, 0);
}
