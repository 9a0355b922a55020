//! The options of a connection, with a method to read and a method to set each.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use lightwait_core::Host;
use lightwait_core::config::Algorithm;
use lightwait_core::tcp::SocketOptions;

use super::TcpStream;
use crate::local::io_error;

impl TcpStream {
    /// Every option.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.local.host().options(self.id).map_err(io_error)
    }

    /// Sets every option.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.call(|host, now, id| host.set_options(now, id, options)).map_err(io_error)
    }

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

    /// Bounds the rate of what is sent, in bytes of data a second, and paces: what leaves at once
    /// is what the rate carries in a millisecond, but two segments at least.
    pub fn set_max_pacing_rate(&self, max_pacing_rate: Option<NonZeroU64>) -> io::Result<()> {
        self.set_options(SocketOptions { max_pacing_rate, ..self.options()? })
    }

    /// True if what is sent is spread over the round trip, whatever the congestion control.
    pub fn pacing(&self) -> io::Result<bool> {
        Ok(self.options()?.pacing)
    }

    /// Spreads what is sent over the round trip, whatever the congestion control, or not. BBR is
    /// paced in any case.
    pub fn set_pacing(&self, pacing: bool) -> io::Result<()> {
        self.set_options(SocketOptions { pacing, ..self.options()? })
    }

    /// Treatment of unsent data at close.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.options()?.linger)
    }

    /// Sets the treatment of data that is unsent when the stream is dropped. `None` sends it in the
    /// background. Zero drops it and resets the connection. Any other time sends it for at most
    /// that long.
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
        Ok(hop_limit.unwrap_or_else(|| self.local.host().config().hop_limit).into())
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

    /// True if the next segment is acknowledged at once.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.info()?.quick_acks > 0)
    }

    /// Acknowledges the next segments at once, as many as the host's `ack.quick`, or delays ACKs
    /// from now on.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.call(|host: &mut Host, now, id| host.set_quick_ack(now, id, quickack))
            .map_err(io_error)
    }
}

/// Converts a TTL to a hop limit.
pub(in crate::local) fn hop_limit(ttl: u32) -> io::Result<u8> {
    match u8::try_from(ttl) {
        Ok(hop_limit @ 1..) => Ok(hop_limit),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a TTL is 1 to 255")),
    }
}
