//! A load on a stack of ours that is joined in memory to the kernel's, without device or
//! privileges.
//!
//! ```text
//!   load ══▶ client stack ──wire in memory──▶ server stack ══▶ Outlet ──kernel TCP──▶ target
//! ```
//!
//! The load's 4-tuples are the kernel's, as in [`kernel`]. Each source address has its own address
//! of the client stack. The outlet maps that address back to the kernel's, with the same port.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::bridge::{self, Outlet};
use lightwait::driver;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Shard;
use lightwait::stack::secret;
use lightwait_load::engine::{self, Outcome};
use lightwait_load::network::{Kernel, Network, OurStack, Secured};
use lightwait_load::sources::Sources;
use lightwait_load::tuples::Tuples;
use tokio::runtime::Builder;
use tokio::sync::Barrier;

use super::plan::{Joined, LoadPlan};
use super::watch::Watcher;
use super::{kernel, ours, refused, together};
use crate::failure::Failure;
use crate::serve::signals::Signals;

/// The port of the server stack. Its backlog holds all connections that the load opens at once.
const PORT: u16 = 80;
const BACKLOG: usize = 1 << 16;

/// Runs the load to its end, or to a signal. `None` if a signal came before it began.
pub(super) fn run(
    plan: &LoadPlan,
    joined: &Joined,
    mut tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
    start: Option<&Barrier>,
) -> Result<Option<Outcome>, Failure> {
    kernel::check(&plan.sources)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Stack)?;
    runtime.block_on(async {
        // Our stack would accept on behalf of a target that refuses.
        let kernel = Kernel::new(false).map_err(Failure::Stack)?;
        let probe = async {
            match plan.tls.clone() {
                None => engine::probe(&kernel, &plan.engine, &mut tuples).await,
                Some(tls) => {
                    engine::probe(&Secured::new(kernel, tls), &plan.engine, &mut tuples).await
                }
            }
        };
        tokio::select! {
            () = signals.stop() => return Ok(None),
            probed = probe => probed.map_err(|error| refused(plan, &error))?,
        }
        if !together(start, signals).await {
            return Ok(None);
        }
        watcher.begin();
        let outcome = run_on(plan, joined, tuples, signals, watcher).await;
        outcome.map(Some).map_err(Failure::Stack)
    })
}

async fn run_on(
    plan: &LoadPlan,
    joined: &Joined,
    tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
) -> io::Result<Outcome> {
    let (server_end, client_end) = bridge::wire();
    let config = joined.server.on(bridge::server_config(secret()?));
    let server = Shard::new(config, Box::new(server_end))?;
    let config = joined.client.on(bridge::client_config(secret()?));
    let client = Shard::new(config, Box::new(client_end))?;
    let at = SocketAddr::from((bridge::SERVER_ADDRESS, PORT));
    let listener = TcpListener::bind_with_backlog(&server.handle(), at, BACKLOG)?;
    let pairs = Rc::new(Pairs::new(&plan.sources));
    let outlet = Outlet::new(listener, plan.engine.to).with_source({
        let pairs = pairs.clone();
        move |client| pairs.kernels(client)
    });
    server.handle().spawn_local(async move { match outlet.run().await {} });
    let stack = client.handle();
    let load = stack.spawn_local({
        let (engine, tls, watcher) = (plan.engine.clone(), plan.tls.clone(), watcher.clone());
        let (stack, signals) = (stack.clone(), signals.clone());
        async move {
            let network = Inward { stack: OurStack::current(), pairs, at };
            match tls {
                None => ours::counted(network, &stack, engine, tuples, &signals, watcher).await,
                Some(tls) => {
                    let network = Secured::new(network, tls);
                    ours::counted(network, &stack, engine, tuples, &signals, watcher).await
                }
            }
        }
    });
    tokio::select! {
        failure = driver::drive(vec![server, client]) => failure.map(|never| match never {}),
        outcome = load => outcome.map_err(io::Error::other),
    }
}

/// Maps the source addresses of the kernel to the addresses of the client stack, and back.
#[derive(Debug)]
struct Pairs {
    clients: HashMap<IpAddr, IpAddr>,
    kernels: HashMap<IpAddr, IpAddr>,
}

impl Pairs {
    fn new(sources: &Sources) -> Pairs {
        let clients = client_addresses();
        let pairs = || sources.iter().zip(clients.iter());
        let kernels = pairs().map(|(kernel, client)| (client, kernel)).collect();
        Pairs { clients: pairs().collect(), kernels }
    }

    /// The client stack's end of a connection that the target sees from `kernel`.
    fn clients(&self, kernel: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.clients[&kernel.ip()], kernel.port())
    }

    fn kernels(&self, client: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.kernels[&client.ip()], client.port())
    }
}

/// The addresses that the client stack connects from; a load has no more.
pub(super) fn client_addresses() -> Sources {
    Sources::new(&[bridge::client_range()]).expect("one prefix of IPv4")
}

/// The client stack; its connections are named by their ends on the kernel's stack.
#[derive(Clone, Debug)]
struct Inward {
    stack: OurStack,
    pairs: Rc<Pairs>,
    /// The address and port of the outlet.
    at: SocketAddr,
}

impl Network for Inward {
    type Stream = TcpStream;

    async fn connect(&self, from: SocketAddr, _target: SocketAddr) -> io::Result<TcpStream> {
        self.stack.connect(self.pairs.clients(from), self.at).await
    }

    fn now(&self) -> Duration {
        self.stack.now()
    }

    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static {
        self.stack.sleep_until(when)
    }

    async fn alarm(&self, when: Duration) -> io::Result<()> {
        self.stack.alarm(when).await
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.stack.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_its_own_address_on_our_stack() {
        let sources =
            Sources::new(&["127.9.0.0/29".parse().unwrap(), "10.0.0.7/32".parse().unwrap()]);
        let pairs = Pairs::new(&sources.unwrap());
        for (kernel, client) in [("127.9.0.1:5", "100.65.0.1:5"), ("10.0.0.7:9", "100.65.0.7:9")] {
            let (kernel, client) = (kernel.parse().unwrap(), client.parse().unwrap());
            assert_eq!(pairs.clients(kernel), client);
            assert_eq!(pairs.kernels(client), kernel);
        }
        assert_eq!(client_addresses().len(), 65_534);
    }
}
