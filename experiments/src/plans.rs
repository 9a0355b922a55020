//! The experiments, a file for each.

pub(crate) mod a_deviation;
pub(crate) mod a_fig12;
pub(crate) mod a_response;

pub(crate) mod b_acks;
mod repeats;
