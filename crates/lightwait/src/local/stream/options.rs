//! The options of a connection, with a method to read and a method to set each.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use lightwait_core::Host;
use lightwait_core::config::Algorithm;
use lightwait_core::tcp::SocketOptions;

use super::TcpStream;
use crate::local::io_error;
use crate::options::{hop_limit, stream_options};

stream_options!();

impl TcpStream {
    /// Every option.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.local.host().options(self.id).map_err(io_error)
    }

    /// Sets every option.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.call(|host, now, id| host.set_options(now, id, options)).map_err(io_error)
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

    /// The host's hop limit.
    fn default_hop_limit(&self) -> u8 {
        self.local.host().config().hop_limit
    }
}
