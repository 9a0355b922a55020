//! One of our stacks as a load's network.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant as StdInstant};

use lightwait::local::TcpStream;
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Instant;

use super::Network;

/// A shard, used from one of its tasks. Its configuration has the source addresses
/// ([`Config::addresses`](lightwait::Config), `ranges`).
#[derive(Clone, Debug)]
pub struct OurStack {
    handle: Handle,
    begin: Instant,
    measured_begin: StdInstant,
}

impl OurStack {
    /// The shard whose task is running. Times count from now.
    ///
    /// # Panics
    /// If no shard is current.
    pub fn current() -> OurStack {
        let handle = Handle::current();
        OurStack { begin: handle.now(), measured_begin: rt::measure(), handle }
    }
}

impl Network for OurStack {
    type Stream = TcpStream;

    async fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_from(&self.handle, from, to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn now(&self) -> Duration {
        rt::measure().saturating_duration_since(self.measured_begin)
    }

    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static {
        rt::sleep_until(self.begin + when)
    }

    async fn alarm(&self, when: Duration) -> io::Result<()> {
        rt::sleep_until(self.begin + when).await;
        Ok(())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.handle.spawn_local(task);
    }
}
