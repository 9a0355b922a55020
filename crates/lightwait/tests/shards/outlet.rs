//! The outlet, in real time: clients on our stack, servers on the kernel's.

use std::collections::HashSet;
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use lightwait::bridge::{Outlet, SERVER_ADDRESS};
use lightwait::driver;
use lightwait::local::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::drivers::{echo_once, runtime, shards};
use crate::sockets::pattern;

const PORT: u16 = 80;

async fn connect() -> TcpStream {
    TcpStream::connect((SERVER_ADDRESS, PORT)).await.unwrap()
}

/// Runs `client` as a task of the client stack, with an outlet to `target`.
fn before_the_outlet<T: 'static>(
    target: SocketAddr,
    configure: impl FnOnce(Outlet) -> Outlet,
    client: impl Future<Output = T> + 'static,
) -> T {
    runtime().block_on(async {
        let shards = shards();
        let listener = TcpListener::bind_on(&shards[0].handle(), (SERVER_ADDRESS, PORT)).unwrap();
        let outlet = configure(Outlet::new(listener, target));
        shards[0].handle().spawn_local(async move { match outlet.run().await {} });
        let client = shards[1].handle().spawn_local(client);
        tokio::select! {
            failure = driver::drive(shards) => panic!("{failure:?}"),
            output = client => output.unwrap(),
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it hangs"),
        }
    })
}

/// A server on the kernel's stack, with a thread a connection; and the clients that it saw.
fn server<F>(serve: F) -> (SocketAddr, Receiver<SocketAddr>)
where
    F: Fn(KernelStream) -> io::Result<()> + Clone + Send + 'static,
{
    let listener = KernelListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (saw, seen) = channel();
    // The thread ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = saw.send(stream.peer_addr().unwrap());
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    (address, seen)
}

/// Sends received data back until the end, then FIN.
fn echo(mut stream: KernelStream) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    io::copy(&mut stream, &mut writer).map(|_| ())
}

#[test]
fn streams_and_their_ends_go_out_and_come_back() {
    let (target, _) = server(echo);
    before_the_outlet(target, |outlet| outlet, async {
        echo_once(connect().await, &pattern(8_000_000)).await;
    });
}

#[test]
fn an_end_is_passed_on_while_the_other_direction_goes_on() {
    // The server answers only after the end of the request.
    let (target, _) = server(|mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request)?;
        stream.write_all(format!("{} bytes", request.len()).as_bytes())
    });
    let heard = before_the_outlet(target, |outlet| outlet, async {
        let mut stream = connect().await;
        stream.write_all(b"request").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        heard
    });
    assert_eq!(heard, "7 bytes");
}

/// The error that a reading client gets.
async fn failure() -> ErrorKind {
    let mut stream = connect().await;
    stream.write_all(b"request").await.unwrap();
    stream.read(&mut [0; 16]).await.unwrap_err().kind()
}

#[test]
fn a_target_that_refuses_is_a_reset() {
    let nobody = KernelListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // The client sends nothing: closing a socket with unread bytes resets it in any case.
    let kind = before_the_outlet(nobody, |outlet| outlet, async {
        connect().await.read(&mut [0; 16]).await.unwrap_err().kind()
    });
    assert_eq!(kind, ErrorKind::ConnectionReset);
}

#[test]
fn resets_pass_both_ways() {
    let reset = |stream: &KernelStream| {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    };
    let (target, _) = server(move |mut stream| {
        stream.read_exact(&mut [0; 7])?;
        reset(&stream);
        Ok(())
    });
    let kind = before_the_outlet(target, |outlet| outlet, failure());
    assert_eq!(kind, ErrorKind::ConnectionReset);

    let (tell, told) = channel();
    let (target, _) = server(move |mut stream| {
        stream.write_all(b"!")?;
        let _ = tell.send(stream.read(&mut [0; 16]).map_err(|error| error.kind()));
        Ok(())
    });
    let met = before_the_outlet(target, |outlet| outlet, async move {
        let mut stream = connect().await;
        stream.read_exact(&mut [0; 1]).await.unwrap();
        stream.set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        let met = tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(10)));
        met.await.unwrap().unwrap()
    });
    assert_eq!(met, Err(ErrorKind::ConnectionReset));
}

#[test]
fn each_connection_comes_from_the_source_chosen_for_its_client() {
    const COUNT: usize = 1000;
    let (target, seen) = server(echo);
    // 127.7.x.y for 100.x.y.z, with the client's port.
    let source = |client: SocketAddr| {
        let IpAddr::V4(ip) = client.ip() else { panic!("{client}") };
        let [_, x, y, z] = ip.octets();
        SocketAddr::from(([127, x, y, z], client.port()))
    };
    let clients = before_the_outlet(target, move |outlet| outlet.with_source(source), async {
        let mut clients = HashSet::new();
        for number in 0..COUNT as u32 {
            let from = SocketAddr::from(([100, 65, 0, 1 + (number % 250) as u8], 0));
            let handle = lightwait::shard::Handle::current();
            let to = (SERVER_ADDRESS, PORT);
            let stream = TcpStream::connect_from(&handle, from, to).await.unwrap();
            clients.insert(stream.local_addr().unwrap());
            echo_once(stream, &number.to_be_bytes()).await;
        }
        clients
    });
    let seen: HashSet<SocketAddr> = seen.try_iter().collect();
    assert_eq!((clients.len(), seen.len()), (COUNT, COUNT));
    let expected: HashSet<SocketAddr> = clients.into_iter().map(source).collect();
    let others: Vec<_> = seen.difference(&expected).map(SocketAddr::ip).collect();
    // If a server of this machine has a port on all addresses, another port replaces it.
    assert!(others.len() < 20, "{others:?}");
    let addresses = |ends: &HashSet<SocketAddr>| {
        let mut addresses: Vec<_> = ends.iter().map(SocketAddr::ip).collect();
        addresses.sort();
        addresses
    };
    assert!(addresses(&seen) == addresses(&expected));
}

#[test]
fn a_source_port_that_is_taken_is_replaced_by_another() {
    let (target, seen) = server(echo);
    let taken = KernelListener::bind("127.7.7.7:0").unwrap();
    let source = taken.local_addr().unwrap();
    before_the_outlet(target, |outlet| outlet.with_source(move |_| source), async {
        echo_once(connect().await, b"hello").await;
    });
    let peer = seen.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(peer.ip() == source.ip() && peer.port() != source.port(), "{peer}");
}

#[test]
fn a_reader_that_stops_holds_up_the_writer() {
    let (begin, begun) = channel();
    let (target, _) = server({
        let begun = std::sync::Arc::new(std::sync::Mutex::new(begun));
        move |mut stream| {
            let _: Result<(), _> = begun.lock().unwrap().recv();
            io::copy(&mut stream, &mut io::sink())?;
            stream.write_all(b"done")
        }
    });
    before_the_outlet(target, |outlet| outlet, async move {
        let mut stream = connect().await;
        let (block, mut sent) = (vec![7; 1 << 16], 0u64);
        let pause = Duration::from_millis(500);
        while let Ok(written) = lightwait::rt::timeout(pause, stream.write(&block)).await {
            sent += written.unwrap() as u64;
            assert!(sent < 1 << 28, "nothing holds the writer back");
        }
        begin.send(()).unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"done");
    });
}
