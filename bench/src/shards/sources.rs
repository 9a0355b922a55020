//! The network of the bench, and the clients' ends of connections that a shard owns.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use lightwait_core::address::Cidr;
use lightwait_core::flow::{Steering, Tuple};

/// The server's end.
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 80);
/// The clients' own address, and the server's gateway to their others.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The addresses that clients open connections from.
pub(super) const SOURCES: &str = "10.8.0.0/16";

/// The first address of [`SOURCES`] that is used.
const FIRST: u32 = u32::from_be_bytes([10, 8, 0, 1]);
/// So many addresses are used.
const ADDRESSES: u32 = 65_000;

/// The server's address with the prefix of its link.
pub(super) fn server_on_link() -> Cidr {
    on_link(*SERVER.ip(), 24)
}

/// An address with its prefix.
pub(super) fn on_link(address: Ipv4Addr, prefix_len: u8) -> Cidr {
    Cidr::new(IpAddr::V4(address), prefix_len).expect("a prefix of IPv4")
}

/// The ends from which a connection to the server is owned by the shard `index`, each once.
pub(super) fn owned_by(steering: Steering, index: u16) -> impl Iterator<Item = SocketAddrV4> {
    let ports = |address: u32| (1024..=u16::MAX).map(move |port| (address, port));
    let all = (FIRST..FIRST + ADDRESSES).flat_map(ports);
    let ends = all.map(|(address, port)| SocketAddrV4::new(Ipv4Addr::from_bits(address), port));
    ends.filter(move |from| {
        let server = SocketAddr::V4(SERVER);
        let tuple = Tuple::new((server.ip(), server.port()), (IpAddr::V4(*from.ip()), from.port()));
        steering.owner(&tuple) == index
    })
}
