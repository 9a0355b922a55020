//! The Internet layer: addresses and how they are had, routes, neighbours, path MTUs, reassembly.

pub(crate) mod autoconfigure;
pub mod conflict;
pub(crate) mod limiter;
pub(crate) mod neighbour;
pub(crate) mod path;
pub(crate) mod pmtu;
pub(crate) mod reassembly;
pub(crate) mod route;
pub(crate) mod route_cache;
