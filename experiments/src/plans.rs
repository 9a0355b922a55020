//! The experiments, one file each.

pub(crate) mod a_delay_router;
pub(crate) mod a_deviation;
pub(crate) mod a_fig10;
pub(crate) mod a_fig11;
pub(crate) mod a_fig12;
pub(crate) mod a_fig12_live;
pub(crate) mod a_fig13;
pub(crate) mod a_fig3;
pub(crate) mod a_fig4;
pub(crate) mod a_fig5;
pub(crate) mod a_fig7;
pub(crate) mod a_fig7_live;
pub(crate) mod a_fig9;
pub(crate) mod a_packet_pair;
pub(crate) mod a_packet_pair_live;
pub(crate) mod a_response;
pub(crate) mod b_acks;
pub(crate) mod b_fig2;
pub(crate) mod b_fig3;
pub(crate) mod b_fig4;
pub(crate) mod b_lateness;
pub(crate) mod b_locks;
mod busy;
pub(crate) mod c_devices;
pub(crate) mod c_fig4;
pub(crate) mod c_fig5_7;
pub(crate) mod c_short_msl;
pub(crate) mod c_table2;
pub(crate) mod c_table2_rate;
pub(crate) mod c_table3;
pub(crate) mod c_table4;
pub(crate) mod d_cost;
pub(crate) mod d_fig3;
pub(crate) mod d_fig4;
pub(crate) mod d_fig8;
pub(crate) mod d_live;
pub(crate) mod d_tfact;
pub(crate) mod d_today;
mod firing;
mod paths;
mod queueing;
pub(crate) mod recovery;
mod repeats;
pub(crate) mod today;
mod transfers;
mod webserver;

use lightwait_core::config::{Algorithm, TcpConfig};

/// Our TCP with the congestion control that the papers had. Their paths are as wide as the links,
/// and some lose so much that they would pass for narrower.
fn newreno() -> TcpConfig {
    TcpConfig::default().with(|tcp| {
        tcp.congestion.algorithm = Algorithm::Reno;
        tcp.path_mtu_search = false;
    })
}
