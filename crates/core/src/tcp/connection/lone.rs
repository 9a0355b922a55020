//! A connection by itself, for tests, with what a host would lend it.

use alloc::format;
use alloc::string::String;

use super::{Connection, Context, Identity, SynReceived, WindowUpdate};
use crate::buffer::PagePool;
use crate::config::TcpConfig;
use crate::counters::Counters;
use crate::flow::{Seq, Tuple};
use crate::tcp::challenge::Challenges;
use crate::tcp::recv::window::WindowBudget;
use crate::tcp::{Settings, SocketOptions};
use crate::time::Instant;

/// A connection and what a host would lend it.
pub(crate) struct Lone {
    pub(crate) connection: Connection,
    pub(crate) cx: Context,
}

impl Lone {
    /// Established at `now` between the ends of `tuple`, a little before all its numbers wrap.
    /// `adjust` changes what the handshake agreed on and what the user asked for.
    pub(crate) fn new(
        now: Instant,
        tuple: Tuple,
        adjust: impl FnOnce(&mut SynReceived, &mut SocketOptions),
    ) -> Lone {
        let config = Settings::new(TcpConfig::default());
        let mut options = SocketOptions::new(&config);
        let mut syn = SynReceived {
            iss: Seq(u32::MAX - 4000),
            irs: Seq(u32::MAX - 9000),
            peer_mss: 1000,
            mss: 1000,
            offer: 20_000,
            peer_scale: Some(1),
            sack: false,
            ecn: false,
            stamp: None,
            stamp_offset: 0,
            attempts: 1,
            names: None,
        };
        adjust(&mut syn, &mut options);
        let mut lone = Lone {
            connection: Connection::blank(options.into()),
            cx: Context {
                now,
                arrived: Instant::FAR_FUTURE,
                config,
                pool: PagePool::new(64),
                budget: WindowBudget::new(1 << 30, 7),
                challenges: Challenges::new(100, 1),
                counters: Counters::default(),
                path_news: None,
            },
        };
        let (seq, ack) = (syn.irs + 1, syn.iss + 1);
        lone.with(now, |connection, cx| {
            let synchronized =
                syn.synchronize(cx, &options, WindowUpdate { window: 30_000, seq, ack });
            let identity = Identity { hash: 7, ports: tuple.ports() };
            connection.accept(identity, &options.into(), synchronized, now);
        });
        lone
    }

    /// Has something done to it at `now`.
    pub(crate) fn with<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Connection, &mut Context) -> T,
    ) -> T {
        act(&mut self.connection, self.cx.at(now))
    }

    /// All that there is, to be compared.
    pub(crate) fn all(&self) -> String {
        format!("{:?} {:?} {:?}", self.connection, self.cx.counters, self.cx.pool.in_use())
    }
}
