//! The two kinds of interface that end in a program (tun(4)).

use std::fmt;

/// What frames such an interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

impl Kind {
    /// Its name in `ip tuntap`.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Kind::Tap => "tap",
            Kind::Tun => "tun",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tap => "TAP",
            Kind::Tun => "TUN",
        })
    }
}
