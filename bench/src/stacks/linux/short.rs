//! Short connections over the kernel's sockets; the server closes first.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Loopback;
use crate::connections::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// The loopback device and the conversations over it.
#[derive(Debug)]
pub struct Short {
    loopback: Loopback,
    at_once: usize,
    _idle: Vec<[TcpStream; 2]>,
}

impl Pair for Short {
    fn new(plan: &Plan) -> Short {
        let mut loopback = Loopback::new();
        let idle = (0..plan.idle).map(|_| loopback.open()).collect();
        Short { loopback, at_once: plan.at_once, _idle: idle }
    }

    fn warm_up(plan: &Plan) -> usize {
        plan.time_wait.max(100)
    }

    fn into_server(self) -> impl Sized {}

    fn converse(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let now = self.at_once.min(left);
            self.converse_together(now);
            left -= now;
        }
    }

    fn time_apart(&mut self, _apart: bool) -> Option<[u64; 2]> {
        // The kernel does the server's work in the client's system calls.
        None
    }

    fn packets(&self) -> Option<u64> {
        None
    }

    fn time_waits(&self) -> usize {
        let counts = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        let after = counts.split(" tw ").nth(1).and_then(|rest| rest.split(' ').next());
        after.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn check(&self) {}
}

impl Short {
    /// Does each step on all connections before the next step.
    fn converse_together(&mut self, count: usize) {
        let mut clients: Vec<TcpStream> = (0..count).map(|_| self.loopback.connect()).collect();
        for client in &mut clients {
            client.write_all(&[b'q'; REQUEST]).expect("room for the question");
        }
        let mut servers: Vec<TcpStream> = (0..count).map(|_| self.loopback.accept()).collect();
        for server in &mut servers {
            server.read_exact(&mut [0; REQUEST]).expect("the question");
            server.write_all(&[b'a'; RESPONSE]).expect("room for the answer");
        }
        drop(servers);
        for client in &mut clients {
            let mut answer = [0; 1024];
            assert_eq!(client.read(&mut answer).ok(), Some(RESPONSE), "the whole answer");
            assert_eq!(client.read(&mut answer).ok(), Some(0), "its end");
        }
    }
}
