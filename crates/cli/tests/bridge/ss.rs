//! `lightwait ss`, through the doors of running servers.

use std::process::Output;

use super::*;

fn ss(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_lightwait");
    Command::new(program).arg("ss").args(arguments).output().unwrap()
}

/// The lines that it prints, without the headings.
fn rows(arguments: &[&str]) -> Vec<String> {
    let output = ss(&[&["-H"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What it says on standard error, and its status.
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = ss(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), text)
}

/// A server, and where its door is.
pub(super) fn served(directory: &std::path::Path, flags: &[&str]) -> (Server, String) {
    let flags = [&["--admin", "127.0.0.1:0", "--quiet"], flags].concat();
    let server = Server::start_with(directory, &flags);
    let door = server.admin.clone().unwrap();
    let door = door.trim_start_matches("http://").trim_end_matches('/').to_owned();
    (server, door)
}

/// Connections that have had an answer and are kept.
pub(super) fn kept(server: &Server, count: usize) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = server.connect();
        stream.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    (0..count).map(one).collect()
}

/// Waits until `count` rows come.
fn wait_for(arguments: &[&str], count: usize) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let found = rows(arguments);
        if found.len() == count || Instant::now() > end {
            assert_eq!(found.len(), count, "{found:?}");
            return found;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connections_listeners_and_records_are_listed_as_ss_does() {
    let directory = site();
    let (server, door) = served(directory.path(), &["--shards", "2"]);
    let with = |more: &[&'static str]| [&["--admin", door.as_str()], more].concat();
    let streams = kept(&server, 20);
    for _ in 0..10 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    let waiting = wait_for(&with(&["-toe", "state", "time-wait"]), 10);
    for row in &waiting {
        assert!(row.starts_with("TIME-WAIT 0 "), "{row}");
        assert!(row.contains("timer:(timewait,5") && row.contains("holder:closer"), "{row}");
    }
    let usual = rows(&with(&["-t"]));
    assert_eq!(usual.iter().filter(|row| row.starts_with("ESTAB")).count(), 20, "{usual:?}");
    assert!(!usual.iter().any(|row| row.contains("TIME-WAIT") || row.contains("LISTEN")));
    let all = rows(&with(&["-tan"]));
    assert_eq!(all.iter().filter(|row| row.starts_with("TIME-WAIT")).count(), 10);
    // Each shard hears them.
    assert_eq!(all.iter().filter(|row| row.starts_with("LISTEN")).count(), 2);
    assert_eq!(rows(&with(&["-l"])).len(), 2);
    assert_eq!(rows(&with(&["state", "established", "-a"])).len(), 20);
    let one = rows(&with(&["-tinoem", "--limit", "1", "state", "established"]));
    assert_eq!(one.len(), 2, "{one:?}");
    assert!(one[0].contains("shard:") && one[0].contains(" sk:"), "{}", one[0]);
    for part in ["skmem:(r", " cubic ", " rto:", " rtt:", " cwnd:", " bytes_acked:", " pacing_rate"]
    {
        assert!(one[1].contains(part), "{part}: {}", one[1]);
    }
    let headings = ss(&with(&["-t"])).stdout;
    assert!(headings.starts_with(b"State "));
    drop(streams);
}

#[test]
fn a_filter_is_that_of_ss_and_json_has_everything() {
    let directory = site();
    let (server, door) = served(directory.path(), &[]);
    let _streams = kept(&server, 5);
    let json: Vec<serde_json::Value> = rows(&["--admin", &door, "--json"])
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(json.len(), 5);
    let peer = json[3]["peer"].as_str().unwrap();
    assert_eq!(json[3]["door"], door.as_str());
    assert!(json[3]["cwnd_bytes"].as_u64().unwrap() > 0);
    assert_eq!(rows(&["--admin", &door, "-t", "dst", peer]).len(), 1);
    assert_eq!(rows(&["--admin", &door, "-t", "not", "dst", peer]).len(), 4);
    let port = peer.rsplit(':').next().unwrap();
    let both = format!("( dport = :{port} or dport = :1 ) and sport != :1");
    assert_eq!(rows(&["--admin", &door, &both]).len(), 1);
    assert_eq!(rows(&["--admin", &door, "-6"]).len(), 0);
    assert_eq!(rows(&["--admin", &door, "-4"]).len(), 5);
}

#[test]
fn several_processes_are_asked_and_one_that_is_gone_is_told_of() {
    let directory = site();
    let path = format!("unix:{}", directory.path().join("door").display());
    let (one, first) = served(directory.path(), &[]);
    let second = Server::start_with(directory.path(), &["--admin", &path, "--quiet"]);
    let _streams = [kept(&one, 2), kept(&second, 3)];
    let doors = ["--admin", &first, "--admin", &path, "--admin", &path];
    assert_eq!(rows(&doors).len(), 5, "a door that is named twice is asked once");
    let shown = rows(&[&doors[..], &["-e"]].concat());
    assert_eq!(shown.iter().filter(|row| row.contains(&format!("door:{path}"))).count(), 3);
    drop(one);
    let output = ss(&doors);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("{first}: no server has its admin door there")), "{error}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 4);
}

#[test]
fn mistakes_are_told_in_a_line() {
    let directory = site();
    let (server, door) = served(directory.path(), &[]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (arguments, status, part) in [
        (&["--admin", &gone.to_string()][..], 1, "no server has its admin door there; start one"),
        (&["--admin", "unix:/no/such"], 1, "unix:/no/such: no server has its admin door there"),
        (&["--admin", "9100"], 2, "or unix:PATH"),
        (&["--admin", &server.address.to_string()], 1, "no admin door of this version"),
        (&["--admin", &door, "state", "open"], 2, "there is no state \"open\": give one of"),
        (&["--admin", &door, "dport", "=", ":http"], 2, "\":http\" is no port"),
        (&["--admin", &door, "-u"], 2, "-u"),
        (&["--admin", &door, "--limit", "0"], 2, "give 1 or more"),
    ] {
        let (code, text) = refusal(arguments);
        assert!(code == status && text.contains(part), "{arguments:?}: {code} {text}");
    }
}
