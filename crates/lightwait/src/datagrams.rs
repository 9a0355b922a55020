//! The surface of tokio's UDP socket, for both kinds of ours: its calls, and a method to read and
//! one to set each option.

use std::io;

use lightwait_core::Error;

use crate::error::io_error;

/// The calls of the `UdpSocket` in scope, by its `transmit` and `receive`, and what tries them and
/// polls for them.
macro_rules! datagram_calls {
    () => {
        impl UdpSocket {
            // ---- sending

            /// Sends a datagram to the remote end of a connected socket, once there is room for it.
            ///
            /// # Errors
            ///
            /// `NotConnected` if it is not; `EMSGSIZE` if the datagram is too long;
            /// `ConnectionRefused` if the remote end's host has said so of an earlier one.
            pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.transmit(&Transmit::default(), bytes).await.map(|()| bytes.len())
            }

            /// [`UdpSocket::send`] for callers that poll by hand.
            pub fn poll_send(
                &self,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_transmit(context, &Transmit::default(), bytes).map_ok(|()| bytes.len())
            }

            /// Sends at once, or fails with `WouldBlock` if there is no room.
            pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.try_transmit(&Transmit::default(), bytes).map(|()| bytes.len())
            }

            /// Sends a datagram to the first of these addresses, once there is room for it.
            ///
            /// # Errors
            ///
            /// `PermissionDenied` if that is a broadcast ([`UdpSocket::set_broadcast`]),
            /// `NetworkUnreachable` if no address of the stack leads there; else those of
            /// [`UdpSocket::send`].
            pub async fn send_to<A: ToSocketAddrs>(
                &self,
                bytes: &[u8],
                address: A,
            ) -> io::Result<usize> {
                let to = self.addresses_of(&address).await?.next().ok_or_else(no_address)?;
                self.transmit(&Transmit::to(to), bytes).await.map(|()| bytes.len())
            }

            /// [`UdpSocket::send_to`] for callers that poll by hand.
            pub fn poll_send_to(
                &self,
                context: &mut Context<'_>,
                bytes: &[u8],
                to: SocketAddr,
            ) -> Poll<io::Result<usize>> {
                self.poll_transmit(context, &Transmit::to(to), bytes).map_ok(|()| bytes.len())
            }

            /// Sends at once, or fails with `WouldBlock` if there is no room.
            pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
                self.try_transmit(&Transmit::to(to), bytes).map(|()| bytes.len())
            }

            // ---- receiving

            /// Waits for a datagram and returns its length. What there is no room for is lost.
            pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
                self.receive(out, true).await.map(|received| received.len)
            }

            /// [`UdpSocket::recv`] for callers that poll by hand.
            pub fn poll_recv(
                &self,
                context: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.poll_into(context, out, true).map_ok(|_| ())
            }

            /// Takes a datagram that has come, or fails with `WouldBlock`.
            pub fn try_recv(&self, out: &mut [u8]) -> io::Result<usize> {
                self.try_read(out, true).map(|received| received.len)
            }

            /// Waits for a datagram and returns its length and its sender.
            pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.receive(out, true).await.map(|received| (received.len, received.from))
            }

            /// [`UdpSocket::recv_from`] for callers that poll by hand.
            pub fn poll_recv_from(
                &self,
                context: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<SocketAddr>> {
                self.poll_into(context, out, true).map_ok(|received| received.from)
            }

            /// Takes a datagram that has come, or fails with `WouldBlock`.
            pub fn try_recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.try_read(out, true).map(|received| (received.len, received.from))
            }

            /// Waits for a datagram and appends it to `out`, as far as that has room.
            pub async fn recv_buf<B: BufMut>(&self, out: &mut B) -> io::Result<usize> {
                self.recv_buf_from(out).await.map(|(len, _)| len)
            }

            /// Appends a datagram that has come to `out`, or fails with `WouldBlock`.
            pub fn try_recv_buf<B: BufMut>(&self, out: &mut B) -> io::Result<usize> {
                self.try_recv_buf_from(out).map(|(len, _)| len)
            }

            /// Waits for a datagram, appends it to `out`, as far as that has room, and returns its
            /// sender.
            pub async fn recv_buf_from<B: BufMut>(
                &self,
                out: &mut B,
            ) -> io::Result<(usize, SocketAddr)> {
                loop {
                    self.readable().await?;
                    match self.try_recv_buf_from(out) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        result => return result,
                    }
                }
            }

            /// Appends a datagram that has come to `out`, or fails with `WouldBlock`.
            pub fn try_recv_buf_from<B: BufMut>(
                &self,
                out: &mut B,
            ) -> io::Result<(usize, SocketAddr)> {
                self.try_read_buf(out).map(|received| (received.len, received.from))
            }

            // ---- peeking

            /// Waits for a datagram and copies it, but leaves it to be read.
            pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
                self.receive(out, false).await.map(|received| received.len)
            }

            /// [`UdpSocket::peek`] for callers that poll by hand.
            pub fn poll_peek(
                &self,
                context: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.poll_into(context, out, false).map_ok(|_| ())
            }

            /// Copies a datagram that has come, or fails with `WouldBlock`.
            pub fn try_peek(&self, out: &mut [u8]) -> io::Result<usize> {
                self.try_read(out, false).map(|received| received.len)
            }

            /// Waits for a datagram and copies it, but leaves it to be read; returns its sender as
            /// well.
            pub async fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.receive(out, false).await.map(|received| (received.len, received.from))
            }

            /// [`UdpSocket::peek_from`] for callers that poll by hand.
            pub fn poll_peek_from(
                &self,
                context: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<SocketAddr>> {
                self.poll_into(context, out, false).map_ok(|received| received.from)
            }

            /// Copies a datagram that has come, or fails with `WouldBlock`.
            pub fn try_peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.try_read(out, false).map(|received| (received.len, received.from))
            }

            /// Waits for a datagram and returns its sender.
            pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
                self.peek_from(&mut []).await.map(|(_, from)| from)
            }

            /// [`UdpSocket::peek_sender`] for callers that poll by hand.
            pub fn poll_peek_sender(
                &self,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<SocketAddr>> {
                self.poll_read(context, &mut [], false).map_ok(|received| received.from)
            }

            /// The sender of a datagram that has come, or `WouldBlock`.
            pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
                self.try_peek_from(&mut []).map(|(_, from)| from)
            }

            fn poll_into(
                &self,
                context: &Context<'_>,
                out: &mut ReadBuf<'_>,
                takes: bool,
            ) -> Poll<io::Result<Received>> {
                let read = self.poll_read(context, out.initialize_unfilled(), takes);
                if let Poll::Ready(Ok(received)) = &read {
                    out.advance(received.len);
                }
                read
            }
        }
    };
}

