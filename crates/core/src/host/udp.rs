//! The calls of UDP sockets (RFC 768, "User Interface"; RFC 1122 §4.1.4).

mod flows;
mod groups;
mod input;
mod output;

use core::net::{IpAddr, SocketAddr};

use super::Host;
use crate::error::Error;
use crate::event::{Event, Readiness, UdpId};
use crate::flow::Tuple;
use crate::ip::Ip;
use crate::ip::path::IpFields;
use crate::ip::route::Class;
use crate::time::Instant;
use crate::udp::queue::Refusal;
use crate::udp::socket::{Departure, Socket};
use crate::udp::{ECN, Received, Transmit, UdpOptions};
use crate::wire::ip;
use crate::wire::udp::HEADER_BYTES;

/// No socket has that name.
const NO_SUCH_SOCKET: Error = Error::InvalidInput("no such UDP socket");

/// What a socket sends, once it is known where from.
struct Leaving {
    ends: Tuple,
    /// The destination is a single host.
    is_host: bool,
    is_multicast: bool,
    is_to_ourselves: bool,
}

impl Leaving {
    /// To a single other host.
    fn to_another(ends: Tuple) -> Leaving {
        Leaving { ends, is_host: true, is_multicast: false, is_to_ourselves: false }
    }
}

impl Host {
    /// The options that a UDP socket starts with.
    pub fn default_udp_options(&self) -> UdpOptions {
        UdpOptions::new(&self.config.udp)
    }

