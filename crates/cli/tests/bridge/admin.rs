//! The admin door of `lightwait serve`.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;

use super::*;

/// The answer to a request on a connection of its own.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Makes a request, with these header lines, and reads the answer to its end.
fn ask(mut stream: impl Read + Write, method: &str, target: &str, headers: &str) -> Answer {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head[9..12].parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn door(server: &Server) -> TcpStream {
    let url = server.admin.as_ref().unwrap();
    TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')).unwrap()
}

fn get(server: &Server, target: &str) -> Answer {
    ask(door(server), "GET", target, "")
}

/// The sum over shards and stacks of each metric, without its labels.
fn sums(text: &str) -> HashMap<&str, f64> {
    let mut sums = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let name = name.split('{').next().unwrap();
        *sums.entry(name).or_default() += value.parse::<f64>().unwrap();
    }
    sums
}

fn connections(server: &Server, query: &str) -> (Vec<serde_json::Value>, bool) {
    let answer = get(server, &format!("/connections{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let object: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(object["silent_shards"], serde_json::json!([]));
    (object["connections"].as_array().unwrap().clone(), object["truncated"] == true)
}

fn served(flags: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = site();
    let flags = [&["--admin", "127.0.0.1:0", "--quiet"], flags].concat();
    let server = Server::start_with(directory.path(), &flags);
    (directory, server)
}

#[test]
fn metrics_are_what_the_shards_did() {
    let (_directory, server) = served(&["--shards", "2"]);
    for _ in 0..10 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    assert_eq!(server.get("/none").0, 404);
    // A response is noted once its peer has acknowledged all of it, and its connection at its end.
    let end = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let told = get(&server, "/metrics");
        let noted = sums(&told.body)["lightwait_connection_retransmits_count"];
        if noted >= 11.0 || Instant::now() > end {
            break told;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(told.head.contains("content-type: text/plain; version=0.0.4"), "{}", told.head);
    let sums = sums(&told.body);
    for (name, value) in [
        ("lightwait_shard_up", 2.0),
        ("lightwait_http_responses_total", 11.0),
        ("lightwait_http_responses_4xx_total", 1.0),
        ("lightwait_response_seconds_count", 11.0),
        ("lightwait_round_trip_seconds_count", 11.0),
        ("lightwait_response_retransmits_count", 11.0),
        ("lightwait_first_byte_seconds_count", 11.0),
        ("lightwait_connection_retransmits_count", 11.0),
    ] {
        assert_eq!(sums.get(name), Some(&value), "{name}");
    }
    let passive = r#"lightwait_passive_opens_total{shard="1",stack="the server's stack"}"#;
    assert!(told.body.contains(passive), "{}", told.body);
    let open = ask(door(&server), "GET", "/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.ends_with("# EOF\n"));
}

#[test]
fn connections_are_listed_by_state_and_peer() {
    let (_directory, server) = served(&["--shards", "2"]);
    let kept: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        })
        .collect();
    let (all, is_cut) = connections(&server, "");
    assert_eq!((all.len(), is_cut), (20, false));
    let shards: Vec<u64> = all.iter().map(|one| one["shard"].as_u64().unwrap()).collect();
    assert!(shards.contains(&0) && shards.contains(&1), "{shards:?}");
    let one = &all[7];
    assert_eq!(one["state"], "ESTABLISHED");
    assert!(one["srtt_us"].as_u64().unwrap() > 0 && one["cwnd_bytes"].as_u64().unwrap() > 0);
    assert!(one["sent_bytes"].as_u64().unwrap() > 100, "{one}");
    let (found, _) = connections(&server, &format!("?peer={}", one["peer"].as_str().unwrap()));
    assert!(!found.is_empty() && found.iter().all(|it| it["peer"] == one["peer"]), "{found:?}");
    assert!(!connections(&server, "?limit=20").1);
    let (some, is_cut) = connections(&server, "?limit=19&state=established");
    assert_eq!((some.len(), is_cut), (19, true));
    assert_eq!(connections(&server, "?state=CLOSE-WAIT").0.len(), 0);
    assert_eq!(connections(&server, "?peer=192.0.2.0/24").0.len(), 0);
    // A walk in pieces sees each once, over both shards.
    let (mut walked, mut next) = (Vec::new(), String::new());
    loop {
        let answer = get(&server, &format!("/connections?limit=7{next}"));
        let mut answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let serde_json::Value::Array(found) = answer["connections"].take() else { panic!() };
        assert!(found.len() <= 7);
        walked.extend(found.iter().map(|it| format!("{} {}", it["shard"], it["id"])));
        let Some(from) = answer["next"].as_str() else { break };
        next = format!("&from={from}");
    }
    walked.sort();
    walked.dedup();
    assert_eq!(walked.len(), 20);
    drop(kept);
}

#[test]
fn what_the_door_does_not_have_it_says() {
    let (_directory, server) = served(&[]);
    assert_eq!(get(&server, "/healthz").body, "ok\n");
    let (page, again) = (get(&server, "/"), get(&server, "/"));
    assert!(page.status == 200 && page.head.contains("content-type: text/html"), "{}", page.head);
    // It loads nothing from elsewhere, and what is put into it does not run.
    let nonce = |page: &Answer| {
        let policy = page.head.lines().find(|it| it.starts_with("content-security-policy:"));
        let policy = policy.unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        policy.split("script-src 'nonce-").nth(1).unwrap()[..32].to_owned()
    };
    assert_ne!(nonce(&page), nonce(&again), "nobody can know it");
    assert_eq!(page.body.matches(&format!("nonce=\"{}\"", nonce(&page))).count(), 2);
    for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "innerHTML", "eval("] {
        assert!(!page.body.contains(outside), "{outside}");
    }
    let none = get(&server, "/metric");
    assert!(none.status == 404 && none.body.contains("/metrics"), "{}", none.body);
    let post = ask(door(&server), "POST", "/metrics", "Content-Length: 0\r\n");
    assert!(post.status == 405 && post.head.contains("allow: GET, HEAD"), "{}", post.head);
    let head = ask(door(&server), "HEAD", "/metrics", "");
    assert!(head.status == 200 && head.body.is_empty());
    let wrong = get(&server, "/connections?state=open");
    assert!(wrong.status == 400 && wrong.body.contains("established"), "{}", wrong.body);
    let config: serde_json::Value = serde_json::from_str(&get(&server, "/config").body).unwrap();
    assert_eq!(config["knobs"]["time_wait.length"], "60s");
}

#[test]
fn a_summary_counts_every_socket_and_names_the_notable() {
    let (_directory, server) = served(&["--shards", "2"]);
    let _kept = ss::kept(&server, 30);
    for _ in 0..9 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    // A peer that takes nothing of a long answer.
    let mut stalled = server.connect();
    stalled.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let told = loop {
        let told: serde_json::Value = serde_json::from_str(&get(&server, "/summary").body).unwrap();
        let is_all = told["states"]["TIME-WAIT"] == 9 && told["stalled"][0].is_object();
        if is_all || Instant::now() > end {
            break told;
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(told["states"]["ESTABLISHED"], 31, "{told}");
    assert_eq!(told["states"]["LISTEN"], 2);
    assert_eq!(told["sockets"], 31 + 2 + 9);
    let ages = told["time_wait"].as_array().unwrap();
    assert_eq!(ages.iter().map(|part| part["count"].as_u64().unwrap()).sum::<u64>(), 9);
    assert_eq!(told["holders"], serde_json::json!({ "closer": 9, "ourselves": 0 }));
    let slowest = told["slowest"].as_array().unwrap();
    let trips: Vec<u64> = slowest.iter().map(|it| it["srtt_us"].as_u64().unwrap()).collect();
    assert!(trips.len() == 20 && trips.is_sorted_by(|a, b| a >= b), "{trips:?}");
    assert_eq!(told["stalled"].as_array().unwrap().len(), 1);
    assert!(told["stalled"][0]["send_buffered_bytes"].as_u64().unwrap() > 0);
    assert_eq!(told["stalled"][0]["client"], stalled.local_addr().unwrap().to_string());
    assert!(told["sending_bytes"].as_u64().unwrap() > 0);
    assert_eq!(
        (&told["truncated"], &told["silent_shards"]),
        (&false.into(), &serde_json::json!([]))
    );
}

/// What the door captures, and whether it was cut: the frames of a pcapng file.
fn captured(server: &Server, query: &str) -> (Vec<Vec<u8>>, bool) {
    let mut stream = door(server);
    let request =
        format!("GET /capture{query} HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}{}", String::from_utf8_lossy(&answer[end..]));
    assert!(head.contains("content-disposition: attachment"), "{head}");
    let packets = Reader::new(&answer[end..]).filter_map(|block| match block.unwrap() {
        Block::Packet { bytes, .. } => Some(bytes.to_vec()),
        _ => None,
    });
    (packets.collect(), head.contains("lightwait-truncated: true"))
}

#[test]
fn frames_of_one_connection_or_of_all_are_captured_for_a_while() {
    let (_directory, server) = served(&["--shards", "2"]);
    let mut streams = ss::kept(&server, 6);
    let (all, _) = connections(&server, "");
    let peer = all[2]["peer"].as_str().unwrap();
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    };
    let while_asked = |streams: &mut [TcpStream], query: &str| {
        thread::scope(|scope| {
            let capture = scope.spawn(|| captured(&server, query));
            thread::sleep(Duration::from_millis(300));
            // There is one at a time.
            let second = get(&server, "/capture?seconds=0.1");
            assert!(
                second.status == 409 && second.body.contains("one at a time"),
                "{}",
                second.body
            );
            streams.iter_mut().for_each(ask);
            capture.join().unwrap()
        })
    };
    let (frames, is_cut) = while_asked(&mut streams, "?seconds=1");
    let requests = |frames: &[Vec<u8>]| {
        frames.iter().filter(|it| it.windows(5).any(|five| five == b"GET /")).count()
    };
    assert_eq!((requests(&frames), is_cut), (6, false), "{} frames", frames.len());
    assert!(frames.len() >= 12, "with their answers: {}", frames.len());
    let filter = format!("?seconds=1&filter=dst+=+{peer}");
    let (frames, _) = while_asked(&mut streams, &filter);
    assert_eq!(requests(&frames), 1, "{} frames", frames.len());
    assert!((2..=6).contains(&frames.len()), "{}", frames.len());
    // One that is full ends at once, with a whole frame.
    let begin = Instant::now();
    let (frames, is_cut) = thread::scope(|scope| {
        let capture = scope.spawn(|| captured(&server, "?seconds=20&bytes=65536"));
        thread::sleep(Duration::from_millis(300));
        assert_eq!(server.get("/large").0, 200);
        capture.join().unwrap()
    });
    assert!(is_cut && !frames.is_empty() && begin.elapsed() < Duration::from_secs(15));
    assert!(frames.iter().map(Vec::len).sum::<usize>() <= 65536);
    assert_eq!(get(&server, "/capture?seconds=0").status, 400);
}

#[test]
fn an_asker_that_leaves_ends_its_capture() {
    let (_directory, server) = served(&[]);
    let mut leaving = door(&server);
    leaving.write_all(b"GET /capture?seconds=60 HTTP/1.1\r\nHost: [::1]\r\n\r\n").unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(get(&server, "/capture?seconds=0.1").status, 409);
    drop(leaving);
    let end = Instant::now() + Duration::from_secs(10);
    while get(&server, "/capture?seconds=0.1").status == 409 {
        assert!(Instant::now() < end, "it goes on");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn events_of_a_connection_or_of_a_sample_are_logged_for_a_while() {
    let (_directory, server) = served(&["--shards", "2"]);
    let mut streams = ss::kept(&server, 6);
    let (all, _) = connections(&server, "");
    let peer = all[2]["peer"].as_str().unwrap();
    let mut logged = |query: &str| {
        thread::scope(|scope| {
            let log = scope.spawn(|| get(&server, &format!("/events?seconds=1{query}")));
            thread::sleep(Duration::from_millis(300));
            assert_eq!(get(&server, "/events?seconds=0.1").status, 409, "one at a time");
            assert_eq!(get(&server, "/capture?seconds=0.1").status, 409, "or a capture");
            for stream in &mut streams {
                stream.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            }
            log.join().unwrap()
        })
    };
    let groups = |body: &str| {
        let records = body.split('\u{1e}').skip(2);
        let records = records.map(|it| serde_json::from_str::<serde_json::Value>(it).unwrap());
        let groups = records.map(|it| it["group_id"].as_str().unwrap().to_owned());
        groups.collect::<std::collections::BTreeSet<_>>()
    };
    let answer = logged("");
    assert_eq!((answer.status, groups(&answer.body).len()), (200, 6));
    assert!(answer.body.contains("tcp:segment_sent"), "{}", answer.body);
    let one = groups(&logged(&format!("&filter=dst+=+{peer}")).body);
    assert!(one.len() == 1 && one.first().unwrap().ends_with(peer), "{one:?}");
    // Each shard has a part of the places, and says what it had no room for.
    let few = logged("&connections=2").body;
    assert!(groups(&few).len() <= 2 && few.contains("\"connections_left_out\":"), "{few}");
    assert!(groups(&logged("&sample=1000000").body).is_empty());
    assert_eq!(get(&server, "/events?sample=0").status, 400);
}

/// The names of our metrics in a text.
fn metric_names(text: &str) -> std::collections::BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let found = text.match_indices("lightwait_").map(|(at, _)| {
        let rest = &text[at..];
        &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]
    });
    found.collect()
}

#[test]
fn what_dashboard_and_alerts_ask_for_is_there() {
    let (_directory, server) = served(&["--shards", "2"]);
    let metrics = get(&server, "/metrics").body;
    let known = metric_names(&metrics);
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for (path, least) in [("grafana/lightwait.json", 40), ("prometheus/lightwait.rules.yml", 15)] {
        let text = fs::read_to_string(deploy.join(path)).unwrap();
        let asked = metric_names(&text);
        assert!(asked.len() >= least, "{path}: {asked:?}");
        let missing: Vec<_> = asked.difference(&known).collect();
        assert!(missing.is_empty(), "{path} asks for {missing:?}");
    }
}

/// A page of a stranger's, whose name leads here, is another origin's to a browser, but not to us.
#[test]
fn a_door_of_this_machine_answers_to_no_other_name() {
    let (_directory, server) = served(&[]);
    let ask_as = |host: &str| {
        let mut stream = door(&server);
        let request = format!("GET /config HTTP/1.1\r\nConnection: close\r\n{host}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text[9..12].parse::<u16>().unwrap()
    };
    for host in ["Host: localhost:9100\r\n", "Host: 127.0.0.1\r\n", "Host: [::1]:80\r\n"] {
        assert_eq!(ask_as(host), 200, "{host}");
    }
    let site = "Host: localhost\r\nSec-Fetch-Site: ";
    assert_eq!(ask_as(&format!("{site}same-origin\r\n")), 200);
    assert_eq!(ask_as(&format!("{site}cross-site\r\n")), 403);
    for host in ["Host: rebound.test:9100\r\n", "Host: localhost.test\r\n", "Host: a b\r\n"] {
        assert_eq!(ask_as(host), 421, "{host}");
    }
}

/// What the page of questions names is what the server counts.
#[test]
fn the_operators_page_names_counters_that_there_are() {
    let (_directory, server) = served(&["--shards", "2", "--self-signed"]);
    let metrics = get(&server, "/metrics").body;
    let known = metric_names(&metrics);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
    let page = fs::read_to_string(page).unwrap();
    let words = page.split('`').skip(1).step_by(2);
    let is_counter = |word: &&str| {
        word.contains('_')
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let named: Vec<&str> = words.filter(is_counter).filter(|word| *word != "lightwait_").collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let full = [format!("lightwait_{name}"), format!("lightwait_{name}_total")];
        assert!(full.iter().any(|full| known.contains(&**full)), "{name}");
    }
}

#[test]
fn a_server_that_stops_is_healthy_and_not_ready() {
    let (_directory, server) = served(&[]);
    assert_eq!(get(&server, "/readyz").status, 200);
    let mut stream = server.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    server.signal("TERM");
    let end = Instant::now() + Duration::from_secs(10);
    while get(&server, "/readyz").status == 200 {
        assert!(Instant::now() < end, "it does not stop");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(get(&server, "/readyz").body.contains("stops"));
    assert_eq!(get(&server, "/healthz").status, 200);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 7 << 20, "what was asked for comes whole");
    assert!(server.finish().0.success());
}

#[test]
fn a_door_may_be_a_socket_in_the_file_system() {
    let directory = site();
    let path = directory.path().join("door");
    let admin = format!("unix:{}", path.display());
    let server = Server::start_with(directory.path(), &["--admin", &admin, "--quiet"]);
    assert_eq!(server.admin.as_ref(), Some(&admin));
    let answer = ask(UnixStream::connect(&path).unwrap(), "GET", "/healthz", "");
    assert_eq!(answer.body, "ok\n");
    let second = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", &admin])
        .arg(directory.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && error.contains("--admin unix:"), "{error}");
    assert!(error.contains("another program's socket is there"), "{error}");
    assert!(server.finish_after("TERM").0.success());
    assert!(!path.exists(), "it goes with the program");
}

#[test]
fn a_door_full_of_silent_clients_opens_again() {
    let (_directory, server) = served(&[]);
    // More than it serves at a time.
    let silent: Vec<TcpStream> = (0..40).map(|_| door(&server)).collect();
    let waiting = door(&server);
    thread::sleep(Duration::from_millis(200));
    drop(silent);
    assert_eq!(ask(waiting, "GET", "/healthz", "").body, "ok\n");
    assert_eq!(server.get("/hello.txt").0, 200);
}
