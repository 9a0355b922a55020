//! The stack behind an ordinary listening socket. It needs no device and no privileges.

use std::io;
use std::net::{SocketAddr, TcpListener as KernelListener};

use lightwait::bridge::{self, Bridge};
use lightwait::shard::Shard;
use lightwait::stack::secret;
use lightwait_core::Config;
use lightwait_core::config::Member;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use tokio::runtime::{Builder, Runtime};

use super::device::{of, url};
use super::takeover::Takeover;
use super::watched::Watched;
use super::{Entrance, Front, Part, Ready};
use crate::failure::Failure;
use crate::plan::Plan;

/// The ports of HTTP and HTTPS on the server stack, which only the bridge uses.
const PORTS: [(&str, u16); 2] = [("http", 80), ("https", 443)];
/// Connections that the kernel may complete before we accept them.
const BACKLOG: i32 = 4096;

/// A listening socket of the kernel.
struct Socket {
    address: SocketAddr,
    listener: KernelListener,
}

/// The listening sockets of a shard: HTTP's first, then that of HTTPS if there is such.
pub(super) struct Sockets(Vec<Socket>);

/// Listens on the kernel's `address`, and beside it for HTTPS if the plan has it.
pub(super) fn listen(
    address: SocketAddr,
    plan: &Plan,
    mut takeover: Option<&mut Takeover>,
) -> Result<Vec<Part>, Failure> {
    let secure = plan.tls.as_ref().map(|tls| SocketAddr::new(address.ip(), tls.port));
    let mut parts: Vec<Vec<Socket>> = (0..plan.shards).map(|_| Vec::new()).collect();
    for mut at in [Some(address), secure].into_iter().flatten() {
        // A link-local address is of the same link.
        if let (SocketAddr::V6(at), SocketAddr::V6(address)) = (&mut at, address) {
            at.set_scope_id(address.scope_id());
        }
        let had = takeover.as_mut().map(|it| it.take_listeners(&at.to_string()));
        let had = had.unwrap_or_default();
        let sockets = match had.len() == usize::from(plan.shards) {
            true => had.into_iter().map(|socket| listening(at, socket.into())).collect(),
            false => listen_at(at, plan.shards),
        };
        let sockets = sockets?;
        for Socket { address, listener } in &sockets {
            let Some(takeover) = &takeover else { continue };
            let held = takeover.hold_listener(address.to_string(), listener);
            held.map_err(|error| Failure::Listen(*address, error))?;
        }
        parts.iter_mut().zip(sockets).for_each(|(part, socket)| part.push(socket));
    }
    Ok(parts.into_iter().map(|sockets| Part::Bridge(Sockets(sockets))).collect())
}

/// Listens on the kernel's `address` with a socket for each shard: the kernel spreads new
/// connections over them (SO_REUSEPORT).
fn listen_at(address: SocketAddr, shards: u16) -> Result<Vec<Socket>, Failure> {
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
    listeners.into_iter().map(|listener| listening(address, listener)).collect()
}

/// A socket that listens, with a longer queue than the standard library's.
fn listening(address: SocketAddr, listener: KernelListener) -> Result<Socket, Failure> {
    match rustix::net::listen(&listener, BACKLOG) {
        Ok(()) => Ok(Socket { address, listener }),
        Err(errno) => Err(Failure::Listen(address, errno.into())),
    }
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

impl Sockets {
    /// Opens both stacks behind it.
    pub(super) fn open(
        self,
        plan: &Plan,
        member: Member,
        watched: &Watched<'_>,
    ) -> Result<Ready, Failure> {
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
        let (handle, client_handle) = (server.handle(), client.handle());
        let (mut entrances, mut bridges, mut urls) = (Vec::new(), Vec::new(), Vec::new());
        for (Socket { address, listener }, (scheme, port)) in self.0.into_iter().zip(PORTS) {
            let refuse = |error| Failure::Listen(address, error);
            let at = SocketAddr::from((bridge::SERVER_ADDRESS, port));
            let entrance = Entrance::open(&handle, at).map_err(Failure::Stack)?;
            let entered = runtime.enter();
            let bridge = Bridge::new(listener, client_handle.clone(), at).map_err(refuse)?;
            drop(entered);
            let address = bridge.local_addr().map_err(refuse)?;
            urls.push(url(scheme, address));
            let (port, clients) = (address.port(), Some(bridge.clients()));
            entrances.push(Entrance { port, clients, ..entrance });
            bridges.push(bridge);
        }
        Ok(Ready {
            handle,
            entrances,
            urls,
            name: format!("bridge{}", of(plan.shards)),
            front: Some(Front { runtime, client: client_handle, bridges }),
            shards: vec![server, client],
        })
    }
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Stack)
}
