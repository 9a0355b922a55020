//! Options of sockets, a method to read and a method to set each, for both kinds of sockets.

use std::io;

/// The options of the `TcpStream` in scope.
macro_rules! stream_options {
    () => {
        impl TcpStream {
            /// True if small segments are sent at once (Nagle's algorithm off).
            pub fn nodelay(&self) -> io::Result<bool> {
                Ok(self.options()?.nodelay)
            }

            /// Sends small segments at once, or not.
            pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
                self.set_options(SocketOptions { nodelay, ..self.options()? })
            }

            /// The congestion control.
            pub fn congestion(&self) -> io::Result<Algorithm> {
                Ok(self.options()?.congestion)
            }

            /// Sets the congestion control. The window stays as it is.
            pub fn set_congestion(&self, congestion: Algorithm) -> io::Result<()> {
                self.set_options(SocketOptions { congestion, ..self.options()? })
            }

            /// The rate of what is sent, at most, in bytes of data a second; `None`: no bound.
            pub fn max_pacing_rate(&self) -> io::Result<Option<NonZeroU64>> {
                Ok(self.options()?.max_pacing_rate)
            }

            /// Bounds the rate of what is sent, in bytes of data a second, and paces: what leaves
            /// at once is what the rate carries in a millisecond, but two segments at least.
            pub fn set_max_pacing_rate(
                &self,
                max_pacing_rate: Option<NonZeroU64>,
            ) -> io::Result<()> {
                self.set_options(SocketOptions { max_pacing_rate, ..self.options()? })
            }

            /// True if what is sent is spread over the round trip, whatever the congestion control.
            pub fn pacing(&self) -> io::Result<bool> {
                Ok(self.options()?.pacing)
            }

            /// Spreads what is sent over the round trip, whatever the congestion control, or not.
            /// BBR is paced in any case.
            pub fn set_pacing(&self, pacing: bool) -> io::Result<()> {
                self.set_options(SocketOptions { pacing, ..self.options()? })
            }

            /// Treatment of unsent data at close.
            pub fn linger(&self) -> io::Result<Option<Duration>> {
                Ok(self.options()?.linger)
            }

            /// Sets the treatment of data that is unsent when the stream is dropped. `None` sends
            /// it in the background. Zero drops it and resets the connection. Any other time sends
            /// it for at most that long.
            pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
                self.set_options(SocketOptions { linger, ..self.options()? })
            }

            /// Makes dropping the stream reset the connection: unsent data is dropped.
            pub fn set_zero_linger(&self) -> io::Result<()> {
                self.set_linger(Some(Duration::ZERO))
            }

            /// TTL, or hop limit, of the connection's packets.
            pub fn ttl(&self) -> io::Result<u32> {
                let hop_limit = self.options()?.hop_limit;
                Ok(hop_limit.unwrap_or_else(|| self.default_hop_limit()).into())
            }

            /// Sets the TTL, or hop limit, of the connection's packets.
            ///
            /// # Errors
            ///
            /// `InvalidInput` unless it is 1 to 255.
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                let hop_limit = Some(hop_limit(ttl)?);
                self.set_options(SocketOptions { hop_limit, ..self.options()? })
            }
        }
    };
}

