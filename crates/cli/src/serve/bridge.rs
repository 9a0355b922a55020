//! The stack behind an ordinary listening socket. It needs no device and no privileges.

use std::io;
use std::net::{SocketAddr, TcpListener as KernelListener};

use lightwait::bridge::{self, Bridge};
use lightwait::local::TcpListener;
use lightwait::shard::Shard;
use lightwait::stack::secret;
use lightwait_core::Config;
use lightwait_core::config::Member;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use tokio::runtime::{Builder, Runtime};

use super::device::{of, url};
use super::watched::Watched;
use super::{Front, Part, Ready};
use crate::failure::Failure;
use crate::plan::Plan;

/// The port on the server stack, which only the bridge uses.
const PORT: u16 = 80;
/// Connections that the kernel may complete before we accept them.
const BACKLOG: i32 = 4096;

/// A listening socket of the kernel.
pub(super) struct Socket {
    address: SocketAddr,
    listener: KernelListener,
}

/// Listens on the kernel's `address` with a socket for each shard: the kernel spreads new
/// connections over them (SO_REUSEPORT).
pub(super) fn listen(address: SocketAddr, shards: u16) -> Result<Vec<Part>, Failure> {
    let refuse = |error| Failure::Listen(address, error);
    // It alone finds out whether another program has the address.
    let only = KernelListener::bind(address).map_err(refuse)?;
    let address = only.local_addr().map_err(refuse)?;
    let listeners = if shards == 1 {
        vec![only]
    } else {
        drop(only);
        let all = (0..shards).map(|_| bind_shared(address));
        all.collect::<io::Result<_>>().map_err(refuse)?
    };
    let mut parts = Vec::new();
    for listener in listeners {
        // With a longer queue than the standard library's.
        rustix::net::listen(&listener, BACKLOG).map_err(|errno| refuse(errno.into()))?;
        parts.push(Part::Bridge(Socket { address, listener }));
    }
    Ok(parts)
}

/// A socket at an address that others of this user have as well.
fn bind_shared(address: SocketAddr) -> io::Result<KernelListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(KernelListener::from(socket))
}

impl Socket {
    /// Opens both stacks behind it.
    pub(super) fn open(
        self,
        plan: &Plan,
        member: Member,
        watched: &Watched<'_>,
    ) -> Result<Ready, Failure> {
        let Socket { address, listener } = self;
        let refuse = |error| Failure::Listen(address, error);
        // Each shard's stacks are hosts of their own, with a part of the memory.
        let on = |mut config: Config| {
            config = plan.knobs.on(config);
            config.limits = config.limits.part(member);
            config
        };
        let runtime = runtime()?;
        let (server_end, client_end) = bridge::wire();
        let server_end = watched.device(Box::new(server_end), member);
        let config = on(bridge::server_config(secret().map_err(Failure::Stack)?));
        let server = Shard::new(config, server_end).map_err(Failure::Stack)?;
        let config = on(bridge::client_config(secret().map_err(Failure::Stack)?));
        let client = Shard::new(config, Box::new(client_end)).map_err(Failure::Stack)?;
        let at = SocketAddr::from((bridge::SERVER_ADDRESS, PORT));
        let stack_listener = TcpListener::bind_on(&server.handle(), at).map_err(Failure::Stack)?;
        let entered = runtime.enter();
        let bridge = Bridge::new(listener, client.handle(), at).map_err(refuse)?;
        drop(entered);
        let address = bridge.local_addr().map_err(refuse)?;
        Ok(Ready {
            handle: server.handle(),
            listener: stack_listener,
            urls: vec![url(address)],
            name: format!("bridge{}", of(plan.shards)),
            front: Some(Front { runtime, client: client.handle(), bridge }),
            shards: vec![server, client],
        })
    }
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Stack)
}
