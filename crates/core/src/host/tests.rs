//! Pairs of hosts in virtual time, over a wire without a link layer.

mod bounds;
mod bursts;
mod closing;
mod delayed_ack;
mod echoes;
mod ecn;
mod expired;
mod fin_wait_2;
mod link;
mod old;
mod options;
mod pair;
mod peer;
mod ports;
mod recovery;
mod requirements;
mod resting;
mod reuse;
mod states;
mod stream;
mod syns;
mod time_wait;
mod turns;
mod versions;
mod windows;
mod wrap;