    /// A UDP socket at `local`; the unspecified address stands for all of ours of its version
    /// (`[::]` for both versions), and for broadcasts and groups. A socket of a group's address
    /// hears that group alone, once it has joined it. Port 0 picks one that no stranger can guess.
    ///
    /// On a host of several shards a datagram comes to the shard that owns both its ends: a service
    /// has a socket on each of them. A socket whose port was picked here hears all that is sent to
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::AddressNotAvailable`] if the address is not ours, [`Error::AddressInUse`] if
    /// another socket has it and the port, or no port is left, [`Error::Limit`] if there are as
    /// many sockets as may be.
    pub fn udp_bind(&mut self, local: SocketAddr, options: UdpOptions) -> Result<UdpId, Error> {
        let ip = local.ip();
        let is_of_many = matches!(self.ip.class(ip), Class::Broadcast | Class::Multicast);
        if !ip.is_unspecified() && !is_of_many && !self.ip.takes_or_will(ip) {
            return Err(Error::AddressNotAvailable);
        }
        if self.udp.sockets.len() >= self.config.limits.udp_sockets {
            return Err(Error::Limit("UDP sockets"));
        }
        let sockets = &mut self.udp.sockets;
        let port = match local.port() {
            0 => sockets.free_port(ip, options.only_ipv6).ok_or(Error::AddressInUse)?,
            port => port,
        };
        let local = SocketAddr::new(ip, port);
        if !sockets.is_free(local, options.only_ipv6) {
            return Err(Error::AddressInUse);
        }
        Ok(sockets.insert(Socket::new(local, options)))
    }

    /// Connects a socket to `remote`: it hears nothing else from now on, and sends there without
    /// being told. `None` undoes that. What waits to be read stays.
    ///
    /// # Errors
    ///
    /// [`Error::NetworkUnreachable`] if no address of ours leads there, and
    /// [`Error::AddressNotAvailable`] if on a host of several shards the answers would come to
    /// another one: let the port be picked.
    pub fn udp_connect(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let socket = self.udp.sockets.named(id).ok_or(NO_SUCH_SOCKET)?;
        let ends = match remote {
            None => None,
            Some(remote) => {
                let ends = ends_of(socket, &self.ip, now, &Transmit::to(remote))?.ends;
                if self.ip.shards.elsewhere(&ends).is_some()
                    && self.udp.sockets.port_elsewhere(&ends).is_some()
                {
                    return Err(Error::AddressNotAvailable);
                }
                Some(ends)
            }
        };
        let is_connected = self.udp.sockets.connect(id.index, ends);
        if is_connected { Ok(()) } else { Err(Error::AddressInUse) }
    }

    /// Sends `bytes` as one datagram, or as several of `transmit.segment` bytes each. They leave
    /// with the next [`Host::emit`].
    ///
    /// # Errors
    ///
    /// [`Error::WouldBlock`] if the queue has no room: an event tells when it has.
    /// [`Error::MessageTooLong`] and [`Error::PermissionDenied`] as they say,
    /// [`Error::NotConnected`] without a destination, [`Error::NetworkUnreachable`] without a way,
    /// [`Error::Limit`] without a page for it; and the error of an earlier datagram that ICMP has
    /// reported, once.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let socket = self.udp.sockets.named_mut(id).ok_or(NO_SUCH_SOCKET)?;
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        let leaving = match ends_as_before(socket, &self.ip, transmit) {
            Some(leaving) => leaving,
            None => {
                let leaving = ends_of(socket, &self.ip, now, transmit)?;
                if transmit.from.is_none() && leaving.is_host && !leaving.is_to_ourselves {
                    socket.recent = (leaving.ends, self.ip.address_changes());
                }
                leaving
            }
        };
        let options = &socket.options;
        if !leaving.is_host && !leaving.is_multicast && !options.broadcast {
            return Err(Error::PermissionDenied);
        }
        let segment = transmit.check(bytes.len(), leaving.ends.is_ipv6())?;
        if options.dont_fragment && !leaving.is_to_ourselves {
            let remote = leaving.ends.remote_ip();
            let packet = ip::header_len(remote) + HEADER_BYTES + segment;
            if packet > self.ip.path_mtu(remote).into() {
                return Err(Error::MessageTooLong);
            }
        }
        let departure = departure_of(options, &leaving, transmit);
        let loops = leaving.is_multicast && options.loops(leaving.ends.is_ipv6());
        let limit = options.send_bytes as usize;
        let pool = &mut self.shared.pool;
        let traffic_class = departure.fields.traffic_class;
        let pushed = match departure.fields.hop_limit {
            // It is for this host alone (RFC 1112 §6.1).
            Some(0) => Ok(()),
            _ => socket.outgoing.push(pool, limit, bytes, segment, departure),
        };
        match pushed {
            Ok(()) => {
                if !socket.is_ready {
                    self.udp.make_ready(id.index);
                }
                if loops {
                    self.loop_back(&leaving.ends, traffic_class, bytes, segment);
                }
                Ok(())
            }
            Err(Refusal::Full) => {
                socket.is_full = true;
                Err(Error::WouldBlock)
            }
            Err(Refusal::NoMemory) => {
                self.shared.counters.datagrams_without_page += 1;
                Err(Error::Limit("pages for datagrams"))
            }
        }
    }

    /// Reads the oldest datagram, or with [`UdpOptions::joined`] those of its sender and size that
    /// came right behind it, as many as there is room for. What there is no room for of a single
    /// one is lost.
    ///
    /// # Errors
    ///
    /// [`Error::WouldBlock`] if none waits: an event tells when one does; and the error of an
    /// earlier datagram that ICMP has reported, once.
    pub fn udp_receive(&mut self, id: UdpId, out: &mut [u8]) -> Result<Received, Error> {
        self.read_datagram(id, out, true)
    }

    /// Reads as [`Host::udp_receive`] does, and leaves what was read.
    ///
    /// # Errors
    ///
    /// As that.
    pub fn udp_peek(&mut self, id: UdpId, out: &mut [u8]) -> Result<Received, Error> {
        self.read_datagram(id, out, false)
    }

    fn read_datagram(&mut self, id: UdpId, out: &mut [u8], takes: bool) -> Result<Received, Error> {
        let socket = self.udp.sockets.named_mut(id).ok_or(NO_SUCH_SOCKET)?;
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        socket.read(&mut self.shared.pool, out, takes).ok_or(Error::WouldBlock)
    }

    /// The oldest ICMP error that was kept because of [`UdpOptions::report_errors`], and the
    /// destination of the datagram that it is about.
    pub fn udp_error(&mut self, id: UdpId) -> Option<(SocketAddr, Error)> {
        self.udp.sockets.named_mut(id)?.reported()
    }

    /// The error that the next call would fail with, once.
    pub fn udp_take_error(&mut self, id: UdpId) -> Option<Error> {
        self.udp.sockets.named_mut(id)?.take_error()
    }

    /// The calls that are possible now: an error makes all possible.
    pub fn udp_readiness(&self, id: UdpId) -> Readiness {
        let Some(socket) = self.udp.sockets.named(id) else { return Readiness::CLOSED };
        let mut ready = Readiness::EMPTY;
        if !socket.incoming.is_empty() || socket.has_error() {
            ready |= Readiness::READABLE;
        }
        if !socket.is_full || socket.has_error() {
            ready |= Readiness::WRITABLE;
        }
        ready
    }

    /// Our end. A connected socket has the address that it sends from.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the name is dead.
    pub fn udp_local_address(&self, id: UdpId) -> Result<SocketAddr, Error> {
        let socket = self.udp.sockets.named(id).ok_or(NO_SUCH_SOCKET)?;
        Ok(socket.connected.map_or(socket.local, |ends| ends.local()))
    }

    /// The remote end of a connected socket.
    ///
    /// # Errors
    ///
    /// [`Error::NotConnected`] if it is not.
    pub fn udp_peer_address(&self, id: UdpId) -> Result<SocketAddr, Error> {
        let socket = self.udp.sockets.named(id).ok_or(NO_SUCH_SOCKET)?;
        socket.connected.map(|ends| ends.remote()).ok_or(Error::NotConnected)
    }

    /// The options in force.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the name is dead.
    pub fn udp_options(&self, id: UdpId) -> Result<UdpOptions, Error> {
        self.udp.sockets.named(id).map(|socket| socket.options).ok_or(NO_SUCH_SOCKET)
    }

    /// Changes the options, but for [`UdpOptions::only_ipv6`], which stays as it was bound.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the name is dead, or no packet would leave by its hop limit.
    pub fn udp_set_options(&mut self, id: UdpId, options: UdpOptions) -> Result<(), Error> {
        if options.hop_limit == Some(0) {
            return Err(Error::InvalidInput("a hop limit of 0 lets no packet leave"));
        }
        let socket = self.udp.sockets.named_mut(id).ok_or(NO_SUCH_SOCKET)?;
        let only_ipv6 = socket.options.only_ipv6;
        socket.options = UdpOptions { only_ipv6, ..options };
        Ok(())
    }

    /// Datagrams that came for the socket and were dropped, since its queue was full or no page was
    /// free for them; none of a name that is dead.
    pub fn udp_dropped(&self, id: UdpId) -> u64 {
        self.udp.sockets.named(id).map_or(0, |socket| socket.dropped)
    }

    /// The largest datagram that goes to `destination` in one packet, in bytes of payload, as far
    /// as is known (RFC 1122 §3.4, GET_MAXSIZES).
    pub fn udp_payload_max(&self, destination: IpAddr) -> usize {
        let headers = ip::header_len(destination) + HEADER_BYTES;
        usize::from(self.ip.path_mtu(destination)).saturating_sub(headers)
    }

    /// Every UDP socket: our end, and the remote one of a connected socket.
    pub fn udp_sockets(&self) -> impl Iterator<Item = (SocketAddr, Option<SocketAddr>)> {
        let all = self.udp.sockets.iter();
        all.map(|socket| (socket.local, socket.connected.map(|ends| ends.remote())))
    }

    /// Closes a socket. What waits to be sent still is; what waits to be read is dropped.
    pub fn udp_close(&mut self, id: UdpId) {
        self.leave_all(id);
        let Some(socket) = self.udp.sockets.named_mut(id) else { return };
        socket.is_closed = true;
        socket.incoming.clear(&mut self.shared.pool);
        let has_more = !socket.outgoing.is_empty();
        self.udp.sockets.withdraw(id.index);
        if !has_more {
            self.udp.sockets.remove(id.index);
        }
    }

    /// Tells the shard that the socket in that slot has become ready.
    fn tell_of_udp(&mut self, index: u32, readiness: Readiness) {
        let id = self.udp.sockets.name(index);
        self.events.push_back(Event::Udp(id, readiness));
    }
}

/// What is known of a datagram that is to leave.
fn departure_of(options: &UdpOptions, leaving: &Leaving, transmit: &Transmit) -> Departure {
    let hop_limit = match leaving.is_multicast {
        true => Some(options.multicast_hop_limit),
        false => options.hop_limit,
    };
    let ecn = transmit.ecn.unwrap_or(options.traffic_class) & ECN;
    let traffic_class = options.traffic_class & !ECN | ecn;
    Departure {
        ends: leaving.ends,
        fields: IpFields { traffic_class, hop_limit },
        dont_fragment: options.dont_fragment,
    }
}

/// Where a datagram goes, and from where, if the last one went to the same host, and neither our
/// addresses nor routes have changed since.
fn ends_as_before(socket: &Socket, ip: &Ip, transmit: &Transmit) -> Option<Leaving> {
    let (recent, changes) = &socket.recent;
    let (to, port) = match (transmit.to, &socket.connected) {
        (Some(to), _) => (to.ip(), to.port()),
        (None, ends) => ends.map(|ends| (ends.remote_ip(), ends.remote_port()))?,
    };
    let is_alike = *changes == ip.address_changes()
        && recent.remote_ip() == to
        && recent.local_port() == socket.local.port()
        && transmit.from.is_none()
        && port != 0;
    let local = (recent.local_ip(), recent.local_port());
    is_alike.then(|| Leaving::to_another(Tuple::new(local, (to, port))))
}

/// Where a datagram goes, and from where.
fn ends_of(socket: &Socket, ip: &Ip, now: Instant, transmit: &Transmit) -> Result<Leaving, Error> {
    let to = match (transmit.to, &socket.connected) {
        (Some(to), _) => to,
        (None, Some(ends)) => ends.remote(),
        (None, None) => return Err(Error::NotConnected),
    };
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    if to.port() == 0 || !socket.speaks(to.is_ipv4()) {
        return Err(Error::InvalidInput("no datagram goes from this socket to that address"));
    }
    let local = socket.local;
    let of_socket = match socket.connected {
        Some(ends) if ends.remote_ip() == to.ip() => Some(ends.local_ip()),
        _ => {
            let is_of_many = |it| matches!(ip.class(it), Class::Broadcast | Class::Multicast);
            Some(local.ip()).filter(|it| !it.is_unspecified() && !is_of_many(*it))
        }
    };
    let from = match transmit.from.map(|it| it.to_canonical()).or(of_socket) {
        Some(from) => from,
        None => ip.steady_source_for(to.ip()).ok_or(Error::NetworkUnreachable)?,
    };
    if from.is_ipv4() != to.is_ipv4() {
        return Err(Error::InvalidInput("the two addresses are of different IP versions"));
    }
    let ends = Tuple::new((from, local.port()), (to.ip(), to.port()));
    if ip.is_plain_route(now, &ends) {
        return Ok(Leaving::to_another(ends));
    }
    if !ip.takes(from) {
        return Err(Error::AddressNotAvailable);
    }
    let class = ip.class(to.ip());
    if !ip.has_way(to.ip()) {
        return Err(Error::NetworkUnreachable);
    }
    Ok(Leaving {
        ends,
        is_host: matches!(class, Class::Ours | Class::Other),
        is_multicast: class == Class::Multicast,
        is_to_ourselves: class == Class::Ours,
    })
}
