//! The packets that a script expects of the stack: waits for each, maps it into the script's
//! numbers, and compares.

use super::clock::seconds;
use super::{Now, Phase, Player, Socket};
use crate::ast::{BodySpec, PacketSpec};
use crate::packet::{self, Body, Datagram, Expectation, StampTolerance, flag};

/// How often a stack may say that nothing has left. The original asks for ever.
const ASKS: usize = 4;

/// A packet of the stack and when it left.
pub(super) struct Sniffed {
    pub(super) datagram: Datagram,
    pub(super) usecs: i64,
}

impl Player {
    /// Wait for the packet that the script expects, and compare.
    pub(super) fn expect(&mut self, spec: &PacketSpec, now: &Now) -> Result<(), String> {
        let place = self.socket_for(spec)?;
        if self.descriptors.at(place)?.is_datagram() {
            let result = self.expect_datagram(spec, place, now);
            return self.warn(result, now.line);
        }
        let expected = expectation(spec, self.config.local(), self.config.remote())?;
        let is_syn_ack = matches!(&expected.datagram.body, Body::Tcp(segment)
            if segment.has(flag::SYN) && segment.has(flag::ACK));
        let socket = self.descriptors.at(place)?;
        if socket.phase == Phase::PacketReceived && is_syn_ack {
            socket.script.local_isn = expected.datagram.segment().map_or(0, |segment| segment.seq);
        }
        let length = expected.datagram.payload().len();
        let shown = format!(
            "script packet: {:9.6} {}",
            seconds(now.usecs),
            packet::show(&expected.datagram)
        );
        let sniffed =
            self.gather(place, is_syn_ack, length).map_err(|error| format!("{error}\n{shown}"))?;
        let result = self.compare(place, &expected, &sniffed, now);
        let mut actual = sniffed.datagram;
        let stamp = self.stamp_in_script(place);
        if let Some(segment) = actual.segment_mut() {
            map_stamp(&mut segment.options, stamp);
        }
        let message = result.map_err(|error| {
            format!(
                "{error}\n{shown}\nactual packet: {:9.6} {}",
                seconds(self.script_usecs(sniffed.usecs)),
                packet::show(&actual)
            )
        });
        self.warn(message, now.line)
    }

    /// Only warns of a packet that is not as expected, where the script asks for that.
    fn warn(&self, result: Result<(), String>, line: usize) -> Result<(), String> {
        match result {
            Err(message) if !self.config.is_packet_fatal => {
                eprintln!("{}", self.at(line, &format!("warning handling packet: {message}")));
                Ok(())
            }
            other => other,
        }
    }

    /// As many packets as make `length` bytes, put together as one, their numbers the script's.
    fn gather(&mut self, place: usize, is_syn_ack: bool, length: usize) -> Result<Sniffed, String> {
        let mut whole: Option<Sniffed> = None;
        let mut previous: Option<Datagram> = None;
        let mut payload = Vec::new();
        loop {
            let mut sniffed = self.sniff(place)?;
            let socket = self.descriptors.at(place)?;
            if let Some(segment) = sniffed.datagram.segment_mut() {
                if socket.phase == Phase::PacketReceived && is_syn_ack {
                    socket.phase = Phase::SynAckSent;
                    socket.live.local_isn = segment.seq;
                }
                socket.last_outbound = Some(segment.clone());
                map_numbers(socket, segment)?;
            }
            let piece = sniffed.datagram.payload().len();
            if let Some(previous) = &previous {
                packet::check_fragment(previous, &sniffed.datagram).map_err(|error| {
                    format!("{error}\nnext packet: {}", packet::show(&sniffed.datagram))
                })?;
                if piece < length - payload.len() && piece != previous.payload().len() {
                    return Err(format!(
                        "fragment payload: expected {} bytes vs actual {piece} bytes; total \
                         payload: expected {length} bytes vs actual {} bytes",
                        previous.payload().len(),
                        piece + payload.len()
                    ));
                }
            }
            payload.extend(sniffed.datagram.payload());
            previous = Some(sniffed.datagram.clone());
            whole = Some(join(whole, sniffed));
            if payload.len() >= length || self.config.strict_segments {
                break;
            }
        }
        if payload.len() != length {
            let shown = previous.map_or_else(String::new, |last| packet::show(&last));
            return Err(format!(
                "live packet payload: expected {length} bytes vs actual {} bytes\nlast packet: \
                 {shown}",
                payload.len()
            ));
        }
        let mut whole = whole.ok_or("no packet")?;
        if let Some(segment) = whole.datagram.segment_mut() {
            segment.payload = payload;
        }
        Ok(whole)
    }

    /// The next packet of the stack, and when it left.
    pub(super) fn next_packet(&self) -> Result<(Vec<u8>, i64), String> {
        for _ in 0..ASKS {
            match self.door.sniff() {
                Some((bytes, _)) if bytes.is_empty() => {
                    return Err("the stack has nothing to send, and says so".into());
                }
                Some(packet) => return Ok(packet),
                None => {}
            }
        }
        Err("timed out waiting for packet".into())
    }

    /// The next packet of the stack that belongs to the socket at `place`.
    fn sniff(&mut self, place: usize) -> Result<Sniffed, String> {
        loop {
            let (bytes, usecs) = self.next_packet()?;
            let Some(datagram) = packet::decode(&bytes)? else { continue };
            if belongs(self.descriptors.at(place)?, &datagram) {
                return Ok(Sniffed { datagram, usecs });
            }
        }
    }

