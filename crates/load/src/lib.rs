//! Load over HTTP/1.1, by the benchmark method of Aron and Druschel (1999, §2): a client that never
//! meets its own TIME-WAITs.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod exchange;
pub mod recorder;
pub mod request;
pub mod sources;
pub mod tuples;
