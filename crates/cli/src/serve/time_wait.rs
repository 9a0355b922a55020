//! What an operator has to know of TIME-WAIT: that it fills up, that it is full and records go
//! before their time, that it refuses peers who come back too soon, and that there is no port left
//! to open a connection from. But not by a line for each, of which there may be a hundred thousand
//! a second.

use std::time::Duration;

use lightwait::shard::Handle;
use lightwait_core::Host;

use crate::log::{Concern, Log, Record};

/// A line of each kind in so long at most.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Logs what has happened since the last time, until the task is aborted.
pub(super) async fn watch(stack: Handle, log: Log) {
    let mut last = Look::default();
    loop {
        lightwait::rt::sleep(INTERVAL).await;
        let look = stack.with_host(|host: &Host| Look::at(host));
        for concern in look.concerns_since(last) {
            log.write(Record::TimeWait(concern));
        }
        last = look;
    }
}

/// TIME-WAIT at a moment; events since the host began.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    held: usize,
    limit: usize,
    evicted: u64,
    refused: u64,
    without_port: u64,
}

impl Look {
    fn at(host: &Host) -> Look {
        let (counters, limit) = (host.counters(), host.config().limits.time_wait);
        Look {
            held: host.time_wait_len(),
            limit,
            evicted: counters.time_wait_evicted,
            refused: counters.time_wait_refused,
            without_port: counters.ports_exhausted,
        }
    }

    /// Four fifths of what may be.
    fn is_high(&self) -> bool {
        self.held > 0 && self.held.saturating_mul(5) >= self.limit.saturating_mul(4)
    }

    fn concerns_since(self, last: Look) -> impl Iterator<Item = Concern> {
        let [evicted, syns, opens] = [
            self.evicted - last.evicted,
            self.refused - last.refused,
            self.without_port - last.without_port,
        ];
        let Look { held, limit, .. } = self;
        let fills = self.is_high() && !last.is_high() && evicted == 0;
        let concerns = [
            fills.then_some(Concern::Filling { held, limit }),
            (evicted > 0).then_some(Concern::Full { evicted, held }),
            (syns > 0).then_some(Concern::Refused { syns }),
            (opens > 0).then_some(Concern::NoPort { opens }),
        ];
        concerns.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait::device::MemoryDevice;
    use lightwait::net::{TcpListener, TcpStream};
    use lightwait::shard::Shard;
    use lightwait_core::{Capabilities, Config, Instant, Medium};
    use std::net::SocketAddr;
    use tokio::io::AsyncReadExt;

    const SERVER: &str = "10.0.0.2:80";

    fn config(address: &str) -> Config {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let mut config = Config::new(device, format!("{address}/24").parse().unwrap(), [7; 32]);
        config.limits.time_wait = 2;
        config
    }

    /// A server that closes each connection at once, and a client.
    struct Fixture {
        shards: [Shard; 2],
        now: Instant,
    }

    impl Fixture {
        fn new() -> Fixture {
            let configs = ["10.0.0.1", "10.0.0.2"].map(config);
            let (near, far) = MemoryDevice::pair(configs[0].device, 64);
            let [client, server] = configs;
            let client = Shard::in_made_time(client, Box::new(near)).unwrap();
            let server = Shard::in_made_time(server, Box::new(far)).unwrap();
            let address: SocketAddr = SERVER.parse().unwrap();
            let listener = TcpListener::bind_on(&server.handle(), address).unwrap();
            server.handle().spawn_local(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    drop(stream);
                }
            });
            Fixture { shards: [client, server], now: Instant::from_millis(1000) }
        }

        /// So many connections begin and end, within less than a second.
        fn talk(&mut self, count: usize) {
            let [client, server] = &mut self.shards;
            for _ in 0..count {
                let shard = client.handle();
                client.handle().spawn_local(async move {
                    let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
                    let peer: SocketAddr = SERVER.parse().unwrap();
                    let mut stream = TcpStream::connect_from(&shard, local, peer).await.unwrap();
                    // Until the server has closed: who closes first has TIME-WAIT.
                    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                });
                for _ in 0..20 {
                    self.now = self.now + Duration::from_micros(10);
                    client.turn(self.now);
                    server.turn(self.now);
                }
            }
        }

        fn pass(&mut self, time: Duration) {
            self.now = self.now + time;
            self.shards.iter_mut().for_each(|shard| {
                shard.turn(self.now);
            });
        }
    }

    #[test]
    fn each_concern_is_told_when_it_is_new() {
        let quiet = Look { limit: 100, held: 79, ..Look::default() };
        let told = |look: Look, last| look.concerns_since(last).collect::<Vec<_>>();
        assert_eq!(told(quiet, Look::default()), []);
        let high = Look { held: 80, ..quiet };
        assert_eq!(told(high, quiet), [Concern::Filling { held: 80, limit: 100 }]);
        assert_eq!(told(Look { held: 90, ..high }, high), []);
        let full = Look { held: 100, evicted: 7, ..quiet };
        assert_eq!(told(full, quiet), [Concern::Full { evicted: 7, held: 100 }]);
        assert_eq!(told(full, full), []);
        let busy = Look { refused: 3, without_port: 2, ..quiet };
        let both = [Concern::Refused { syns: 3 }, Concern::NoPort { opens: 2 }];
        assert_eq!(told(busy, quiet), both);
        assert_eq!(told(busy, busy), []);
    }

    #[test]
    fn records_evicted_are_one_line_an_interval_with_their_number() {
        let page = crate::log::Page::default();
        let (log, writer) = Log::start(false, page.clone()).unwrap();
        let mut fixture = Fixture::new();
        let server = fixture.shards[1].handle();
        server.spawn_local(watch(server.clone(), log));
        fixture.pass(Duration::ZERO);
        // Two fit; then eight too many, in one interval; none in the next two; three; none again.
        fixture.talk(2);
        fixture.pass(INTERVAL);
        fixture.talk(8);
        for evicted in [0, 0, 3, 0] {
            fixture.pass(INTERVAL);
            fixture.talk(evicted);
        }
        fixture.pass(INTERVAL);
        drop((server, fixture));
        writer.finish();
        let text = page.text();
        let lines: Vec<&str> = text.lines().collect();
        let told = lines.iter().map(|line| line.split(' ').nth(3).unwrap_or_default());
        assert_eq!(told.collect::<Vec<_>>(), ["2", "8", "3"], "{text}");
        assert_eq!(lines[0], "TIME-WAIT fills up: 2 records are held, and 2 may be.");
        assert!(lines[1].ends_with("before their time; 2 are held."), "{text}");
    }
}
