//! The options of a connection, with a method to read and a method to set each. The stream keeps
//! them; the shard learns of them before it sends what is written later.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use lightwait_core::config::Algorithm;
use lightwait_core::tcp::SocketOptions;

use super::TcpStream;
use crate::options::{hop_limit, stream_options};

stream_options!();

impl TcpStream {
    /// Every option.
    pub fn options(&self) -> io::Result<SocketOptions> {
        Ok(self.crossing().options())
    }

    /// Sets every option.
    ///
    /// # Errors
    /// `ConnectionAborted` if the stack has ended.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.crossing().set_options(options)
    }

    /// True if segments are acknowledged at once, as far as that was set last. A new connection
    /// does so for the host's `ack.quick`.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.crossing().quick_acks().unwrap_or(self.stack.defaults().quick_acks))
    }

    /// Acknowledges the next segments at once, as many as the host's `ack.quick`, or delays ACKs
    /// from now on.
    ///
    /// # Errors
    /// `ConnectionAborted` if the stack has ended.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.crossing().set_quick_acks(quickack)
    }

    /// The host's hop limit.
    fn default_hop_limit(&self) -> u8 {
        self.stack.defaults().hop_limit
    }
}
