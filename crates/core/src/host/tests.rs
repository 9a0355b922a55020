//! Pairs of hosts in virtual time, over a wire without a link layer.

mod pair;
mod peer;
mod states;
mod stream;
