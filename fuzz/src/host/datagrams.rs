//! The calls on UDP sockets, and the step that chooses among them and those of `admission`.

use std::net::{IpAddr, SocketAddr};

use lightwait_core::udp::{Transmit, UdpOptions};
use lightwait_core::{Error, UdpId};

use super::World;
use super::setup::{self, PORTS};
use crate::source::Source;

/// UDP sockets that an end keeps at most.
const SOCKETS: usize = 6;

impl World {
    /// One call on a UDP socket of that end, or on what comes for any address.
    pub(super) fn datagram(&mut self, side: usize, source: &mut Source<'_>) {
        let choice = source.below(17);
        match choice {
            14 => return self.listen_to_all(side, source),
            15.. => return self.judge_syns(side, source),
            _ => {}
        }
        let end = &mut self.ends[side];
        let index = source.below(end.udp.len());
        let Some(id) = end.udp.get(index).copied().filter(|_| choice > 1) else {
            return self.bind(side, source);
        };
        match choice {
            2..=5 => self.send_datagram(side, id, source),
            6..=8 => self.receive_datagrams(side, id, source),
            9 => {
                let remote = SocketAddr::new(setup::address(source), source.pick(&PORTS));
                let remote = Some(remote).filter(|_| source.u8() < 200);
                if self.ends[side].host.udp_connect(self.now, id, remote).is_ok() {
                    let peer = self.ends[side].host.udp_peer_address(id).ok();
                    assert_eq!(peer.map(|it| it.port()), remote.map(|it| it.port()));
                }
            }
            12 => {
                let group = group(source);
                let host = &mut self.ends[side].host;
                if host.udp_join(id, group).is_ok() {
                    assert_eq!(host.udp_join(id, group), Err(Error::AddressInUse));
                }
            }
            13 => {
                let group = group(source);
                let host = &mut self.ends[side].host;
                if host.udp_leave(id, group).is_ok() {
                    assert_eq!(host.udp_leave(id, group), Err(Error::AddressNotAvailable));
                }
            }
            10 => {
                let options = options(source);
                let _ = self.ends[side].host.udp_set_options(id, options);
            }
            _ => {
                let end = &mut self.ends[side];
                end.udp.swap_remove(index);
                end.host.udp_close(id);
                let dead = end.host.udp_receive(id, &mut []);
                assert!(matches!(dead, Err(Error::InvalidInput(_))), "{dead:?}");
            }
        }
    }

    fn bind(&mut self, side: usize, source: &mut Source<'_>) {
        let address = SocketAddr::new(setup::address(source), source.pick(&PORTS));
        let options = options(source);
        self.say(format_args!("{side} has a UDP socket at {address}: {options:?}"));
        let end = &mut self.ends[side];
        if end.udp.len() == SOCKETS {
            let oldest = end.udp.remove(0);
            end.host.udp_close(oldest);
        }
        if let Ok(id) = end.host.udp_bind(address, options) {
            assert_ne!(end.host.udp_local_address(id).map(|bound| bound.port()), Ok(0));
            end.udp.push(id);
        }
    }

    fn send_datagram(&mut self, side: usize, id: UdpId, source: &mut Source<'_>) {
        let to = SocketAddr::new(setup::address(source), source.pick(&PORTS));
        let bits = source.u8();
        let transmit = Transmit {
            to: Some(to).filter(|_| bits & 1 == 0),
            from: (bits & 6 == 6).then(|| setup::address(source)),
            ecn: (bits & 8 != 0).then_some(bits >> 6),
            segment: (bits & 16 != 0).then(|| source.pick(&[100, 1, 0, 1400, 1473])),
        };
        let len = source.pick(&[10, 0, 1, 1472, 1473, 3000, 65_507, 65_528]);
        let bytes = vec![bits; len];
        let sent = self.ends[side].host.udp_send(self.now, id, &transmit, &bytes);
        self.say(format_args!("{side} sends {len} bytes, {transmit:?}: {sent:?}"));
    }

    fn receive_datagrams(&mut self, side: usize, id: UdpId, source: &mut Source<'_>) {
        let mut out = vec![0; source.pick(&[100, 0, 1500, 70_000])];
        for _ in 0..source.below(20) + 1 {
            let host = &mut self.ends[side].host;
            let peeked = host.udp_peek(id, &mut out);
            // An error is told once.
            match (peeked, host.udp_receive(id, &mut out)) {
                (Ok(peeked), read) => {
                    assert_eq!(read, Ok(peeked));
                    self.ledger.check_datagrams(&out[..peeked.len], peeked.segment);
                }
                (Err(Error::WouldBlock), read) => assert_eq!(read, Err(Error::WouldBlock)),
                (Err(_), _) => {}
            }
        }
        let host = &mut self.ends[side].host;
        let _ = (host.udp_error(id), host.udp_readiness(id));
    }
}

/// A group, or what is none.
fn group(source: &mut Source<'_>) -> IpAddr {
    let (kind, last) = (source.u8(), source.u8() % 8);
    match kind % 4 {
        0 => IpAddr::from([224, 0, 0, last]),
        1 => IpAddr::from([239, 1, 2, last]),
        2 => IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, u16::from(last)]),
        _ => setup::address(source),
    }
}

fn options(source: &mut Source<'_>) -> UdpOptions {
    let bits = source.u8();
    let has = |bit: u8| bits >> bit & 1 == 1;
    UdpOptions {
        receive_bytes: source.pick(&[200_000, 0, 300, 3000]),
        send_bytes: source.pick(&[200_000, 0, 300, 3000]),
        broadcast: has(0),
        only_ipv6: has(1),
        dont_fragment: has(2),
        report_errors: has(3),
        joined: has(4),
        traffic_class: bits,
        hop_limit: has(5).then_some(1),
        multicast_hop_limit: bits >> 6,
        multicast_loop_v4: has(0),
        multicast_loop_v6: has(1),
    }
}