pub(crate) use datagram_calls;

/// The options and groups of the `UdpSocket` in scope, by its `options`, `set_options`, `join`,
/// `leave` and `has_address`.
macro_rules! datagram_options {
    () => {
        impl UdpSocket {
            fn change(&self, change: impl FnOnce(&mut UdpOptions)) -> io::Result<()> {
                let mut options = self.options()?;
                change(&mut options);
                self.set_options(options)
            }

            /// True if it may send to broadcast addresses.
            pub fn broadcast(&self) -> io::Result<bool> {
                self.options().map(|options| options.broadcast)
            }

            /// Lets it send to broadcast addresses, or not.
            pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.broadcast = on)
            }

            /// True if a socket of `[::]` hears IPv6 alone.
            pub fn only_v6(&self) -> io::Result<bool> {
                self.options().map(|options| options.only_ipv6)
            }

            /// TTL, or hop limit, of its packets.
            pub fn ttl(&self) -> io::Result<u32> {
                let of_host = self.default_hop_limit();
                self.options().map(|options| options.hop_limit.unwrap_or(of_host).into())
            }

            /// Sets the TTL, or hop limit, of its packets.
            ///
            /// # Errors
            ///
            /// `InvalidInput` unless it is 1 to 255.
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                let hop_limit = Some(hop_limit(ttl)?);
                self.change(|options| options.hop_limit = hop_limit)
            }

            /// TTL of its packets to groups.
            pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
                self.options().map(|options| options.multicast_hop_limit.into())
            }

            /// Sets the TTL, or hop limit, of its packets to groups. With 0 none leaves.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is more than 255.
            pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
                let ttl = octet(ttl)?;
                self.change(|options| options.multicast_hop_limit = ttl)
            }

            /// True if this stack's socket that has joined an IPv4 group hears what this one sends
            /// there.
            pub fn multicast_loop_v4(&self) -> io::Result<bool> {
                self.options().map(|options| options.multicast_loop_v4)
            }

            /// Lets this stack's socket that has joined an IPv4 group hear what this one sends
            /// there, or not.
            pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.multicast_loop_v4 = on)
            }

            /// [`UdpSocket::multicast_loop_v4`], of IPv6.
            pub fn multicast_loop_v6(&self) -> io::Result<bool> {
                self.options().map(|options| options.multicast_loop_v6)
            }

            /// [`UdpSocket::set_multicast_loop_v4`], of IPv6.
            pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.multicast_loop_v6 = on)
            }

            /// Hears what is sent to that group and to the socket's port from now on, and tells the
            /// link's routers and switches (IGMPv3). Unlike with a socket of Linux, what another
            /// socket has joined is not heard. `interface` is unspecified or an address of the
            /// stack's: it has one interface.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is no group that the socket could hear; `AddrInUse` if it has
            /// joined it; `AddrNotAvailable` if the interface is none of ours; `QuotaExceeded`
            /// beyond 20 groups of a socket, or 256 of a stack.
            pub fn join_multicast_v4(
                &self,
                group: std::net::Ipv4Addr,
                interface: std::net::Ipv4Addr,
            ) -> io::Result<()> {
                self.check_interface(interface)?;
                self.join(group.into())
            }

            /// Hears what is sent to that group and to the socket's port from now on, and tells the
            /// link's routers and switches (MLDv2). A stack has one interface: `interface` is 0.
            ///
            /// # Errors
            ///
            /// Those of [`UdpSocket::join_multicast_v4`].
            pub fn join_multicast_v6(
                &self,
                group: &std::net::Ipv6Addr,
                interface: u32,
            ) -> io::Result<()> {
                check_interface_index(interface)?;
                self.join((*group).into())
            }

            /// Hears that group no more.
            ///
            /// # Errors
            ///
            /// `AddrNotAvailable` if it has not joined it, or the interface is none of ours.
            pub fn leave_multicast_v4(
                &self,
                group: std::net::Ipv4Addr,
                interface: std::net::Ipv4Addr,
            ) -> io::Result<()> {
                self.check_interface(interface)?;
                self.leave(group.into())
            }

            /// Hears that group no more.
            ///
            /// # Errors
            ///
            /// Those of [`UdpSocket::leave_multicast_v4`].
            pub fn leave_multicast_v6(
                &self,
                group: &std::net::Ipv6Addr,
                interface: u32,
            ) -> io::Result<()> {
                check_interface_index(interface)?;
                self.leave((*group).into())
            }

            fn check_interface(&self, interface: std::net::Ipv4Addr) -> io::Result<()> {
                match interface.is_unspecified() || self.has_address(interface.into()) {
                    true => Ok(()),
                    false => Err(io_error(lightwait_core::Error::AddressNotAvailable)),
                }
            }

            /// DSCP and ECN bits of its packets over IPv4.
            pub fn tos_v4(&self) -> io::Result<u32> {
                self.options().map(|options| options.traffic_class.into())
            }

            /// Sets the DSCP and ECN bits of its packets.
            /// [`Transmit::ecn`](lightwait_core::udp::Transmit) gives a datagram others.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is more than 255.
            pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
                let class = octet(tos)?;
                self.change(|options| options.traffic_class = class)
            }

            /// Traffic class of its packets over IPv6: the same as [`UdpSocket::tos_v4`].
            pub fn tclass_v6(&self) -> io::Result<u32> {
                self.tos_v4()
            }

            /// Sets the traffic class of its packets, of either version.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is more than 255.
            pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
                self.set_tos_v4(tclass)
            }

            /// True if no datagram may be cut into fragments.
            pub fn dont_fragment(&self) -> io::Result<bool> {
                self.options().map(|options| options.dont_fragment)
            }

            /// Refuses datagrams that are too long for their path with `EMSGSIZE`, instead of
            /// cutting them into fragments.
            pub fn set_dont_fragment(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.dont_fragment = on)
            }

            /// Reads datagrams of one sender and size together, or not.
            pub fn set_joined(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.joined = on)
            }

            /// Keeps every ICMP error about what it has sent, with the destination of each, for
            /// [`UdpSocket::take_reported`].
            pub fn set_report_errors(&self, on: bool) -> io::Result<()> {
                self.change(|options| options.report_errors = on)
            }

            /// Bytes of datagrams that wait to be read, at most.
            pub fn recv_buffer_size(&self) -> io::Result<usize> {
                self.options().map(|options| options.receive_bytes as usize)
            }

            /// Sets it. Each datagram counts for 128 bytes besides its own.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
                self.change(|options| options.receive_bytes = bytes.min(u32::MAX as usize) as u32)
            }

            /// Bytes of datagrams that wait to be sent, at most.
            pub fn send_buffer_size(&self) -> io::Result<usize> {
                self.options().map(|options| options.send_bytes as usize)
            }

            /// Sets it. Each datagram counts for 128 bytes besides its own.
            pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
                self.change(|options| options.send_bytes = bytes.min(u32::MAX as usize) as u32)
            }
        }
    };
}

pub(crate) use datagram_options;

/// Fails unless it is the number of the one interface: 0, which stands for any.
pub(crate) fn check_interface_index(interface: u32) -> io::Result<()> {
    match interface {
        0 => Ok(()),
        _ => Err(io_error(Error::AddressNotAvailable)),
    }
}

/// A field of eight bits.
pub(crate) fn octet(value: u32) -> io::Result<u8> {
    let text = "the value is 0 to 255";
    u8::try_from(value).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, text))
}
