//! What a service manager hears.

use std::os::unix::net::UnixDatagram;

use super::*;

/// The next message that has that line.
fn hear(socket: &UnixDatagram, line: &str) -> String {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
        if text.lines().any(|one| one == line) {
            return text;
        }
    }
    panic!("no {line}");
}

#[test]
fn a_service_manager_hears_of_each_change_and_that_all_is_alive() {
    let directory = site();
    let path = directory.path().join(".notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The watchdog is for a process of that number alone.
    let script = "export WATCHDOG_PID=$$; exec \"$@\"";
    let mut process = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_lightwait"), "serve", "--shards", "2"])
        .args(["--listen", "127.0.0.1:0", "--json"])
        .arg(directory.path())
        .envs([("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "400000")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap());
    let server = Server::new(process, lines);
    let ready = hear(&socket, "READY=1");
    assert!(ready.contains(&format!("STATUS=Serving at http://{}/", server.address)), "{ready}");
    for _ in 0..2 {
        hear(&socket, "WATCHDOG=1");
    }
    server.signal("HUP");
    assert!(hear(&socket, "RELOADING=1").contains("MONOTONIC_USEC="));
    hear(&socket, "READY=1");
    server.signal("TERM");
    hear(&socket, "STOPPING=1");
    assert!(server.finish().0.success());
}