/// The options of the `TcpSocket` in scope.
macro_rules! socket_options {
    () => {
        impl TcpSocket {
            /// True if an idle connection is probed.
            pub fn keepalive(&self) -> io::Result<bool> {
                Ok(self.options().keepalive.is_some())
            }

            /// Probes an idle connection at the host's times ([`Keepalive::by_default`]), or never.
            pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
                let probes = self.default_keepalive();
                self.change(|options| options.keepalive = keepalive.then_some(probes))
            }

            /// Bytes of the send buffer, at most.
            pub fn send_buffer_size(&self) -> io::Result<u32> {
                Ok(self.options().send_buffer_bytes)
            }

            /// Sets the size of the send buffer, in bytes.
            pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
                self.change(|options| options.send_buffer_bytes = size)
            }

            /// Bytes of the receive window: the fixed size, or the largest size that the host grows
            /// it to.
            pub fn recv_buffer_size(&self) -> io::Result<u32> {
                Ok(self
                    .options()
                    .receive_buffer_bytes
                    .unwrap_or_else(|| self.default_receive_max()))
            }

            /// Fixes the receive window, in bytes.
            pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
                self.change(|options| options.receive_buffer_bytes = Some(size))
            }

            /// Treatment of unsent data at close.
            pub fn linger(&self) -> io::Result<Option<Duration>> {
                Ok(self.options().linger)
            }

            /// [`TcpStream::set_linger`] of the connection to be.
            pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
                self.change(|options| options.linger = linger)
            }

            /// [`TcpStream::set_zero_linger`] of the connection to be.
            pub fn set_zero_linger(&self) -> io::Result<()> {
                self.set_linger(Some(Duration::ZERO))
            }

            /// True if small segments are sent at once.
            pub fn nodelay(&self) -> io::Result<bool> {
                Ok(self.options().nodelay)
            }

            /// Sends small segments at once, or not.
            pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
                self.change(|options| options.nodelay = nodelay)
            }

            /// The congestion control of the connection to be.
            pub fn congestion(&self) -> io::Result<Algorithm> {
                Ok(self.options().congestion)
            }

            /// Sets the congestion control of the connection to be.
            pub fn set_congestion(&self, congestion: Algorithm) -> io::Result<()> {
                self.change(|options| options.congestion = congestion)
            }

            /// The rate of what the connection to be sends, at most, in bytes of data a second.
            pub fn max_pacing_rate(&self) -> io::Result<Option<NonZeroU64>> {
                Ok(self.options().max_pacing_rate)
            }

            /// Bounds the rate of what the connection to be sends, in bytes of data a second, and
            /// paces it.
            pub fn set_max_pacing_rate(
                &self,
                max_pacing_rate: Option<NonZeroU64>,
            ) -> io::Result<()> {
                self.change(|options| options.max_pacing_rate = max_pacing_rate)
            }

            /// True if what the connection to be sends is spread over the round trip, whatever its
            /// congestion control.
            pub fn pacing(&self) -> io::Result<bool> {
                Ok(self.options().pacing)
            }

            /// Spreads what the connection to be sends over the round trip, or not. BBR is paced in
            /// any case.
            pub fn set_pacing(&self, pacing: bool) -> io::Result<()> {
                self.change(|options| options.pacing = pacing)
            }

            /// DSCP and ECN bits of an IPv4 socket's packets.
            pub fn tos_v4(&self) -> io::Result<u32> {
                self.traffic_class(false)
            }

            /// Sets the DSCP of an IPv4 socket's packets; the two ECN bits are TCP's own.
            pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
                self.set_traffic_class(false, tos)
            }

            /// Traffic class of an IPv6 socket's packets.
            pub fn tclass_v6(&self) -> io::Result<u32> {
                self.traffic_class(true)
            }

            /// Sets the traffic class of an IPv6 socket's packets; the two ECN bits are TCP's own.
            pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
                self.set_traffic_class(true, tclass)
            }

            fn traffic_class(&self, is_ipv6: bool) -> io::Result<u32> {
                if is_ipv6 != self.is_ipv6 {
                    return Err(invalid("the socket is of the other IP version"));
                }
                Ok(self.options().traffic_class.into())
            }

            fn set_traffic_class(&self, is_ipv6: bool, class: u32) -> io::Result<()> {
                self.traffic_class(is_ipv6)?;
                let class =
                    u8::try_from(class).map_err(|_| invalid("a traffic class is 0 to 255"))?;
                self.change(|options| options.traffic_class = class)
            }

            fn check_version(&self, address: SocketAddr) -> io::Result<()> {
                if address.is_ipv6() != self.is_ipv6 {
                    return Err(invalid("the address is not of the socket's IP version"));
                }
                Ok(())
            }
        }
    };
}

pub(crate) use {socket_options, stream_options};

/// Converts a TTL to a hop limit.
pub(crate) fn hop_limit(ttl: u32) -> io::Result<u8> {
    match u8::try_from(ttl) {
        Ok(hop_limit @ 1..) => Ok(hop_limit),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a TTL is 1 to 255")),
    }
}

/// The error of a value that no option has.
pub(crate) fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
