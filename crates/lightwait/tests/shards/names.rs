//! Names of hosts are looked up, and the shard goes on meanwhile.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::bridge::SERVER_ADDRESS;
use lightwait::driver::{self, SPIN, Stop};
use lightwait::local::{TcpListener, TcpStream, lookup_host};
use lightwait::shard::Handle;

use crate::drivers::{echo_once, shards};
use crate::sockets::{PORT, echo_server};
use crate::world::World;

/// Runs `task` on the client's shard, in real time.
fn run<T: 'static>(task: impl Future<Output = T> + 'static) -> T {
    let (mut shards, stop) = (shards(), Stop::new());
    let (outcome, ended) = (Rc::new(Cell::new(None)), stop.clone());
    let note = outcome.clone();
    shards[1].handle().spawn_local(async move {
        note.set(Some(task.await));
        ended.set();
    });
    driver::run(&mut shards, &stop, SPIN).unwrap();
    outcome.take().expect("the task has ended")
}

#[test]
fn a_name_is_looked_up_while_the_shards_timers_go_on() {
    let (ticks, errors) = run(async {
        let ticks = Rc::new(Cell::new(0));
        let counted = ticks.clone();
        let ticking = lightwait::executor::spawn_local(async move {
            loop {
                lightwait::rt::sleep(Duration::from_micros(50)).await;
                counted.set(counted.get() + 1);
            }
        });
        let mut errors = Vec::new();
        // A resolver that blocked the shard would let no timer tick: no connect gets far enough to
        // wait, since the bridge's client has no route to the loopback.
        while ticks.get() < 20 && errors.len() < 100_000 {
            errors.push(TcpStream::connect("localhost:7").await.err());
        }
        ticking.abort();
        (ticks.get(), errors)
    });
    assert!(ticks >= 20);
    // The name was found; that the host connects to no loopback is another matter.
    for error in errors {
        let error = error.expect("the loopback is no host's").to_string();
        let at = error.strip_prefix("localhost is ").expect("the name comes first");
        assert!(at.starts_with("127.") || at.starts_with("::1: "), "{error}");
        assert!(error.contains(": the remote address is loopback, which this stack"), "{error}");
    }
}

#[test]
fn a_connection_is_opened_to_the_address_of_a_name() {
    let (mut shards, stop) = (shards(), Stop::new());
    let ended = stop.clone();
    shards[0].handle().spawn_local(echo_server());
    let task = shards[1].handle().spawn_local(async move {
        // To the C library a number is an address (inet_aton), to Rust a name.
        let name = format!("{}:{PORT}", u32::from(SERVER_ADDRESS));
        let stream = TcpStream::connect(name).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), (SERVER_ADDRESS, PORT).into());
        echo_once(stream, b"found").await;
        ended.set();
    });
    driver::run(&mut shards, &stop, SPIN).unwrap();
    assert!(task.is_finished());
}

#[test]
fn the_addresses_of_localhost_are_loopback() {
    let found: Vec<_> = run(async { lookup_host("localhost:80").await.unwrap().collect() });
    assert!(found.iter().all(|at| at.ip().is_loopback() && at.port() == 80), "{found:?}");
    assert!(!found.is_empty());
}

#[test]
fn an_unknown_name_gives_an_error_that_names_it() {
    // `.invalid` exists nowhere (RFC 6761 §6.4).
    let error = run(async { TcpStream::connect("no-such-host.invalid:80").await.unwrap_err() });
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    let error = run(async { TcpListener::bind(("no-such-host.invalid", 80)).await.unwrap_err() });
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[test]
fn in_virtual_time_and_where_nothing_can_wait_a_name_is_refused() {
    let mut world = World::new();
    let task = world.on_client(async {
        let error = TcpStream::connect("localhost:80").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        let error = TcpListener::bind_on(&Handle::current(), "localhost:80").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        let local: IpAddr = Handle::current().with_host(|host| host.addresses()[0]);
        assert!(TcpListener::bind((local, 80)).await.is_ok(), "an address needs no resolver");
        true
    });
    world.finish(&task);
}
