//! Many datagrams a call, with what their packets say: for QUIC, DNS servers and the like.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use lightwait_core::Readiness;
use lightwait_core::udp::{Received, Transmit};

use super::UdpSocket;
use crate::error::io_error;
use crate::net::waiting::pending_if_it_would_block;

impl UdpSocket {
    /// Sends `bytes` as `transmit` says, as one datagram or several of one size, once there is
    /// room. The device cuts them where it can.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::send_to`]; `InvalidInput` if they are more than
    /// [`SEGMENTS_MAX`](crate::net::SEGMENTS_MAX).
    pub async fn transmit(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        self.waiting(Readiness::WRITABLE).call(|| self.try_transmit(transmit, bytes)).await
    }

    /// [`UdpSocket::transmit`] for callers that poll by hand. Of the tasks that poll for sending
    /// the last one waits.
    pub fn poll_transmit(
        &self,
        context: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        pending_if_it_would_block(self.crossing().send(transmit, bytes, Some(context)))
    }

    /// Sends at once, or fails with `WouldBlock` if there is no room.
    pub fn try_transmit(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        self.crossing().send(transmit, bytes, None)
    }

    /// Waits for datagrams, and reads as many as have come and as there are buffers for. Returns
    /// how many buffers were filled; `received` says of each where it came from, where to, with
    /// which ECN bits, when, and where to cut what was joined ([`UdpSocket::set_joined`]).
    pub async fn receive_many(
        &self,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> io::Result<usize> {
        let waiting = self.waiting(Readiness::READABLE);
        waiting.call(|| self.try_receive_many(out, received)).await
    }

    /// [`UdpSocket::receive_many`] for callers that poll by hand. Of the tasks that poll for
    /// reading the last one waits.
    pub fn poll_receive_many(
        &self,
        context: &mut Context<'_>,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> Poll<io::Result<usize>> {
        pending_if_it_would_block(self.read_many(out, received, Some(context)))
    }

    /// Reads the datagrams that have come, or fails with `WouldBlock`.
    pub fn try_receive_many(
        &self,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
    ) -> io::Result<usize> {
        self.read_many(out, received, None)
    }

    fn read_many(
        &self,
        out: &mut [IoSliceMut<'_>],
        received: &mut [Option<Received>],
        context: Option<&Context<'_>>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (out, received) in out.iter_mut().zip(received) {
            match self.read(out, true, context.filter(|_| count == 0)) {
                Ok(read) => *received = Some(read),
                // What was read counts; the next call reports an error.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => break,
                Err(error) => return Err(error),
            }
            count += 1;
        }
        Ok(count)
    }

    /// The oldest ICMP error that was kept ([`UdpSocket::set_report_errors`]), and the destination
    /// of the datagram that it is about.
    pub fn take_reported(&self) -> Option<(SocketAddr, io::Error)> {
        self.crossing().take_reported().map(|(to, error)| (to, io_error(error)))
    }
}
