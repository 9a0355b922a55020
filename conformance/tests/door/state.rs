//! LIGHTWAIT_STATE: the socket that reports the state of every socket.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lightwait_conformance::door::Door;
use lightwait_conformance::profile::Profile;
use lightwait_conformance::state;
use lightwait_conformance::world::World;

fn ask(path: &std::path::Path) -> String {
    let mut answer = String::new();
    UnixStream::connect(path).expect("it answers").read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn whoever_connects_is_told_the_state_of_every_socket() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let world = World::new(Profile::parse("linux").expect("flags")).expect("a world");
    let door = Arc::new(Door::new(world, Some(path.clone())));
    state::serve(&door, &path).expect("a socket");
    assert_eq!(ask(&path), "");

    let local = lightwait_conformance::address::Family::Inet
        .encode("192.168.0.1:8080".parse().expect("an address"));
    let listener = door.call_now(|world| {
        let fd = world.open_socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        world.bind(fd, &local)?;
        Ok(fd)
    });
    let listener = listener.expect("a socket");
    assert_eq!(ask(&path), "tcp 192.168.0.1:8080 *:* CLOSED\n");
    door.call_now(|world| world.listen(listener, 1)).expect("a bound socket");
    assert_eq!(ask(&path), "tcp 192.168.0.1:8080 *:* LISTEN\n");

    let opened = door.call_now(|world| {
        let fd = world.open_socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
        let to = lightwait_conformance::address::Family::Inet
            .encode("192.0.2.1:80".parse().expect("an address"));
        let _progress = world.connect(fd, &to, true);
        Ok(fd)
    });
    assert!(opened.is_ok());
    let told = ask(&path);
    assert!(told.lines().any(|line| line.ends_with(" 192.0.2.1:80 SYN_SENT")), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
    let datagrams = door.call_now(|world| {
        let fd = world.open_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        world.bind(fd, &local)?;
        Ok(fd)
    });
    assert!(datagrams.is_ok());
    assert!(ask(&path).ends_with("\nudp 192.168.0.1:8080 *:*\n"), "a port of another protocol");

    leave(door);
    assert!(!path.exists());
}

/// The effect of freeing a door.
fn leave(door: Arc<Door>) {
    let left = Arc::downgrade(&door);
    drop(door);
    state::stop(&left);
}

fn door_at(path: &std::path::Path) -> std::io::Result<Arc<Door>> {
    let world = World::new(Profile::parse("linux").expect("flags")).expect("a world");
    let door = Arc::new(Door::new(world, Some(path.to_owned())));
    state::serve(&door, path).map(|()| door)
}

#[test]
fn a_socket_that_was_left_gives_way_and_another_file_does_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let first = door_at(&path).expect("a socket");
    let second = door_at(&path).expect("it takes over");
    leave(first);
    assert_eq!(ask(&path), "", "the second answers on");
    leave(second);
    std::fs::write(&path, "precious").expect("a file");
    assert!(door_at(&path).is_err());
    assert_eq!(std::fs::read(&path).expect("it stays"), b"precious");
}

/// Names the socket of a process that opens a door and exits without freeing it.
const EXITS: &str = "LIGHTWAIT_TEST_EXITS";

#[test]
fn the_socket_goes_when_a_process_exits_with_its_door_open() {
    if std::env::var_os(EXITS).is_some() {
        let stack = super::Stack::new("linux");
        std::mem::forget(stack);
        let path = std::env::var_os("LIGHTWAIT_STATE").expect("a path");
        assert_eq!(ask(path.as_ref()), "");
        std::process::exit(7);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let name = "state::the_socket_goes_when_a_process_exits_with_its_door_open";
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name])
        .env(EXITS, "1")
        .env("LIGHTWAIT_STATE", &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("it runs");
    assert_eq!(status.code(), Some(7), "it had a door that answered");
    assert!(!path.exists());
}
