//! The arguments of `lightwait tunnel`.

use clap::Args;
use lightwait_core::address::Cidr;
use lightwait_tunnel::Proxy;

use crate::args::ShardArgs;
use crate::plan::{Memory, Setting};

/// The kernel's addresses at its end of the TUN: of a network that is set aside for benchmarks
/// (RFC 2544 §C.2.2), and of a local one (RFC 4193).
pub(super) const HOST_ADDRESSES: [&str; 2] = ["198.18.0.1/30", "fd6c:6967:6874::1/126"];

/// What is taken: all of both versions.
pub(super) const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Carry all TCP and UDP that comes from a TUN through a proxy, or directly.
///
/// The program makes the TUN, and answers there for every destination. A connection is answered
/// when the proxy has connected; otherwise its client hears why not. Resets and half-closed
/// connections pass in both directions. What is to go through the tunnel is routed to the TUN: `ip
/// route add default dev NAME`, and `ip -6 route …`, in this network namespace, or in another to
/// which the TUN was moved (docs/tunnel.md). The proxy itself must be reached another way.
///
/// SIGINT (Ctrl-C) and SIGTERM end it, and reset what it carries.
#[derive(Clone, Debug, Args)]
pub(crate) struct TunnelArgs {
    /// The TUN; the program creates it if it does not exist
    #[arg(long, value_name = "NAME", help_heading = "Device")]
    pub(crate) tun: String,

    /// Where to: socks5://HOST:PORT (RFC 1928, with UDP), http://HOST:PORT (CONNECT; datagrams are
    /// refused), either with USER:PASSWORD@ before the host, or direct
    #[arg(long, value_name = "PROXY")]
    pub(crate) to: Proxy,

    /// Take only destinations in this prefix; may be repeated. Others are dropped [default:
    /// 0.0.0.0/0 and ::/0]
    #[arg(long, value_name = "A/N")]
    pub(crate) take: Vec<Cidr>,

    /// The kernel's address at its end of the TUN; may be repeated [default: 198.18.0.1/30 and
    /// fd6c:6967:6874::1/126]
    #[arg(long, value_name = "A/N", help_heading = "Device")]
    pub(crate) host_ip: Vec<Cidr>,

    /// Largest IP packet on the TUN, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, help_heading = "Device",
          value_parser = clap::value_parser!(u16).range(1280..))]
    pub(crate) mtu: u16,

    #[command(flatten)]
    pub(crate) shards: ShardArgs,

    /// Memory for the buffers of connections, such as 512M or 2G [default: a quarter of the
    /// machine's, 1G at most]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) memory: Option<Memory>,

    /// Set a knob of the stack, such as limits.held_syns=8192; may be repeated. `lightwait knobs`
    /// lists them
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
}
