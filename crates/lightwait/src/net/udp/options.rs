//! The options of a UDP socket. The application's end keeps them; the stack learns of them between
//! what was sent before and what is sent later.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lightwait_core::Error;
use lightwait_core::udp::UdpOptions;

use super::UdpSocket;
use crate::datagrams::{check_interface_index, datagram_options, octet};
use crate::error::io_error;
use crate::local;
use crate::net::StackHandle;
use crate::options::hop_limit;

datagram_options!();

impl UdpSocket {
    /// A socket of that stack, with options that hold from the first datagram on:
    /// [`UdpOptions::only_ipv6`] can be said here alone.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind_on`].
    pub async fn bind_with_options(
        stack: &StackHandle,
        address: SocketAddr,
        options: UdpOptions,
    ) -> io::Result<UdpSocket> {
        UdpSocket::bind_with(stack, address, Some(options)).await
    }

    /// Every option.
    pub fn options(&self) -> io::Result<UdpOptions> {
        Ok(self.crossing().options())
    }

    /// Sets every option but [`UdpOptions::only_ipv6`], which stays.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if no packet would leave by its hop limit; `ConnectionAborted` if the stack
    /// has ended.
    pub fn set_options(&self, options: UdpOptions) -> io::Result<()> {
        if options.hop_limit == Some(0) {
            return Err(io_error(Error::InvalidInput("a hop limit of 0 lets no packet leave")));
        }
        self.crossing().set_options(options)
    }

    /// What only the stack finds out, that it has no room for a group, is the error of the next
    /// call that sends.
    fn join(&self, group: IpAddr) -> io::Result<()> {
        self.crossing().join(group)
    }

    fn leave(&self, group: IpAddr) -> io::Result<()> {
        self.crossing().leave(group)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.stack.defaults().addresses.contains(&address)
    }

    /// The host's hop limit.
    fn default_hop_limit(&self) -> u8 {
        self.stack.defaults().hop_limit
    }

    /// The largest datagram that goes to `destination` in one packet, in bytes, as far as is known.
    ///
    /// # Errors
    ///
    /// `ConnectionAborted` if the stack has ended.
    pub async fn payload_max(&self, destination: IpAddr) -> io::Result<usize> {
        self.ask(move |socket| socket.payload_max(destination)).await
    }

    /// Datagrams that came for it and were dropped for want of room.
    ///
    /// # Errors
    ///
    /// `ConnectionAborted` if the stack has ended.
    pub async fn dropped(&self) -> io::Result<u64> {
        self.ask(local::UdpSocket::dropped).await
    }

    /// The error that the next call would fail with, once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.crossing().take_error())
    }
}
