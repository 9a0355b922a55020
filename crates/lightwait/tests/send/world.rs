//! Two stacks on threads of their own, and what tests do with them.

use std::future::Future;
use std::io;
use std::time::Duration;

use lightwait::Stack;
use lightwait::net::{StackHandle, TcpListener, TcpStream};

/// No test waits for longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const PORT: u16 = 7;

/// A server's stack and a client's.
pub(crate) fn stacks() -> (StackHandle, StackHandle) {
    let (server, client) = Stack::memory().unwrap();
    (server.spawn().unwrap(), client.spawn().unwrap())
}

/// Runs `main` in a tokio runtime with two threads, and not for longer than [`PATIENCE`].
pub(crate) fn run<F: Future>(main: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(in_time(main))
}

pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}

/// Both ends of a connection: the server's and the client's.
pub(crate) async fn connected() -> (TcpStream, TcpStream, StackHandle, StackHandle) {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
    let (near, far) = pair(&listener, &client).await;
    (near, far, server, client)
}

/// One more connection to a listener: the listener's end, and the client's.
pub(crate) async fn pair(listener: &TcpListener, client: &StackHandle) -> (TcpStream, TcpStream) {
    let at = listener.local_addr().unwrap();
    let (accepted, opened) = tokio::join!(listener.accept(), TcpStream::connect_on(client, at));
    (accepted.unwrap().0, opened.unwrap())
}

/// Bytes that go into a connection whose other end does not read.
pub(crate) async fn written_until_full(stream: &TcpStream) -> usize {
    let (chunk, mut written) = (vec![7; 16 << 10], 0);
    loop {
        match stream.try_write(&chunk) {
            Ok(len) => written += len,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        let writable = tokio::time::timeout(Duration::from_millis(300), stream.writable());
        if writable.await.is_err() {
            return written;
        }
    }
}

pub(crate) fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}
