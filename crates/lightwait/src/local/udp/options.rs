//! The options of a UDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lightwait_core::Error;
use lightwait_core::udp::UdpOptions;

use super::UdpSocket;
use crate::datagrams::{check_interface_index, datagram_options, octet};
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
        Ok(self.error().map(io_error))
    }

    fn join(&self, group: IpAddr) -> io::Result<()> {
        self.join_group(group).map_err(io_error)
    }

    pub(crate) fn join_group(&self, group: IpAddr) -> Result<(), Error> {
        self.local.host_mut().udp_join(self.id, group)?;
        self.local.touch();
        Ok(())
    }

    pub(crate) fn leave(&self, group: IpAddr) -> io::Result<()> {
        self.local.host_mut().udp_leave(self.id, group).map_err(io_error)?;
        self.local.touch();
        Ok(())
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.local.host().addresses().contains(&address)
    }

    /// The host's hop limit.
    fn default_hop_limit(&self) -> u8 {
        self.local.host().config().hop_limit
    }
}

datagram_options!();
