//! The client that holds idle connections.

use std::net::{SocketAddr, TcpStream};

use super::FILES;
use crate::plan::Failure;

/// Opens `count` connections to `address`, makes a request on each and keeps it, until standard
/// input ends. Meanwhile the server's memory of idle connections can be measured.
pub(crate) fn idle(address: SocketAddr, count: usize) -> Result<(), Failure> {
    use std::io::{Read, Write};
    let request = format!("GET /{} HTTP/1.1\r\nHost: idle\r\n\r\n", FILES[0].0);
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        while answer.len() < FILES[0].1 || !answer.ends_with(b"xxx") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece)? {
                0 => return Err("the server does not keep its connections".into()),
                len => answer.extend_from_slice(&piece[..len]),
            }
        }
        connections.push(stream);
    }
    lightwait_bench::say_line!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
