//! Two shards joined by a wire in memory, in virtual time.

use std::future::Future;
use std::time::Duration;

use lightwait::bridge;
use lightwait::executor::JoinHandle;
use lightwait::shard::{Handle, Shard};
use lightwait_core::{Config, Instant};

/// Virtual time after which a test has hung.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A server's and a client's shard.
pub(crate) struct World {
    pub(crate) server: Shard,
    pub(crate) client: Shard,
    now: Instant,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(bridge::server_config([1; 32]))
    }

    /// A server of that configuration.
    pub(crate) fn with(server: Config) -> World {
        let (server_end, client_end) = bridge::wire();
        let server = Shard::in_made_time(server, Box::new(server_end)).unwrap();
        let client =
            Shard::in_made_time(bridge::client_config([2; 32]), Box::new(client_end)).unwrap();
        World { server, client, now: Instant::from_millis(1) }
    }

    pub(crate) fn on_server<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        self.server.handle().spawn_local(future)
    }

    pub(crate) fn on_client<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        self.client.handle().spawn_local(future)
    }

    pub(crate) fn handles(&self) -> [Handle; 2] {
        [self.server.handle(), self.client.handle()]
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Runs both shards until `is_done`, and lets time pass when neither has work.
    pub(crate) fn run_until(&mut self, mut is_done: impl FnMut(&World) -> bool) {
        let end = self.now + PATIENCE;
        loop {
            for shard in [&mut self.server, &mut self.client] {
                shard.turn(self.now);
            }
            if is_done(self) {
                return;
            }
            let shards = [&self.server, &self.client];
            match shards.iter().filter_map(|shard| shard.deadline(self.now)).min() {
                Some(next) if next < end => self.now = self.now.max(next),
                Some(_) => panic!("nothing ends it within an hour"),
                None => panic!("nobody has anything to wait for any more"),
            }
        }
    }

    /// Runs until the task has ended.
    pub(crate) fn finish<T>(&mut self, task: &JoinHandle<T>) {
        self.run_until(|_| task.is_finished());
    }
}
