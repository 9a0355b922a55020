//! Packets of a socket for datagrams.
//!
//! Its ends need no handshake: packets come from, and go to, the peer that the script has named
//! last, or the one of the configuration, as with the original's `--is_anyip`. In scripts of ours
//! every packet of the stack must be expected; the original skips those of others.

use std::net::{IpAddr, SocketAddr};

use super::outbound::{Sniffed, expectation};
use super::{Now, Player, Socket};
use crate::ast::{BodySpec, PacketSpec, Quoted};
use crate::config::Config;
use crate::packet::{self, Body, Fragment, StampTolerance, Tuple};

/// Fragments of one packet at most.
const FRAGMENTS_MAX: usize = 256;

impl Socket {
    /// True if it carries datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.protocol == libc::IPPROTO_UDP
    }

    /// Packets go to `remote` from now on, and come from there.
    pub(crate) fn name_peer(&mut self, remote: SocketAddr) {
        self.live.remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    }

    /// It is bound to `local`.
    pub(crate) fn name_end(&mut self, config: &Config, local: SocketAddr) {
        let ip = local.ip().to_canonical();
        let ip = if ip.is_unspecified() { config.local() } else { ip };
        self.live.local = SocketAddr::new(ip, local.port());
    }

    /// Our end and the peer's, where the script names them, then those of the socket. `ports` are
    /// ours and the peer's.
    fn ends(
        &self,
        config: &Config,
        (ours, theirs): (Option<IpAddr>, Option<IpAddr>),
        ports: (u16, u16),
    ) -> (SocketAddr, SocketAddr) {
        let end = |live: SocketAddr, named: Option<IpAddr>, port: u16, default: SocketAddr| {
            let known = if live.ip().is_unspecified() { default.ip() } else { live.ip() };
            let port = if port == 0 { live.port() } else { port };
            SocketAddr::new(named.unwrap_or(known), port)
        };
        let default = |ip| SocketAddr::new(ip, 0);
        (
            end(self.live.local, ours, ports.0, default(config.local())),
            end(self.live.remote, theirs, ports.1, default(config.remote())),
        )
    }
}

/// Swaps both of a pair.
fn swap<T>((one, two): (T, T)) -> (T, T) {
    (two, one)
}

/// The end with the port of the configuration, if it has none.
fn with_port(end: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(end.ip(), if end.port() == 0 { port } else { end.port() })
}

impl Player {
    /// Inject a packet of the script.
    pub(super) fn inject_datagram(
        &mut self,
        spec: &PacketSpec,
        place: usize,
    ) -> Result<(), String> {
        let config = self.config.clone();
        let socket = self.descriptors.at(place)?;
        let ports = match &spec.body {
            BodySpec::Udp(udp) => swap(udp.ports),
            _ => (0, 0),
        };
        let named = (spec.ip.destination, spec.ip.source);
        let (ours, theirs) = socket.ends(&config, named, ports);
        let ours = with_port(ours, config.bind_port);
        let theirs = with_port(theirs, config.connect_port);
        let mut live = packet::build(spec, theirs.ip(), ours.ip())?;
        let bytes = match (&mut live.body, &spec.body) {
            (Body::Udp { ports, .. }, BodySpec::Udp(udp)) => {
                *ports = (theirs.port(), ours.port());
                packet::encode_datagram(&live, udp)
            }
            (Body::Icmp { rest, .. }, BodySpec::Icmp(icmp)) => {
                let ports = match icmp.quoted {
                    Quoted::Udp { ports, .. } => ports,
                    _ => (0, 0),
                };
                let (ours, theirs) = socket.ends(&config, (None, None), ports);
                let source = with_port(theirs, config.connect_port);
                let destination = with_port(ours, config.bind_port);
                packet::quote(rest, Tuple { source, destination }, 0);
                packet::encode(&live)
            }
            _ => return Err("a segment for a socket of datagrams".into()),
        };
        let Some(cut) = spec.ip.cut else { return self.inject_bytes(&bytes) };
        self.next_fragments = self.next_fragments.wrapping_add(1);
        let mut fragments = packet::cut(&bytes, cut.bytes, self.next_fragments);
        if let Some(lost) = cut.lost {
            let index = usize::from(lost).checked_sub(1).filter(|index| *index < fragments.len());
            fragments.remove(index.ok_or("there is no such fragment")?);
        }
        if cut.backwards {
            fragments.reverse();
        }
        fragments.iter().try_for_each(|fragment| self.inject_bytes(fragment))
    }

