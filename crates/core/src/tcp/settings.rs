//! The part of the configuration that a connection sees.

use core::ops::Deref;

use super::send::rtt::Bounds;
use crate::config::{Estimator, LossDetection, Scheme, TcpConfig};

/// How TCP behaves, and what of it is wanted in ns for nearly every segment.
#[derive(Clone, Debug)]
pub struct Settings {
    tcp: TcpConfig,
    /// The bounds of the retransmission timeouts.
    pub(crate) rto_bounds: Bounds,
    /// How losses are found where the peer sends SACK blocks. By time only with the timers `inline`
    /// or `wheel` and the estimator of RFC 6298: ticks are longer than a path's round trips, and
    /// the other estimators are those of stacks that count.
    pub(crate) detection: LossDetection,
    /// [`TcpConfig::shift`].
    pub(crate) shift: u8,
}

impl Settings {
    /// The settings that follow from the configuration.
    pub fn new(tcp: TcpConfig) -> Self {
        let is_fine = matches!(tcp.timers, Scheme::Inline | Scheme::Wheel)
            && tcp.rto.estimator == Estimator::Rfc6298;
        let detection = if is_fine { tcp.congestion.detection } else { LossDetection::Count };
        Settings { rto_bounds: Bounds::new(&tcp), detection, shift: tcp.shift(), tcp }
    }
}

impl Deref for Settings {
    type Target = TcpConfig;

    fn deref(&self) -> &TcpConfig {
        &self.tcp
    }
}