    fn compare(
        &mut self,
        place: usize,
        expected: &Expectation,
        sniffed: &Sniffed,
        now: &Now,
    ) -> Result<(), String> {
        let stamps = StampTolerance {
            tick_usecs: self.config.stamp_tick_usecs,
            tolerance_usecs: self.tolerance_usecs(now.usecs, Some(0)),
            exact_echo: self.config.exact_echoes,
        };
        let socket = self.descriptors.at(place)?;
        let mut actual = sniffed.datagram.clone();
        if let (Some(wanted), Some(segment)) = (expected.datagram.segment(), actual.segment_mut()) {
            note_stamp(socket, &wanted.options, &segment.options)?;
            map_stamp(&mut segment.options, socket.first_stamp);
        }
        packet::check(expected, &actual, &stamps)?;
        if expected.datagram.flow_label != 0 {
            check_flow_label(socket, expected.datagram.flow_label, actual.flow_label)?;
        }
        self.check_time(now, sniffed.usecs, "outbound packet")
    }

    fn stamp_in_script(&mut self, place: usize) -> Option<(u32, u32)> {
        self.descriptors.at(place).ok().and_then(|socket| socket.first_stamp)
    }
}

pub(super) fn expectation(
    spec: &PacketSpec,
    local: std::net::IpAddr,
    remote: std::net::IpAddr,
) -> Result<Expectation, String> {
    let datagram = packet::build(spec, local, remote)?;
    let tcp = match &spec.body {
        BodySpec::Tcp(tcp) => Some(tcp),
        _ => None,
    };
    let options = tcp.and_then(|tcp| tcp.options.as_ref());
    Ok(Expectation {
        datagram,
        tos: spec.ip.tos,
        ttl: spec.ip.ttl.filter(|ttl| *ttl != 0),
        dont_fragment: spec.ip.dont_fragment.is_some(),
        window: tcp.is_some_and(|tcp| tcp.window.is_some()),
        options: options.is_some(),
        any_wscale: options.is_some_and(|options| options.any_wscale),
        ace: tcp.is_some_and(|tcp| tcp.ace),
    })
}

/// Whether a live packet is one of the socket's. The first SYN tells which port it has.
fn belongs(socket: &mut Socket, datagram: &Datagram) -> bool {
    let tuple = datagram.tuple();
    if tuple == socket.live.outbound() {
        return true;
    }
    let is_syn = match &datagram.body {
        Body::Tcp(segment) => segment.has(flag::SYN) && !segment.has(flag::ACK),
        _ => false,
    };
    let is_first = match &datagram.body {
        Body::Tcp(_) => {
            is_syn && socket.protocol == libc::IPPROTO_TCP && socket.phase == Phase::SynSent
        }
        Body::Udp { .. } | Body::Icmp { .. } => false,
    };
    if !is_first || tuple.destination != socket.live.remote {
        return false;
    }
    socket.live.local = tuple.source;
    if let Some(segment) = datagram.segment() {
        socket.live.local_isn = segment.seq;
    }
    true
}

/// Sequence numbers from live ones to the script's.
fn map_numbers(socket: &Socket, segment: &mut packet::Segment) -> Result<(), String> {
    let is_syn = segment.has(flag::SYN);
    segment.seq = segment.seq.wrapping_sub(socket.local_offset(is_syn));
    let offset = socket.remote_offset(is_syn).wrapping_neg();
    if segment.has(flag::ACK) {
        segment.ack = segment.ack.wrapping_add(offset);
    }
    packet::shift_sack(&mut segment.options, offset)
}

/// Headers of the last piece, sequence number and CWR of the first.
fn join(whole: Option<Sniffed>, mut piece: Sniffed) -> Sniffed {
    let Some(whole) = whole else { return piece };
    if let (Some(first), Some(segment)) = (whole.datagram.segment(), piece.datagram.segment_mut()) {
        segment.seq = first.seq;
        segment.flags = segment.flags & !flag::CWR | first.flags & flag::CWR;
    }
    piece
}

/// Remember which live timestamp is which of the script.
fn note_stamp(socket: &mut Socket, wanted: &[u8], actual: &[u8]) -> Result<(), String> {
    if let (_, Some(error)) = packet::options(actual) {
        return Err(error);
    }
    let places = (packet::timestamp_place(wanted), packet::timestamp_place(actual));
    if let (Some(wanted_at), Some(actual_at)) = places {
        let pair = (packet::word(wanted, wanted_at), packet::word(actual, actual_at));
        socket.stamps.insert(pair.0, pair.1);
        socket.first_stamp.get_or_insert(pair);
    }
    Ok(())
}

/// A live timestamp on the script's clock, computed from the first pair.
fn map_stamp(options: &mut [u8], first: Option<(u32, u32)>) {
    if let (Some(at), Some((script, actual))) = (packet::timestamp_place(options), first) {
        let value = packet::word(options, at).wrapping_sub(actual).wrapping_add(script);
        options[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

/// Checks the flow label: the same script label must give the same live label, and another script
/// label another.
fn check_flow_label(socket: &mut Socket, script: u32, live: u32) -> Result<(), String> {
    if live == 0 {
        return Err("flowlabel unmarked in the live packet".into());
    }
    let Some((known_script, known_live)) = socket.flow_label else {
        socket.flow_label = Some((script, live));
        return Ok(());
    };
    match (script == known_script, live == known_live) {
        (true, true) => Ok(()),
        (true, false) => {
            Err(format!("inconsistent flowlabels: expected: {known_live:#x} vs actual: {live:#x}"))
        }
        (false, true) => Err("expected a different flowlabel but got the same".into()),
        (false, false) => {
            socket.flow_label = Some((script, live));
            Ok(())
        }
    }
}
