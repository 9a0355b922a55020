//! The options of a UDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lightwait_core::udp::UdpOptions;

use super::UdpSocket;
use crate::error::io_error;
use crate::options::hop_limit;
use crate::shard::Handle;
use crate::shard::state::Local;

impl UdpSocket {
    /// A socket of the shard of that handle, with options that hold from the first datagram on:
    /// [`UdpOptions::only_ipv6`] can be said here alone.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind`].
    pub fn bind_with_options(
        handle: &Handle,
        address: SocketAddr,
        options: UdpOptions,
    ) -> io::Result<UdpSocket> {
        UdpSocket::bind_with(&handle.local, address, options)
    }

    pub(super) fn bind_with(
        shard: &Rc<Local>,
        address: SocketAddr,
        options: UdpOptions,
    ) -> io::Result<UdpSocket> {
        let id = shard.host_mut().udp_bind(address, options).map_err(io_error)?;
        Ok(UdpSocket { local: shard.clone(), id })
    }

    /// Every option.
    pub fn options(&self) -> io::Result<UdpOptions> {
        self.local.host().udp_options(self.id).map_err(io_error)
    }

    /// Sets every option but [`UdpOptions::only_ipv6`], which stays.
    pub fn set_options(&self, options: UdpOptions) -> io::Result<()> {
        self.local.host_mut().udp_set_options(self.id, options).map_err(io_error)
    }

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
        let of_host = self.local.host().config().hop_limit;
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

    /// DSCP and ECN bits of its packets over IPv4.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.options().map(|options| options.traffic_class.into())
    }

    /// Sets the DSCP and ECN bits of its packets. [`Transmit::ecn`](lightwait_core::udp::Transmit)
    /// gives a datagram others.
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

    /// Refuses datagrams that are too long for their path with `EMSGSIZE`, instead of cutting them
    /// into fragments.
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

    /// The largest datagram that goes to `destination` in one packet, in bytes, as far as is known.
    pub fn payload_max(&self, destination: IpAddr) -> usize {
        self.local.host().udp_payload_max(destination)
    }

    /// Datagrams that came for it and were dropped for want of room.
    pub fn dropped(&self) -> u64 {
        self.local.host().udp_dropped(self.id)
    }

    /// The error that the next call would fail with, once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.local.host_mut().udp_take_error(self.id).map(io_error))
    }
}

/// A field of eight bits.
fn octet(value: u32) -> io::Result<u8> {
    let text = "the value is 0 to 255";
    u8::try_from(value).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, text))
}
