//! Two hosts in memory and in virtual time: the engine alone, without sockets, tasks or a clock.
//!
//! `cargo run --release -p lightwait --example two_hosts`
//!
//! Frames and time go in, frames come out. Every frame takes 10 ms and is printed as a line; the
//! third one from the client is lost, and sent again. The run is the same each time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use lightwait_core::capture::pretty::Line;
use lightwait_core::frame::{Capabilities, Medium, Outbox, RxFrame};
use lightwait_core::{Config, Error, Host, Instant};

/// The time that a frame is on its way.
const DELAY: Duration = Duration::from_millis(10);

fn host(address: &str, secret: u8) -> Result<Host, Error> {
    // The secrets are fixed, so that the run is the same each time; on a network they are random.
    // No link layer, and no offload: a frame is an IP packet of at most 1500 bytes.
    let device = Capabilities::plain(Medium::Ip, 1500);
    let address = address.parse().map_err(|_| Error::InvalidInput("not an address"))?;
    Host::new(Config::new(device, address, [secret; 32]))
}

/// Two hosts, and the frames between them: the arrival of each, its destination, and its bytes.
struct World {
    now: Instant,
    hosts: [Host; 2],
    cable: VecDeque<(Instant, usize, Vec<u8>)>,
    sent_by_client: u32,
}

impl World {
    /// Arrived frames go in; the hosts' frames come out.
    fn turn(&mut self) {
        while self.cable.front().is_some_and(|frame| frame.0 <= self.now) {
            let Some((_, to, bytes)) = self.cable.pop_front() else { break };
            self.hosts[to].on_frame(self.now, RxFrame::plain(&bytes));
        }
        for from in 0..2 {
            let mut outbox = Outbox::new(64);
            self.hosts[from].on_time(self.now);
            self.hosts[from].emit(self.now, &mut outbox);
            while let Some(frame) = outbox.take() {
                let mut bytes = Vec::new();
                frame.copy_to(&mut bytes);
                self.sent_by_client += u32::from(from == 0);
                let lost = from == 0 && self.sent_by_client == 3;
                let line = Line { medium: Medium::Ip, bytes: &bytes };
                println!("{} {line}{}", self.now, if lost { "  (lost)" } else { "" });
                if !lost {
                    self.cable.push_back((self.now + DELAY, 1 - from, bytes));
                }
            }
        }
    }

    /// Lets time pass to the next frame or timer, until nothing happens for `patience`.
    fn run(&mut self, patience: Duration) {
        loop {
            self.turn();
            let arrival = self.cable.front().map(|frame| frame.0);
            let timers = self.hosts.iter().filter_map(Host::deadline);
            match arrival.into_iter().chain(timers).min() {
                Some(next) if next < self.now + patience => self.now = self.now.max(next),
                _ => return,
            }
        }
    }
}

fn main() -> Result<(), Error> {
    let hosts = [host("10.0.0.1/24", 1)?, host("10.0.0.2/24", 2)?];
    let now = Instant::from_millis(1000);
    let mut world = World { now, hosts, cable: VecDeque::new(), sent_by_client: 0 };

    let server = SocketAddr::from(([10, 0, 0, 2], 80));
    let listener = world.hosts[1].listen(server, 16)?;
    let client = world.hosts[0].connect(now, SocketAddr::from(([0, 0, 0, 0], 0)), server)?;
    world.run(Duration::from_secs(1));

    // Written, and closed at once: data and FIN leave in one segment, and it is lost.
    let accepted = world.hosts[1].accept(world.now, listener)?;
    world.hosts[0].write(world.now, client, b"hello from host 0")?;
    world.hosts[0].close(world.now, client);
    world.run(Duration::from_secs(1));

    let mut heard = [0; 100];
    let len = world.hosts[1].read(world.now, accepted, &mut heard)?;
    println!("host 1 has read {:?}", String::from_utf8_lossy(&heard[..len]));
    world.hosts[1].close(world.now, accepted);
    world.run(Duration::from_secs(120));
    let left: usize =
        world.hosts.iter().map(|host| host.connections() + host.time_wait_len()).sum();
    println!("{left} connections are left, {} s later", world.now.since(now).as_secs());
    assert_eq!((&heard[..len], left), (&b"hello from host 0"[..], 0));
    Ok(())
}
