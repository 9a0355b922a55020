//! The part of the configuration that a connection sees.

use core::ops::Deref;

use super::send::rtt::Bounds;
use crate::config::TcpConfig;

/// How TCP behaves, and what of it is wanted in ns for nearly every segment.
#[derive(Clone, Debug)]
pub struct Settings {
    tcp: TcpConfig,
    /// The bounds of the retransmission timeouts.
    pub(crate) rto_bounds: Bounds,
    /// [`TcpConfig::shift`].
    pub(crate) shift: u8,
}

impl Settings {
    /// The settings that follow from the configuration.
    pub fn new(tcp: TcpConfig) -> Self {
        Settings { rto_bounds: Bounds::new(&tcp), shift: tcp.shift(), tcp }
    }
}

impl Deref for Settings {
    type Target = TcpConfig;

    fn deref(&self) -> &TcpConfig {
        &self.tcp
    }
}
