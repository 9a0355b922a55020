//! Packets that a script injects, mapped into the live connection's numbers.

use std::net::SocketAddr;

use super::{Descriptor, Phase, Player, Socket};
use crate::ast::{BodySpec, Direction, PacketSpec};
use crate::packet::{self, Body, Datagram, Segment, flag};

impl Player {
    /// The socket to which a script's packet belongs; a listener's packet makes a new one.
    pub(super) fn socket_for(&mut self, spec: &PacketSpec) -> Result<usize, String> {
        let place = self.descriptors.under_test_at();
        let phase = match place {
            Some(place) => Some(self.descriptors.at(place)?.phase),
            None => None,
        };
        if let BodySpec::Tcp(tcp) = &spec.body {
            let opens = spec.direction == Direction::Inbound
                && matches!(phase, None | Some(Phase::Listening));
            if opens {
                return Ok(self.new_child(tcp.seq, tcp.ports));
            }
            let is_syn = tcp.flags & (flag::SYN | flag::ACK) == flag::SYN;
            if let (Direction::Outbound, true, Some(Phase::Connecting), Some(place)) =
                (spec.direction, is_syn, phase, place)
            {
                let nowhere = std::net::IpAddr::from([0; 4]);
                let socket = self.descriptors.at(place)?;
                socket.phase = Phase::SynSent;
                socket.script.local = SocketAddr::new(nowhere, tcp.ports.0);
                socket.script.remote = SocketAddr::new(nowhere, tcp.ports.1);
                socket.script.local_isn = tcp.seq;
                return Ok(place);
            }
        }
        let place = place.ok_or("no matching socket for script packet")?;
        let protocol = self.descriptors.at(place)?.protocol;
        let has_ports = |ports: (u16, u16)| ports.0 != 0 || ports.1 != 0;
        let matches = match &spec.body {
            BodySpec::Tcp(tcp) => protocol == libc::IPPROTO_TCP || has_ports(tcp.ports),
            BodySpec::Udp(udp) => protocol == libc::IPPROTO_UDP || has_ports(udp.ports),
            BodySpec::Icmp(_) => true,
        };
        if matches { Ok(place) } else { Err("no matching socket for script packet".into()) }
    }

    /// A connection to the listener, from a port of its own.
    fn new_child(&mut self, isn: u32, ports: (u16, u16)) -> usize {
        let mut socket = Socket::new(Phase::PacketReceived, libc::IPPROTO_TCP);
        let nowhere = std::net::IpAddr::from([0; 4]);
        socket.script.remote = SocketAddr::new(nowhere, ports.0);
        socket.script.local = SocketAddr::new(nowhere, ports.1);
        socket.script.remote_isn = isn;
        socket.live.remote = SocketAddr::new(self.config.remote(), self.new_port());
        socket.live.local = SocketAddr::new(self.config.local(), self.config.bind_port);
        socket.live.remote_isn = isn;
        self.descriptors.add_child(socket)
    }

    /// Inject a packet of the script for the socket at `place`.
    pub(super) fn inject(&mut self, spec: &PacketSpec, place: usize) -> Result<(), String> {
        if self.descriptors.at(place)?.is_datagram() {
            return self.inject_datagram(spec, place);
        }
        let (local, remote) = (self.config.local(), self.config.remote());
        let scaled = self.config.scaled_echoes;
        let mut live = packet::build(spec, remote, local)?;
        let socket = self.descriptors.at(place)?;
        if let Some(segment) = live.segment() {
            note_handshake(socket, segment);
        }
        if socket.live.remote.port() == 0 || socket.live.local.port() == 0 {
            return Err("the socket under test has no connection yet".into());
        }
        live.source = socket.live.remote.ip();
        live.destination = socket.live.local.ip();
        let inbound = socket.live.inbound();
        match &mut live.body {
            Body::Tcp(segment) => {
                map_ports(&mut segment.ports, inbound.source.port(), inbound.destination.port());
                map_segment(socket, segment);
                if !has_raw_options(spec) {
                    map_options(socket, segment, scaled)?;
                }
                socket.last_injected = Some(segment.clone());
            }
            Body::Udp { ports, .. } => {
                map_ports(ports, inbound.source.port(), inbound.destination.port());
            }
            Body::Icmp { rest, .. } => packet::quote(rest, inbound, socket.local_offset(false)),
        }
        self.send(&live)
    }

    fn send(&self, live: &Datagram) -> Result<(), String> {
        match self.door.inject(&packet::encode(live)) {
            0 => Ok(()),
            other => Err(format!("netdev_send returned {other} for {}", packet::show(live))),
        }
    }

