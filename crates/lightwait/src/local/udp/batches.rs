//! Many datagrams a call, with what their packets say: for QUIC, DNS servers and the like.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use lightwait_core::Error;
use lightwait_core::udp::{Received, Transmit};

use super::UdpSocket;
use crate::error::io_error;

impl UdpSocket {
    /// Sends `bytes` as `transmit` says, as one datagram or several of one size, once there is
    /// room. The device cuts them where it can.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::send_to`]; `InvalidInput` if they are more than
    /// [`SEGMENTS_MAX`](crate::local::SEGMENTS_MAX).
    pub async fn transmit(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        poll_fn(|context| self.poll_transmit(context, transmit, bytes)).await
    }

    /// [`UdpSocket::transmit`] for callers that poll by hand.
    pub fn poll_transmit(
        &self,
        context: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        match self.try_transmit(transmit, bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_writable(context);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Sends at once, or fails with `WouldBlock` if there is no room.
    pub fn try_transmit(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        self.send_now(transmit, bytes).map_err(io_error)
    }

    /// Waits for datagrams, and reads as many as have come and as there are buffers for. Returns
    /// how many buffers were filled; `received` says of each where it came from, where to, with
    /// which ECN bits, when, and where to cut what was joined ([`UdpSocket::set_joined`]).
    pub async fn receive_many(
        &self,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> io::Result<usize> {
        poll_fn(|context| self.poll_receive_many(context, out, received)).await
    }

    /// [`UdpSocket::receive_many`] for callers that poll by hand.
    pub fn poll_receive_many(
        &self,
        context: &mut Context<'_>,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> Poll<io::Result<usize>> {
        match self.try_receive_many(out, received) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_readable(context);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Reads the datagrams that have come, or fails with `WouldBlock`.
    pub fn try_receive_many(
        &self,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> io::Result<usize> {
        let mut count = 0;
        for (out, received) in out.iter_mut().zip(received) {
            match self.read(out, true) {
                Ok(read) => *received = Some(read),
                // An error comes before any datagram, so that none is read in vain.
                Err(Error::WouldBlock) if count > 0 => break,
                Err(error) => return Err(io_error(error)),
            }
            count += 1;
        }
        Ok(count)
    }

    /// The oldest ICMP error that was kept ([`UdpSocket::set_report_errors`]), and the destination
    /// of the datagram that it is about.
    pub fn take_reported(&self) -> Option<(SocketAddr, io::Error)> {
        self.reported().map(|(to, error)| (to, io_error(error)))
    }
}
