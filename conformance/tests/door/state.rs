//! LIGHTWAIT_STATE.

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

    drop(door);
    state::stop(&path);
    assert!(!path.exists());
}
