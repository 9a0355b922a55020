//! TIME-WAIT lasts its time, at the end that closed first, and holds no other memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait::local::{TcpListener, TcpStream};
use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use lightwait_netem::LinkConfig;
use lightwait_sim::{Cable, Side, World};
use tokio::io::AsyncReadExt;

const TIME_WAIT: Duration = Duration::from_secs(60);
const DELAY: Duration = Duration::from_millis(5);

fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

fn world() -> World {
    let link = LinkConfig { delay: DELAY, ..LinkConfig::default() };
    let configs = [Side::A, Side::B].map(|side| {
        let address = Cidr::new(host(side), 24).unwrap();
        let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
        let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
        config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
        config.tcp.time_wait.length = TIME_WAIT;
        config
    });
    let cable = Cable::new(link.clone(), link, 1500);
    World::new(Instant::from_millis(1), cable, configs).unwrap()
}

/// Opens `count` connections from A to B; the one at `first` closes first.
fn open_and_close(world: &mut World, count: usize, first: Side) {
    let listener = TcpListener::bind_on(&world.handle(Side::B), (host(Side::B), 80)).unwrap();
    for _ in 0..count {
        world.spawn(Side::A, async move {
            let mut stream = TcpStream::connect(SocketAddr::new(host(Side::B), 80)).await.unwrap();
            if first == Side::B {
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            }
        });
    }
    let serving = world.spawn(Side::B, async move {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().await.unwrap();
            if first == Side::A {
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            }
        }
    });
    let closed = |world: &World| {
        let idle = [Side::A, Side::B].map(|side| world.host(side, Host::connections));
        serving.is_finished() && idle == [0, 0]
    };
    world.run_until(Duration::from_secs(10), closed).unwrap();
}

fn records(world: &World) -> [usize; 2] {
    [Side::A, Side::B].map(|side| world.host(side, Host::time_wait_len))
}

#[test]
fn the_first_to_close_holds_time_wait_for_its_length_exactly() {
    for first in [Side::A, Side::B] {
        let mut world = world();
        open_and_close(&mut world, 10, first);
        let mut held = [0, 0];
        held[first.index()] = 10;
        assert_eq!(records(&world), held);
        // All is closed when the last ACK arrives, one delay after TIME-WAIT began.
        world.run_for(TIME_WAIT - DELAY * 3).unwrap();
        assert_eq!(records(&world), held, "{first:?} closed first");
        world.run_for(DELAY * 4).unwrap();
        assert_eq!(records(&world), [0, 0], "{first:?} closed first");
    }
}

#[test]
fn a_record_holds_no_buffers_and_no_connection() {
    let mut world = world();
    open_and_close(&mut world, 100, Side::B);
    assert_eq!(records(&world), [0, 100]);
    for side in [Side::A, Side::B] {
        let left = world.host(side, |host| {
            (host.connections(), host.pages_in_use(), host.receive_window_promised())
        });
        assert_eq!(left, (0, 0, 0), "{side:?}");
    }
}
