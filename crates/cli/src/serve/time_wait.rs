//! TIME-WAIT that is full: the oldest records go before their time, and an operator has to know;
//! but not by a line for each, of which there may be a hundred thousand a second.

use std::time::Duration;

use lightwait::shard::Handle;

use crate::log::{Log, Record};

/// A line in so long at most.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Logs how many records the stack has evicted since the last line, until the task is aborted.
pub(super) async fn watch(stack: Handle, log: Log) {
    let mut told = 0;
    loop {
        lightwait::rt::sleep(INTERVAL).await;
        let look =
            |host: &lightwait_core::Host| (host.counters().time_wait_evicted, host.time_wait_len());
        let (all, held) = stack.with_host(look);
        if all > told {
            log.write(Record::Evicted { records: all - told, held });
            told = all;
        }
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
        assert_eq!(told.collect::<Vec<_>>(), ["8", "3"], "{text}");
        assert!(lines[0].ends_with("before their time; 2 are held."), "{text}");
    }
}
