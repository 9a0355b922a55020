//! A stack set up by one call, against the kernel's.

use std::io::Read;
use std::net::TcpStream as KernelStream;
use std::thread;

use lightwait::Stack;
use lightwait::local::TcpListener;
use tokio::io::AsyncWriteExt;

use crate::namespace;

#[test]
fn the_kernel_reaches_a_stack_that_one_call_set_up() {
    namespace::inside("one_call::the_kernel_reaches_a_stack_that_one_call_set_up", || {
        if !namespace::can_make_tap() {
            return;
        }
        for open in [Stack::tap, Stack::tun] {
            talk(open("lwt0", "10.78.0.2/24").unwrap());
        }
    });
}

/// The kernel connects to the stack, and hears from it.
fn talk(stack: Stack) {
    let listener = TcpListener::bind_on(&stack.handle(), (stack.address(), 80)).unwrap();
    let kernel = thread::spawn(|| {
        let mut heard = String::new();
        let mut stream = KernelStream::connect("10.78.0.2:80").unwrap();
        stream.read_to_string(&mut heard).unwrap();
        heard
    });
    let served = lightwait::run([stack], async move {
        let (mut stream, peer) = listener.accept().await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await?;
        // The acknowledgement arrives before the stack goes.
        lightwait::rt::sleep(std::time::Duration::from_millis(100)).await;
        Ok::<_, std::io::Error>(peer.ip().to_string())
    });
    assert_eq!(served.unwrap().unwrap(), "10.78.0.1", "the kernel's end has an address");
    assert_eq!(kernel.join().unwrap(), "hello");
}
