//! The stack behind an ordinary listening socket. It needs no device and no privileges.

use std::net::{SocketAddr, TcpListener as KernelListener};

use lightwait::bridge::{self, Bridge};
use lightwait::net::TcpListener;
use lightwait::shard::Shard;
use lightwait::stack::secret;
use tokio::runtime::{Builder, Runtime};

use super::device::{url, watched};
use super::{Front, Ready};
use crate::failure::Failure;
use crate::log::Log;
use crate::plan::Plan;

/// The port on the server stack, which only the bridge uses.
const PORT: u16 = 80;
/// Connections that the kernel may complete before we accept them.
const BACKLOG: i32 = 4096;

/// Listens on the kernel's `address`, and opens both stacks behind it.
pub(super) fn open(address: SocketAddr, plan: &Plan, log: &Log) -> Result<Ready, Failure> {
    let refuse = |error| Failure::Listen(address, error);
    let listener = KernelListener::bind(address).map_err(refuse)?;
    // A second `listen`, for a longer queue than the standard library's.
    rustix::net::listen(&listener, BACKLOG).map_err(|errno| refuse(errno.into()))?;
    let runtime = runtime()?;
    let (server_end, client_end) = bridge::wire();
    let server_end = watched(Box::new(server_end), &plan.watch, log)?;
    let config = plan.knobs.on(bridge::server_config(secret().map_err(Failure::Stack)?));
    let server = Shard::new(config, server_end).map_err(Failure::Stack)?;
    let config = plan.knobs.on(bridge::client_config(secret().map_err(Failure::Stack)?));
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
        name: "bridge".to_owned(),
        front: Some(Front { runtime, client: client.handle(), bridge }),
        shards: vec![server, client],
    })
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Stack)
}
