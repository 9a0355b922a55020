//! What is on the way between a stack and its sockets is part of the stack's memory, and bounded in
//! sum.

use std::time::Duration;

use lightwait::device::ThreadedMemory;
use lightwait::net::{StackHandle, TcpListener, TcpSocket, UdpSocket};
use lightwait::{Config, Stack};
use lightwait_core::{Capabilities, Host, Medium};
use tokio::io::AsyncReadExt;

use crate::world::{PORT, pair, run, stacks, written_until_full};

/// Bytes that the stack's memory for buffers has in use.
async fn in_use(stack: &StackHandle) -> usize {
    stack.with_host(|host| host.pages_in_use() * host.pool_info().page_bytes).await.unwrap()
}

/// Two stacks with so many pages each.
fn small_stacks(pages: usize) -> (StackHandle, StackHandle) {
    let wire = Capabilities::plain(Medium::Ip, 1500);
    let (near, far) = ThreadedMemory::pair(wire, 256).unwrap();
    let stack = |device: ThreadedMemory, address: &str| {
        let small = |config: &mut Config| config.limits.pages = pages;
        Stack::on(Box::new(device), address.parse().unwrap(), small).unwrap().spawn().unwrap()
    };
    (stack(near, "10.0.0.1/24"), stack(far, "10.0.0.2/24"))
}

#[test]
fn what_is_on_the_way_is_charged_until_it_is_read_or_dropped() {
    run(async {
        let (server, client) = stacks();
        // The stack's own buffers are small, so that they are not what is seen.
        let socket = TcpSocket::new_v4_on(&server);
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.bind((server.address(), PORT).into()).unwrap();
        let listener = socket.listen(4).unwrap();
        let socket = TcpSocket::new_v4_on(&client);
        socket.set_send_buffer_size(8 << 10).unwrap();
        let far = socket.connect((server.address(), PORT).into()).await.unwrap();
        let (mut near, _) = listener.accept().await.unwrap();
        let idle = (in_use(&server).await, in_use(&client).await);
        let written = written_until_full(&far).await;
        // What the server's stack holds for the reader, and what the client's does for the writer.
        assert!(in_use(&server).await >= idle.0 + (60 << 10));
        assert!(in_use(&client).await >= idle.1 + (60 << 10));
        let mut heard = vec![0; written];
        near.read_exact(&mut heard).await.unwrap();
        while in_use(&server).await > idle.0 || in_use(&client).await > idle.1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // And of what nobody reads nothing is left behind.
        written_until_full(&far).await;
        drop((near, far));
        while in_use(&server).await > idle.0 || in_use(&client).await > idle.1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn datagrams_on_the_way_are_charged_too() {
    run(async {
        let (server, client) = stacks();
        let near = UdpSocket::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let far = UdpSocket::bind_on(&client, "0.0.0.0:0").await.unwrap();
        let idle = in_use(&server).await;
        for _ in 0..20 {
            far.send_to(&[1; 1000], (server.address(), PORT)).await.unwrap();
        }
        while in_use(&server).await < idle + 20_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..20 {
            near.recv(&mut [0; 1000]).await.unwrap();
        }
        while in_use(&server).await > idle {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn many_connections_hold_no_more_than_the_stacks_memory() {
    const PAGES: usize = 256;
    const CONNECTIONS: usize = 40;
    run(async {
        let (server, client) = small_stacks(PAGES);
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let mut pairs = Vec::new();
        for _ in 0..CONNECTIONS {
            pairs.push(pair(&listener, &client).await);
        }
        let filling = pairs.iter().map(|(_, far)| written_until_full(far));
        let written = futures_util::future::join_all(filling).await;
        // Both pools, and the least of each connection at both ends.
        let pool = server.with_host(Host::pool_info).await.unwrap();
        let most = 2 * pool.limit * pool.page_bytes + CONNECTIONS * 2 * (4 << 10);
        let sum: usize = written.iter().sum();
        assert!(sum <= most, "{sum} of {most} bytes");
        // Each of them moves once it is read.
        let reading = pairs.iter_mut().zip(written).map(async |((near, _), written)| {
            let mut heard = vec![0; written];
            near.read_exact(&mut heard).await.unwrap();
        });
        futures_util::future::join_all(reading).await;
    });
}
