//! A tunnel: all TCP and UDP that a device brings, for any destination, goes through a proxy of the
//! kernel's side, or directly.
//!
//! ```text
//!   programs ── kernel ── TUN ══▶ Requests ── a connection of the kernel's ──▶ proxy ──▶ anywhere
//!                                 UdpFlows ── a UDP socket of the kernel's ──▶
//! ```
//!
//! A connection is answered only when the far side has connected. Otherwise its client hears why
//! not: by RST, by ICMP, or by nothing. Then bytes are relayed with half-close, resets and
//! back-pressure ([`lightwait::bridge::Relay`]).
//!
//! The kernel's sockets need a tokio runtime with I/O enabled, on the shard's thread
//! ([`lightwait::driver::drive`]).
#![forbid(unsafe_code)]

mod loops;
mod news;
mod proxy;
mod tcp;
mod udp;

use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use lightwait::bridge::Relay;
use lightwait::local::{Requests, UdpFlows};
use lightwait::shard::Handle;

use loops::Loops;
pub use news::{News, Tally};
pub use proxy::{Proxy, ProxyError};

/// A tunnel on a shard whose host takes the destinations that are to go through it
/// ([`Config::destinations`](lightwait_core::Config::destinations)).
pub struct Tunnel {
    requests: Requests,
    flows: Option<UdpFlows>,
    shared: Rc<Shared>,
}

/// What all connections and flows of a tunnel share.
struct Shared {
    proxy: Proxy,
    relay: Relay,
    datagrams: udp::Scratch,
    associations: udp::Associations,
    loops: Loops,
    news: News,
}

impl Tunnel {
    /// A tunnel of the shard of that handle through `proxy`. What happens is told to `news`.
    ///
    /// # Errors
    ///
    /// If something else takes any destination on that shard.
    pub fn new(handle: &Handle, proxy: Proxy, news: News) -> io::Result<Tunnel> {
        let requests = Requests::on(handle)?;
        // Without, the ports of all destinations are unreachable.
        let flows = proxy.carries_datagrams().then(|| UdpFlows::on(handle, udp::IDLE));
        let datagrams = vec![0; udp::LONGEST].into();
        let (relay, associations, loops) = Default::default();
        let shared = Shared { proxy, relay, datagrams, associations, loops, news };
        let shared = Rc::new(shared);
        Ok(Tunnel { requests, flows: flows.transpose()?, shared })
    }

    /// Carries connections and flows until the future is dropped. Spawn it on the tunnel's shard
    /// ([`Handle::spawn_local`]). Each is a task of its own there and outlives this future.
    ///
    /// # Errors
    ///
    /// None that is known of: a listener fails if its name is dead.
    pub async fn run(self) -> io::Result<Infallible> {
        let Tunnel { requests, flows, shared } = self;
        if let Some(flows) = flows {
            lightwait::executor::spawn_local(udp::run(flows, shared.clone()));
        }
        tcp::run(requests, shared).await
    }
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").field("proxy", &self.shared.proxy).finish_non_exhaustive()
    }
}
