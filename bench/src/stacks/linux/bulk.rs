//! As many bytes one way as a connection carries. The loopback device has its own MTU, of 64 KiB,
//! and no checksum: what the plan says of both is as if it were not said.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Loopback;
use crate::bulk::{Pair, Plan};

/// Bytes that are written or read in a call.
const CHUNK: usize = 64 << 10;

/// A connection over the loopback device.
#[derive(Debug)]
pub struct Bulk {
    client: TcpStream,
    server: TcpStream,
    data: Vec<u8>,
    buffer: Vec<u8>,
    read: usize,
    goal: usize,
}

impl Pair for Bulk {
    fn new(_plan: &Plan) -> Bulk {
        let [client, server] = Loopback::new().open();
        for end in [&client, &server] {
            end.set_nonblocking(true).expect("a socket that need not block");
        }
        let (data, buffer) = (vec![b'd'; CHUNK], vec![0; CHUNK]);
        Bulk { client, server, data, buffer, read: 0, goal: 0 }
    }

    fn send(&mut self, bytes: usize) {
        self.goal += bytes;
        while self.read < self.goal {
            // Some of the data is as good as all of it: every byte is the same.
            while self.client.write(&self.data).is_ok_and(|len| len == self.data.len()) {}
            while let Ok(len @ 1..) = self.server.read(&mut self.buffer) {
                self.read += len;
            }
        }
    }

    fn check(&self) {}
}
