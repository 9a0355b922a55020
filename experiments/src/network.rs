//! Two hosts on a cable in virtual time, for the experiments.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use lightwait_core::address::Cidr;
use lightwait_core::config::TcpConfig;
use lightwait_core::wire::ethernet;
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::tcp::Segment;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_netem::LinkConfig;
use lightwait_sim::{Cable, Passage, Side, World};

use crate::plan::Failure;

/// Largest IP packet on the cable, in bytes.
const MTU: u16 = 1500;
/// The port that side B listens on.
pub(crate) const PORT: u16 = 80;

/// Two hosts with the given TCP configurations, and links from A to B and back. A watcher sees each
/// TCP segment that enters or leaves the cable. The MTU is Ethernet's.
pub(crate) fn watched(
    links: [LinkConfig; 2],
    tcp: &[TcpConfig; 2],
    mut watch: impl FnMut(Passage, &Segment<'_>) + 'static,
) -> Result<World, Failure> {
    let [forth, back] = links;
    let (cable, ports) = Cable::new(forth, back, MTU);
    cable.borrow_mut().watch(move |passage, bytes| {
        let Ok(frame) = ethernet::Frame::parse(bytes) else { return };
        let Ok(packet) = Packet::parse(frame.payload) else { return };
        if packet.protocol != protocol::TCP {
            return;
        }
        if let Ok(segment) = Segment::parse(packet.payload) {
            watch(passage, &segment);
        }
    });
    let configs = [Side::A, Side::B].map(|side| config(side, &tcp[side.index()]));
    Ok(World::new(Instant::from_millis(1_000), (cable, ports), configs)?)
}

fn config(side: Side, tcp: &TcpConfig) -> Config {
    let address = Cidr::new(host(side), 24).expect("24 bits fit an IPv4 address");
    let capabilities = Capabilities::plain(Medium::Ethernet, MTU);
    let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
    config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
    config.tcp = tcp.clone();
    config
}

fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

/// The address and port of side B.
pub(crate) fn server() -> SocketAddr {
    SocketAddr::new(host(Side::B), PORT)
}

/// Wraps a value that tasks and the experiment share.
pub(crate) fn shared<T>(value: T) -> Rc<RefCell<T>> {
    Rc::new(RefCell::new(value))
}
