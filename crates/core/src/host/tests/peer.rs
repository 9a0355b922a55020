//! A host under test and a peer whose every segment the test writes.
//!
//! Numbers are relative: the peer's sequence numbers count from its ISN (data starts at 1), and
//! its acknowledgements from the host's ISN. A scenario runs the same wherever the numbers wrap.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::pair::config;
use crate::config::{Algorithm, Config};
use crate::event::{ConnectionId, ListenerId};
use crate::flow::Seq;
use crate::frame::{Outbox, RxFrame};
use crate::host::Host;
use crate::tcp::State;
use crate::time::{Duration, Instant};
use crate::wire::ip;
use crate::wire::options::{Options, SackBlock, Timestamps};
use crate::wire::tcp::{CHECKSUM_OFFSET, Flags, Header, Segment, checksum};

pub(crate) const F: Flags = Flags::FIN;
pub(crate) const S: Flags = Flags::SYN;
pub(crate) const R: Flags = Flags::RST;
pub(crate) const A: Flags = Flags::ACK;

/// What the host sent, in relative numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) len: usize,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
}

/// A segment from the peer.
#[derive(Clone, Debug)]
pub(crate) struct Say {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
    /// DSCP and ECN bits.
    pub(crate) class: u8,
}

impl Say {
    pub(crate) fn new(flags: Flags, seq: u32, ack: u32) -> Say {
        let options = Options::default();
        Say { flags, seq, ack, window: 60_000, urgent: 0, options, payload: Vec::new(), class: 0 }
    }

    pub(crate) fn data(self, payload: &[u8]) -> Say {
        Say { payload: payload.to_vec(), ..self }
    }

    pub(crate) fn window(self, window: u16) -> Say {
        Say { window, ..self }
    }

    pub(crate) fn urgent(self, urgent: u16) -> Say {
        Say { urgent, flags: self.flags | Flags::URG, ..self }
    }

    pub(crate) fn stamp(mut self, value: u32, echo: u32) -> Say {
        self.options.timestamps = Some(Timestamps { value, echo });
        self
    }

    pub(crate) fn mss(mut self, mss: u16) -> Say {
        self.options.mss = Some(mss);
        self
    }

    pub(crate) fn sack_permitted(mut self) -> Say {
        self.options.sack_permitted = true;
        self
    }

    /// With the options of a SYN in the order in which Linux writes them.
    pub(crate) fn fast(self, stamp: u32) -> Say {
        let mut say = self.mss(1000).sack_permitted().stamp(stamp, 0);
        say.options.window_scale = Some(7);
        say
    }

    /// A SACK block in numbers relative to the host's ISN.
    pub(crate) fn sack(mut self, peer: &Peer, start: u32, end: u32) -> Say {
        let (start, end) = (peer.host_isn + start, peer.host_isn + end);
        self.options.sack.push(SackBlock { start, end });
        self
    }
}

/// The host and its peer.
pub(crate) struct Peer {
    pub(crate) now: Instant,
    pub(crate) host: Host,
    pub(crate) isn: Seq,
    pub(crate) host_isn: Seq,
    pub(crate) id: Option<ConnectionId>,
    pub(crate) listener: Option<ListenerId>,
    /// Hop limit and traffic class of the last packet heard.
    pub(crate) marks: (u8, u8),
    pub(crate) host_ip: IpAddr,
    pub(crate) ip: IpAddr,
    pub(crate) host_port: u16,
    pub(crate) port: u16,
    outbox: Outbox,
}

const HOST: &str = "10.0.0.2";
/// A host of each IP version.
pub(crate) const HOSTS: [&str; 2] = [HOST, "fd00::2"];
const PEERS: [&str; 2] = ["10.0.0.1", "fd00::1"];

/// A configuration in which nothing is delayed by quick ACKs or rounded by timestamps.
pub(crate) fn plain() -> Config {
    let mut config = config(HOST);
    config.tcp.timestamps = false;
    config.tcp.sack = false;
    config.tcp.window_scaling = false;
    config.tcp.ack.quick = 0;
    config
}

