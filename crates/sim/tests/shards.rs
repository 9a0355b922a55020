//! A host of four shards behind a device that steers some frames wrongly: nothing is lost, and
//! nothing is reset.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Handle;
use lightwait_core::address::Cidr;
use lightwait_core::counters::Counters;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_netem::LinkConfig;
use lightwait_sim::{Cable, Crew, Side, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONNECTIONS: u64 = if cfg!(debug_assertions) { 4_000 } else { 100_000 };
const CLIENTS: usize = 200;
const SHARDS: u16 = 4;
const PORT: u16 = 80;

fn config(number: u8) -> Config {
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    let address = Cidr::new(IpAddr::from([10, 9, 0, number]), 24).unwrap();
    let mut config = Config::new(device, address, [number; 32]);
    config.hardware = [2, 0, 0, 0, 0, number];
    config
}

/// A host with one shard opens connections to one with four, by whose device so large a part of the
/// frames comes to any shard.
fn world(strays: f64) -> World {
    let link = LinkConfig { delay: Duration::from_micros(50), ..LinkConfig::default() };
    let cable = Cable::new(link.clone(), link, 1500);
    let crews = [Crew::ONE, Crew { shards: SHARDS, strays, seed: 7 }];
    let now = Instant::from_millis(1_000_000);
    World::with_shards(now, cable, [config(1), config(2)], crews).unwrap()
}

fn sum(world: &World, side: Side, count: fn(&Counters) -> u64) -> u64 {
    world.hosts(side, |host| count(host.counters())).iter().sum()
}

/// Each connection carries its number there and back; the server closes first. Returns how many
/// were served by each shard.
fn converse(world: &mut World) -> Vec<u64> {
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    let served: Vec<Rc<Cell<u64>>> = (0..SHARDS).map(|_| Rc::default()).collect();
    for (server, served) in world.handles(Side::B).zip(&served) {
        let (listener, served) = (TcpListener::bind_on(&server, any).unwrap(), served.clone());
        server.spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                served.set(served.get() + 1);
                Handle::current().spawn_local(async move {
                    let number = stream.read_u64().await.unwrap();
                    stream.write_u64(number).await.unwrap();
                });
            }
        });
    }
    let (begun, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let server = SocketAddr::from(([10, 9, 0, 2], PORT));
    for _ in 0..CLIENTS {
        let (begun, ended) = (begun.clone(), ended.clone());
        world.spawn(Side::A, async move {
            while begun.get() < CONNECTIONS {
                let number = begun.get();
                begun.set(number + 1);
                let mut stream = TcpStream::connect(server).await.unwrap();
                stream.write_u64(number).await.unwrap();
                assert_eq!(stream.read_u64().await.unwrap(), number);
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                ended.set(ended.get() + 1);
            }
        });
    }
    world.run_until(Duration::from_secs(600), |_| ended.get() == CONNECTIONS).unwrap();
    served.iter().map(|served| served.get()).collect()
}

#[test]
fn strays_are_handed_over_and_nothing_is_lost() {
    for strays in [0.0, 0.01, 1.0] {
        let mut world = world(strays);
        let served = converse(&mut world);
        assert_eq!(served.iter().sum::<u64>(), CONNECTIONS);
        let mean = CONNECTIONS / u64::from(SHARDS);
        assert!(served.iter().all(|n| n.abs_diff(mean) < mean / 5), "{served:?}");
        for side in [Side::A, Side::B] {
            assert_eq!(sum(&world, side, |c| c.resets_sent), 0);
            assert_eq!(sum(&world, side, |c| c.messages_lost), 0);
            assert_eq!(sum(&world, side, |c| c.retransmits + c.timeouts), 0);
        }
        let frames = sum(&world, Side::B, |c| c.frames_in) as f64;
        let handed = sum(&world, Side::B, |c| c.handed_over);
        assert_eq!(handed, sum(&world, Side::B, |c| c.taken_over));
        // Of those that go anywhere, one in four comes to its owner.
        let expected = frames * strays * 0.75;
        let error = (handed as f64 - expected).abs();
        // Four deviations of the draw, and what is no segment.
        assert!(
            error <= 4.0 * expected.sqrt() + 0.02 * expected,
            "{handed} of {frames} were handed over"
        );
    }
}
