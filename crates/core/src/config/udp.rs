//! How UDP behaves.

use super::group::group;

group! {
    /// How UDP behaves; the initial values of its sockets' options.
    UdpConfig {
        /// Bytes of datagrams that wait to be read on a socket, at most; each counts for 128 more.
        receive_bytes: u32 = 212_992, "bytes", "Linux (rmem_default)";
        /// Bytes of datagrams that wait to be sent from a socket, at most; each counts for 128
        /// more.
        send_bytes: u32 = 212_992, "bytes", "Linux (wmem_default)";
    }
}