/// [`plain`], by Reno (RFC 5681).
pub(crate) fn reno() -> Config {
    let mut config = plain();
    config.tcp.congestion.algorithm = Algorithm::Reno;
    config
}

impl Peer {
    /// The peer's address is of the version of the host's first.
    pub(crate) fn new(config: Config) -> Peer {
        let host_ip = config.addresses[0].address();
        Peer {
            now: Instant::from_millis(100_000),
            host: Host::new(config).unwrap(),
            isn: Seq(0xffff_fff0),
            host_isn: Seq(0),
            id: None,
            listener: None,
            marks: (0, 0),
            host_ip,
            ip: PEERS[usize::from(host_ip.is_ipv6())].parse().unwrap(),
            host_port: 80,
            port: 4000,
            outbox: Outbox::new(256),
        }
    }

    /// The host listens.
    pub(crate) fn listening(config: Config) -> Peer {
        let mut peer = Peer::new(config);
        let at = SocketAddr::new(peer.host_ip, 80);
        peer.listener = Some(peer.host.listen(at, 4).unwrap());
        peer
    }

    /// The host has opened, and its SYN has been heard.
    pub(crate) fn opening(config: Config) -> (Peer, Heard) {
        let mut peer = Peer::new(config);
        let (local, remote) = peer.ends();
        let now = peer.now;
        peer.id = Some(peer.host.connect(now, local, remote).unwrap());
        let syn = peer.hear_one();
        (peer, syn)
    }

    /// The host listened, the peer opened, and the connection is accepted.
    pub(crate) fn established(config: Config) -> Peer {
        Peer::established_with(config, |syn| syn.mss(1000))
    }

    pub(crate) fn established_with(config: Config, options: impl Fn(Say) -> Say) -> Peer {
        let mut peer = Peer::listening(config);
        peer.say(options(Say::new(S, 0, 0)));
        let syn_ack = peer.hear_one();
        assert_eq!(syn_ack.flags, S | A);
        let mut ack = Say::new(A, 1, 1);
        if let Some(stamps) = syn_ack.options.timestamps {
            ack = ack.stamp(stamps.echo, stamps.value);
        }
        peer.say(ack);
        peer.accept();
        peer
    }

