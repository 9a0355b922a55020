//! The Internet layer: addresses and how they are had, routes, neighbours, path MTUs, reassembly.

pub mod autoconfigure;
pub mod conflict;
pub mod limiter;
pub mod neighbour;
pub mod pmtu;
pub mod reassembly;
pub mod route;
