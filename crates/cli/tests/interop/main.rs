//! The program against what others use: the kernel's TCP, `curl`, `wrk`, `openssl`, `h2load`,
//! nginx, Apache, hyper, a browser; and its captures against tshark and a checker of our own.
//!
//! Every test runs in a network namespace that it makes and that goes with it ([`namespace`]). Root
//! tests over a TAP; an ordinary user over a packet socket, in a user namespace. With `CI=true` a
//! command that is missing fails the test; elsewhere the test says so and is left out.

mod addresses;
mod admin;
mod audit;
mod bad_link;
mod bridge;
mod browser;
mod capture;
mod client;
mod download;
mod events;
mod files;
mod host;
mod latency;
mod limits;
mod load;
mod namespace;
mod peers;
mod proxy;
mod readme;
mod restarts;
mod server;
mod shards;
mod short_connections;
mod stalled_peers;
mod time_wait;
mod tls;
mod tools;
mod tunnel;
mod upload;
mod vlan;
mod wan;