    /// Close a descriptor as the original does at the end, and reset its connection.
    pub(super) fn close_at_end(&self, descriptor: Descriptor) -> Result<(), String> {
        if descriptor.live_fd >= 0 && !descriptor.is_closed {
            crate::system::close(descriptor.live_fd)
                .map_err(|error| format!("{}: close at the end: {error}", self.path))?;
        }
        let Some(socket) = descriptor.socket else { return Ok(()) };
        let is_connection = socket.protocol == libc::IPPROTO_TCP
            && socket.live.local.port() != 0
            && socket.live.remote.port() != 0;
        if is_connection { self.reset(&socket) } else { Ok(()) }
    }

    /// An RST that the stack accepts, as far as can be known.
    fn reset(&self, socket: &Socket) -> Result<(), String> {
        let mut segment = Segment { flags: flag::RST | flag::ACK, ..Segment::default() };
        let injected = socket.last_injected.as_ref().filter(|segment| segment.has(flag::ACK));
        let sent = socket.last_outbound.as_ref();
        if let Some(last) = injected {
            let length = u32::try_from(last.payload.len()).unwrap_or(0);
            let flags = u32::from(last.has(flag::SYN)) + u32::from(last.has(flag::FIN));
            segment.seq = last.seq.wrapping_add(length).wrapping_add(flags);
            segment.ack = last.ack;
            segment.window = last.window;
        } else if let Some(last) = sent.filter(|segment| segment.has(flag::ACK)) {
            segment.seq = last.ack;
            segment.ack = last.seq;
        } else {
            segment.ack = sent.map_or(0, |last| last.seq).wrapping_add(1);
        }
        segment.ports = (socket.live.remote.port(), socket.live.local.port());
        self.send(&Datagram {
            source: socket.live.remote.ip(),
            destination: socket.live.local.ip(),
            tos: 0,
            ttl: 255,
            flow_label: 0,
            dont_fragment: false,
            header_bytes: 20,
            body: Body::Tcp(segment),
        })
        .map_err(|error| format!("{}: resetting the connection at the end: {error}", self.path))
    }
}

/// Follow the handshake.
fn note_handshake(socket: &mut Socket, segment: &Segment) {
    if socket.phase == Phase::SynAckSent && segment.has(flag::ACK) {
        socket.phase = Phase::SynAckAcked;
    } else if socket.phase == Phase::SynSent && segment.has(flag::SYN) && segment.has(flag::ACK) {
        socket.phase = Phase::SynAcked;
        socket.script.remote_isn = segment.seq;
        socket.live.remote_isn = segment.seq;
    }
}

/// Ports that the script does not name are the connection's.
fn map_ports(ports: &mut (u16, u16), source: u16, destination: u16) {
    if ports.0 == 0 {
        ports.0 = source;
    }
    if ports.1 == 0 {
        ports.1 = destination;
    }
}

/// Options that were written as bytes stay as they are.
fn has_raw_options(spec: &PacketSpec) -> bool {
    let BodySpec::Tcp(tcp) = &spec.body else { return false };
    tcp.options.as_ref().is_some_and(|options| options.is_raw)
}

/// Sequence numbers, from the script's to live ones.
fn map_segment(socket: &Socket, segment: &mut Segment) {
    let is_syn = segment.has(flag::SYN);
    segment.seq = segment.seq.wrapping_add(socket.remote_offset(is_syn));
    if segment.has(flag::ACK) {
        segment.ack = segment.ack.wrapping_add(socket.local_offset(is_syn));
    }
}

/// SACK blocks and echoed timestamps, from the script's to live ones.
fn map_options(socket: &Socket, segment: &mut Segment, scaled: bool) -> Result<(), String> {
    let offset = socket.local_offset(segment.has(flag::SYN));
    packet::shift_sack(&mut segment.options, offset)?;
    let Some(value_at) = packet::timestamp_place(&segment.options) else { return Ok(()) };
    if !segment.has(flag::ACK) {
        return Ok(());
    }
    let echo = packet::word(&segment.options, value_at + 4);
    let live = match (socket.stamps.get(&echo), socket.first_stamp) {
        (Some(live), _) => *live,
        (None, Some((script, actual))) if scaled => echo.wrapping_sub(script).wrapping_add(actual),
        _ => {
            return Err(format!(
                "unable to infer live TS ecr for script TS ecr {echo}; no matching or preceding \
                 outbound TS val"
            ));
        }
    };
    segment.options[value_at + 4..value_at + 8].copy_from_slice(&live.to_be_bytes());
    Ok(())
}
