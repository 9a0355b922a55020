//! `serve --config FILE`, and `lightwait check FILE`.

use super::*;

#[test]
fn a_file_says_how_to_serve_and_a_flag_goes_first() {
    let directory = site();
    let file = directory.path().join(".serve.toml");
    let text =
        "index = 'none'\nno-listing = true\n\n[set]\nlimits.time_wait = 3\nrto.floor = '9ms'\n";
    std::fs::write(&file, text).unwrap();
    let checked = check(&file);
    assert!(checked.0, "{}", checked.1);
    assert!(checked.1.ends_with(": 3 keys, no fault\n"), "{}", checked.1);
    let flags = ["--config", file.to_str().unwrap(), "--index", "hello.txt", "--set"];
    let mut server =
        Server::start_with(directory.path(), &[&flags[..], &["rto.floor=7ms"]].concat());
    assert_eq!(server.get("/").0, 200, "the index of the flag");
    server.signal("USR1");
    assert_eq!(server.next("counts")["levels"]["time_wait"]["limit"], 3, "the file's knob");
    assert!(server.finish_after("TERM").0.success());
}

#[test]
fn a_hang_up_reads_the_file_again_for_all_shards() {
    let directory = site();
    let file = directory.path().join(".serve.toml");
    let write = |text: &str| std::fs::write(&file, format!("shards = 2\n{text}")).unwrap();
    write("");
    let mut server = Server::start_with(directory.path(), &["--config", file.to_str().unwrap()]);
    assert_eq!(server.get("/none").0, 404);
    write("fallback = 'hello.txt'\nfile-cache-open = 7\nmax-connections = 2\n");
    server.signal("HUP");
    let trouble = server.next("trouble");
    let text = trouble["text"].as_str().unwrap();
    assert!(text.contains("file-cache-open changed, which takes a restart"), "{text}");
    let reloaded = server.next("reloaded");
    assert_eq!(reloaded["keys"], serde_json::json!(["fallback", "max-connections"]));
    // A shard takes it between two turns. The kernel spreads the connections over both.
    thread::sleep(Duration::from_millis(200));
    for _ in 0..20 {
        assert_eq!(server.get("/none").0, 200);
    }
    // What takes a restart still does, and goes on to.
    server.signal("HUP");
    assert!(server.next("trouble")["text"].as_str().unwrap().contains("file-cache-open"));
    assert_eq!(server.next("reloaded")["keys"], serde_json::json!([]));
    // What is wrong changes nothing.
    write("fallbak = 'x'\n");
    server.signal("HUP");
    let trouble = server.next("trouble");
    let text = trouble["text"].as_str().unwrap();
    assert!(text.contains(":2:1: ") && !text.contains("stays as it was"), "{text}");
    let text = server.next("trouble")["text"].to_string();
    assert!(text.contains("stays as it was"), "{text}");
    // Nor does a file that is missing.
    write("fallback = 'none.txt'\n");
    server.signal("HUP");
    let text = server.next("trouble")["text"].to_string();
    assert!(text.contains("--fallback: there is no file") && text.contains("none.txt"), "{text}");
    assert_eq!(server.get("/none").0, 200);
    assert!(server.finish_after("TERM").0.success());
}

#[test]
fn a_host_has_a_directory_of_its_own() {
    let (directory, other) = (site(), tempfile::tempdir().unwrap());
    std::fs::write(other.path().join("own"), b"its own").unwrap();
    let vhost = format!("other.test={}", other.path().display());
    let server = Server::start_with(directory.path(), &["--vhost", &vhost]);
    let ask = |host: &str| {
        let mut stream = server.connect();
        let request = format!("GET /own HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("other.test:80").ends_with("\r\n\r\nits own"));
    assert!(ask("h").starts_with("HTTP/1.1 404"));
    assert!(server.finish_after("TERM").0.success());
}

/// Whether a file passes, and what is said of it.
fn check(file: &std::path::Path) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    let output = command.arg("check").arg(file).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_wrong_file_is_refused_with_each_place() {
    let directory = site();
    let file = directory.path().join("serve.toml");
    std::fs::write(&file, "indx = 'a.txt'\nmin-rate = -5\n").unwrap();
    let (passes, text) = check(&file);
    let at = |place: &str| format!("{}:{place}: ", file.display());
    assert!(!passes && text.contains(&at("1:1")) && text.contains(&at("2:12")), "{text}");
    assert!(text.contains("\"index\""), "{text}");
    // What the keys say together is judged as well, and a file that is not there.
    std::fs::write(&file, "shards = 4\nmax-responses = 3\n").unwrap();
    assert!(check(&file).1.contains("4 shards share it"), "{}", check(&file).1);
    std::fs::remove_file(&file).unwrap();
    assert!(check(&file).1.contains("No such file"), "{}", check(&file).1);
}