    fn inject_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        match self.door.inject(bytes) {
            0 => Ok(()),
            other => Err(format!("netdev_send returned {other}")),
        }
    }

    /// Wait for the packet that the script expects, and compare.
    pub(super) fn expect_datagram(
        &mut self,
        spec: &PacketSpec,
        place: usize,
        now: &Now,
    ) -> Result<(), String> {
        let config = self.config.clone();
        let socket = self.descriptors.at(place)?;
        let ports = match &spec.body {
            BodySpec::Udp(udp) => udp.ports,
            _ => (0, 0),
        };
        let named = (spec.ip.source, spec.ip.destination);
        let (ours, theirs) = socket.ends(&config, named, ports);
        let mut expected = expectation(spec, ours.ip(), theirs.ip())?;
        let mut ends = Tuple { source: ours, destination: theirs };
        if socket.live.local.port() == 0 && spec.ip.source.is_none() {
            // The first datagram tells which end it has.
            ends.source.set_ip(IpAddr::from([0; 4]));
        }
        match (&mut expected.datagram.body, &spec.body) {
            (Body::Udp { ports, .. }, _) => *ports = (ours.port(), theirs.port()),
            (Body::Icmp { rest, .. }, BodySpec::Icmp(icmp)) => {
                if let Quoted::Udp { ports, .. } = icmp.quoted {
                    let (ours, theirs) = socket.ends(&config, named, swap(ports));
                    let source = with_port(ours, config.bind_port);
                    let destination = with_port(theirs, config.connect_port);
                    packet::quote(rest, Tuple { source, destination }, 0);
                }
                ends.source.set_port(0);
                ends.destination.set_port(0);
            }
            _ => return Err("a segment of a socket of datagrams".into()),
        }
        let shown = format!(
            "script packet: {:9.6} {}",
            super::clock::seconds(now.usecs),
            packet::show(&expected.datagram)
        );
        let sniffed = self
            .next_datagram(spec.ip.cut.map(|cut| cut.bytes), ends)
            .map_err(|error| format!("{error}\n{shown}"))?;
        self.compare_datagrams(spec, &expected, &sniffed, ends, now).map_err(|error| {
            format!(
                "{error}\n{shown}\nactual packet: {:9.6} {}",
                super::clock::seconds(self.script_usecs(sniffed.usecs)),
                packet::show(&sniffed.datagram)
            )
        })?;
        let socket = self.descriptors.at(place)?;
        if socket.live.local.port() == 0
            && let Body::Udp { ports, .. } = &sniffed.datagram.body
        {
            socket.live.local = SocketAddr::new(sniffed.datagram.source, ports.0);
        }
        Ok(())
    }

    fn compare_datagrams(
        &self,
        spec: &PacketSpec,
        expected: &packet::Expectation,
        sniffed: &Sniffed,
        ends: Tuple,
        now: &Now,
    ) -> Result<(), String> {
        let actual = &sniffed.datagram;
        let stamps = StampTolerance { tick_usecs: 0, tolerance_usecs: 0, exact_echo: false };
        packet::check(expected, actual, &stamps)?;
        packet::check_ends(ends, actual.tuple())?;
        if let (BodySpec::Icmp(icmp), Body::Icmp { rest: wanted, .. }, Body::Icmp { rest, .. }) =
            (&spec.body, &expected.datagram.body, &actual.body)
            && matches!(icmp.quoted, Quoted::Udp { .. })
        {
            packet::check_quote(wanted, rest, actual.source.is_ipv4())?;
        }
        self.check_time(now, sniffed.usecs, "outbound packet")
    }

    /// The next packet of the stack, of ours one between any ends; if `cut`, from its fragments of
    /// that size.
    fn next_datagram(&mut self, cut: Option<u16>, ends: Tuple) -> Result<Sniffed, String> {
        loop {
            let (bytes, usecs) = self.next_packet()?;
            let bytes = match cut {
                Some(size) => self.collect(bytes, size)?,
                None => bytes,
            };
            let Some(datagram) = packet::decode(&bytes)? else {
                return Err("a packet of a protocol that no script speaks of".into());
            };
            if self.config.is_own || packet::check_ends(ends, datagram.tuple()).is_ok() {
                return Ok(Sniffed { datagram, usecs });
            }
        }
    }

    /// The packet whose fragments begin with `first`.
    fn collect(&mut self, first: Vec<u8>, size: u16) -> Result<Vec<u8>, String> {
        let mut fragments = Vec::new();
        let mut bytes = first;
        loop {
            let fragment = Fragment::decode(&bytes).ok_or("expected a fragment")?;
            let more = fragment.more;
            fragments.push(fragment);
            if !more {
                return packet::join(&fragments, size);
            }
            if fragments.len() == FRAGMENTS_MAX {
                return Err("fragments without end".into());
            }
            bytes = self.next_packet()?.0;
        }
    }

    /// In scripts of ours: when all is done, a socket of datagrams leaves nothing behind that the
    /// script did not expect.
    pub(super) fn expect_silence(&mut self) -> Result<(), String> {
        if !self.config.is_own || !self.descriptors.carry_datagrams() {
            return Ok(());
        }
        match self.door.sniff() {
            Some((bytes, _)) if bytes.is_empty() => Ok(()),
            Some((bytes, usecs)) => {
                let shown = match packet::decode(&bytes) {
                    Ok(Some(datagram)) => packet::show(&datagram),
                    Ok(None) => "of another protocol".into(),
                    Err(error) => error,
                };
                let at = super::clock::seconds(self.script_usecs(usecs));
                Err(format!("{}: a packet that no line expects: {at:.6} {shown}", self.path))
            }
            None => Ok(()),
        }
    }
}
