//! Bulk transfer. The loopback device has its own MTU, of 64 KiB, and no checksum: it ignores the
//! plan's.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;

use super::Loopback;
use crate::bulk::{Pair, Plan};

/// Bytes of a read or a write.
const CHUNK: usize = 64 << 10;

/// A connection over the loopback device.
#[derive(Debug)]
pub struct Bulk {
    client: TcpStream,
    server: TcpStream,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

impl Pair for Bulk {
    fn new(_plan: &Plan) -> Bulk {
        let [client, server] = Loopback::new().open();
        for end in [&client, &server] {
            end.set_nonblocking(true).expect("a socket that need not block");
        }
        let (data, buffer) = (vec![b'd'; CHUNK], vec![0; CHUNK]);
        Bulk { client, server, data, buffer }
    }

    fn send(&mut self, bytes: usize) {
        let [mut written, mut read] = [0; 2];
        while read < bytes {
            let mut has_room = written < bytes;
            while has_room {
                let len = moved(self.client.write(&self.data[..CHUNK.min(bytes - written)]));
                written += len;
                has_room = len > 0 && written < bytes;
            }
            while read < written {
                let len = moved(self.server.read(&mut self.buffer));
                if len == 0 {
                    break;
                }
                read += len;
            }
        }
    }

    fn check(&self) {}
}

/// The bytes that a call has moved; zero if it would block.
fn moved(result: Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        other => other.expect("both ends are open"),
    }
}
