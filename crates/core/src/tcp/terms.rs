//! What our SYNs announce: MSS and window.

use super::SocketOptions;
use super::recv::window::offer_of;
use crate::config::Config;
use crate::wire::options::mss_for_mtu;

/// What our SYNs announce under some options: known before any is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    mss_ipv4: u16,
    mss_ipv6: u16,
    /// The window; the budget may allow less.
    pub(crate) offer: u16,
}

impl Terms {
    /// The MSS (RFC 9293 §3.7.1, RFC 6691) by the device's MTU, or less by choice; the window by
    /// configuration, or by choice.
    pub(crate) fn announced(config: &Config, options: &SocketOptions) -> Terms {
        let tcp = &config.tcp;
        // Zero is no limit.
        let limit = |mss: u16| if mss > 0 { mss } else { u16::MAX };
        let most = limit(tcp.mss_max).min(limit(options.mss_max));
        let mss = |ipv6| mss_for_mtu(config.device.mtu, ipv6).min(most);
        let usual = tcp.buffers.receive.min(tcp.buffers.receive_max);
        let offer = offer_of(options.receive_buffer_bytes.unwrap_or(usual), tcp.shift());
        Terms { mss_ipv4: mss(false), mss_ipv6: mss(true), offer }
    }

    /// The MSS.
    pub(crate) fn mss(&self, ipv6: bool) -> u16 {
        if ipv6 { self.mss_ipv6 } else { self.mss_ipv4 }
    }
}