    /// The host's end, and the peer's.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (SocketAddr::new(self.host_ip, self.host_port), SocketAddr::new(self.ip, self.port))
    }

    pub(crate) fn accept(&mut self) {
        let listener = self.listener.unwrap();
        self.id = Some(self.host.accept(self.now, listener).expect("established"));
        assert_eq!(self.hear(), []);
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id.unwrap()
    }

    pub(crate) fn state(&self) -> State {
        self.host.state(self.id())
    }

    /// The peer sends a segment; the host takes it in and does not speak yet.
    pub(crate) fn say(&mut self, say: Say) {
        let bytes = self.packet(say);
        self.host.on_frame(self.now, RxFrame::plain(&bytes));
    }

    /// The packet that carries it.
    pub(crate) fn packet(&self, say: Say) -> Vec<u8> {
        let acks = say.flags.contains(A) || say.flags.contains(R);
        let header = Header {
            source_port: self.port,
            destination_port: self.host_port,
            seq: self.isn + say.seq,
            ack: if acks { self.host_isn + say.ack } else { Seq(0) },
            flags: say.flags,
            window: say.window,
            urgent: say.urgent,
            options: say.options,
        };
        let (source, destination) = (self.ip, self.host_ip);
        let mut bytes = Vec::new();
        let len = header.header_len() + say.payload.len();
        let mut ip = ip::Header::new(source, destination, ip::protocol::TCP, len).unwrap();
        ip.traffic_class = say.class;
        ip.emit(&mut bytes);
        let start = bytes.len();
        header.emit(&mut bytes);
        let sum = crate::wire::checksum::sum(&say.payload);
        let value = checksum(source, destination, &bytes[start..], sum, say.payload.len());
        bytes[start + CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
        bytes.extend(say.payload);
        bytes
    }

    /// Everything the host sends now.
    pub(crate) fn hear(&mut self) -> Vec<Heard> {
        self.host.on_time(self.now);
        self.host.emit(self.now, &mut self.outbox);
        let mut heard = Vec::new();
        while let Some(frame) = self.outbox.take() {
            let mut bytes = Vec::new();
            frame.complete_to(&mut bytes);
            self.outbox.recycle(frame);
            heard.push(self.understand(&bytes));
        }
        heard
    }

    fn understand(&mut self, bytes: &[u8]) -> Heard {
        let packet = ip::Packet::parse(bytes).unwrap();
        self.marks = (packet.hop_limit, packet.traffic_class);
        let sound =
            crate::wire::tcp::verify_checksum(packet.payload, packet.source, packet.destination);
        assert!(sound, "a bad checksum left the host");
        let s = Segment::parse(packet.payload).unwrap();
        if s.flags.contains(S) {
            self.host_isn = s.seq;
        }
        let ack = if s.flags.contains(A) { s.ack.since(self.isn) } else { 0 };
        Heard {
            at: self.now,
            flags: s.flags,
            seq: s.seq.since(self.host_isn),
            ack,
            len: s.payload.len(),
            window: s.window,
            urgent: s.urgent,
            options: s.options,
            payload: s.payload.to_vec(),
        }
    }

    /// The only segment that the host sends now.
    pub(crate) fn hear_one(&mut self) -> Heard {
        let mut heard = self.hear();
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard.remove(0)
    }

    /// Speaks and hears the answers as text, such as `"A 1:1(0) ack 1"`.
    pub(crate) fn exchange(&mut self, say: Say) -> Vec<std::string::String> {
        self.say(say);
        self.hear_text()
    }

    pub(crate) fn hear_text(&mut self) -> Vec<std::string::String> {
        self.hear().iter().map(text).collect()
    }

    /// Lets time pass and hears what the host sends, each at its time.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Heard> {
        let until = self.now + time;
        let mut heard = self.hear();
        while let Some(at) = self.host.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            heard.extend(self.hear());
        }
        self.now = until;
        heard.extend(self.hear());
        heard
    }

    /// Lets time pass until the host sends something, which is one segment.
    pub(crate) fn wait_for_one(&mut self) -> Heard {
        loop {
            self.now = self.now.max(self.host.deadline().expect("something is to come"));
            let mut heard = self.hear();
            assert!(heard.len() <= 1, "{heard:?}");
            if let Some(one) = heard.pop() {
                return one;
            }
        }
    }

    pub(crate) fn write(&mut self, len: usize) -> usize {
        let data: Vec<u8> = (0..len).map(super::pair::pattern).collect();
        self.host.write(self.now, self.id(), &data).unwrap_or(0)
    }

    pub(crate) fn read(&mut self, len: usize) -> Result<Vec<u8>, crate::Error> {
        let mut out = std::vec![0; len];
        let n = self.host.read(self.now, self.id(), &mut out)?;
        out.truncate(n);
        Ok(out)
    }
}

/// One segment as text: flags, sequence numbers, acknowledgement.
pub(crate) fn text(heard: &Heard) -> std::string::String {
    let names = [(S, 'S'), (F, 'F'), (R, 'R'), (Flags::PSH, 'P'), (Flags::URG, 'U')];
    let mut flags: std::string::String =
        names.iter().filter(|(flag, _)| heard.flags.contains(*flag)).map(|(_, c)| *c).collect();
    if flags.is_empty() {
        flags.push('.');
    }
    let span = std::format!("{}:{}({})", heard.seq, heard.seq as usize + heard.len, heard.len);
    if heard.flags.contains(A) {
        std::format!("{flags} {span} ack {}", heard.ack)
    } else {
        std::format!("{flags} {span}")
    }
}
