//! Sockets for any thread, on stacks that run on threads of their own.
#![cfg(target_os = "linux")]

mod closing;
mod ends;
mod many;
mod memory;
mod readiness;
mod runtimes;
mod transfers;
mod udp;
mod world;
