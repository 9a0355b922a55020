//! All worlds in one program: each test program by itself links the whole stack once more.

mod axum;
mod dctcp;
mod flood;
mod http;
mod idle;
mod paces;
mod packet_pair;
mod reorder;
mod resting;
mod reuse;
mod schemes;
mod search;
mod shards;
mod simulation;
mod swarm;
mod throughput;
mod time_wait;
mod virtual_time;
