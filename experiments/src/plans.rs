//! The experiments, a file for each.

pub(crate) mod a_delay_router;
pub(crate) mod a_deviation;
pub(crate) mod a_fig11;
pub(crate) mod a_fig12;
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
pub(crate) mod b_fig3;
pub(crate) mod b_fig4;
pub(crate) mod b_lateness;
pub(crate) mod b_locks;
mod busy;
pub(crate) mod c_fig4;
pub(crate) mod c_table4;
mod firing;
mod queueing;
mod repeats;
pub(crate) mod today;
mod webserver;
