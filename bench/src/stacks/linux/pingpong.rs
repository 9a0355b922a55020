//! Requests on connections that stay, over the kernel's sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Loopback;
use crate::pingpong::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// The loopback device and the requests over it.
#[derive(Debug)]
pub struct PingPong {
    connections: Vec<[TcpStream; 2]>,
    next: usize,
}

impl Pair for PingPong {
    fn new(plan: &Plan) -> PingPong {
        let mut loopback = Loopback::new();
        let connections = (0..plan.connections).map(|_| loopback.open()).collect();
        PingPong { connections, next: 0 }
    }

    fn exchange(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let end = self.connections.len().min(self.next + left);
            left -= end - self.next;
            exchange_together(&mut self.connections[self.next..end]);
            self.next = if end == self.connections.len() { 0 } else { end };
        }
    }

    fn packets(&self) -> Option<u64> {
        None
    }

    fn check(&self) {}
}

/// Does each step on all connections before the next step.
fn exchange_together(connections: &mut [[TcpStream; 2]]) {
    for [client, _] in &mut *connections {
        client.write_all(&[b'q'; REQUEST]).expect("room for the question");
    }
    for [_, server] in &mut *connections {
        server.read_exact(&mut [0; REQUEST]).expect("the question");
        server.write_all(&[b'a'; RESPONSE]).expect("room for the answer");
    }
    for [client, _] in connections {
        client.read_exact(&mut [0; RESPONSE]).expect("the answer");
    }
}
