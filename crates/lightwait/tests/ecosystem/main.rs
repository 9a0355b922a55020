//! Crates of others, unmodified, on sockets for any thread.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../devices/namespace.rs"]
mod namespace;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../send/world.rs"]
mod world;

mod axum_serve;
mod dns;
mod grpc;
mod http;
mod quic;
mod redis;
mod streams;
mod tls;
mod websocket;
