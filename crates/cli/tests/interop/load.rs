//! `lightwait load`: on our stack against the kernel's, and the other way round.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::client::Nginx;
use crate::namespace::{self, Namespace, ip};
use crate::server::{Cable, Server, URLS, reach};
use crate::tools;

/// Puts a load on, and returns its report.
pub(crate) fn load(arguments: &[&str]) -> Value {
    let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    let output = load.arg("load").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

fn answer(mut stream: TcpStream) {
    if stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
        let _ = stream.write_all(ANSWER);
    }
}

/// A server of the kernel's that keeps who has come.
fn kernels_server() -> Arc<Mutex<Vec<SocketAddr>>> {
    let listener = TcpListener::bind("0.0.0.0:8080").unwrap();
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            seen.lock().unwrap().push(stream.peer_addr().unwrap());
            answer(stream);
        }
    });
    peers
}

#[test]
fn our_stack_loads_a_kernel_server_from_a_range_of_addresses() {
    let test = "load::our_stack_loads_a_kernel_server_from_a_range_of_addresses";
    namespace::inside(test, &[], || {
        let cable = Cable::best();
        cable.prepare();
        let peers = kernels_server();
        let flags = ["--ip", "10.77.0.2/24", "--source", "10.77.0.128/25", "--rate", "500"];
        let more = ["--ports", "20000-20499", "--warm-up", "0", "--duration", "2s"];
        let url = &["http://10.77.0.1:8080/"];
        let report = load(&[&url[..], cable.flags(), &flags, &more].concat());
        assert_eq!(report["requests_answered"], 1000, "{report}");
        assert_eq!(report["requests_failed"], 0, "{report}");
        assert_eq!(report["closed_by_server"], 1000);
        // ceil(500/s · (65 s + 11 s) / 500 ports)
        assert_eq!(report["sources"]["addresses"], 76);
        let peers = peers.lock().unwrap();
        assert_eq!(peers.iter().collect::<HashSet<_>>().len(), 1001, "no 4-tuple comes twice");
        assert_eq!(peers.iter().map(SocketAddr::ip).collect::<HashSet<_>>().len(), 76);
    });
}

#[test]
fn the_kernels_stack_loads_our_server_from_a_given_range() {
    let test = "load::the_kernels_stack_loads_our_server_from_a_given_range";
    namespace::inside(test, &[], || {
        let site = tools::directory();
        std::fs::write(site.path().join("small"), [b'x'; 500]).unwrap();
        let server = Server::on(Cable::best(), site.path(), &["--gateway", "10.77.0.1"]);
        // The command that `load` names where the kernel lacks addresses.
        ip("route add local 10.78.0.0/16 dev lo");
        let url = format!("{}/small", URLS[0]);
        let flags = ["--source", "10.78.0.0/16", "--rate", "2000", "--duration", "2s"];
        let report = load(&[&[&*url], &flags[..], &["--warm-up", "0"]].concat());
        assert_eq!(report["requests_answered"], 4000, "{report}");
        assert_eq!(report["requests_failed"], 0, "{report}");
        assert!(report["sources"]["addresses"].as_u64().unwrap() >= 5, "{report}");
        server.stop();
    });
}

#[test]
fn idle_connections_stay_though_memory_is_short_for_all_at_once() {
    let test = "load::idle_connections_stay_though_memory_is_short_for_all_at_once";
    namespace::inside(test, &[], || {
        let site = tools::directory();
        std::fs::write(site.path().join("small"), [b'x'; 500]).unwrap();
        // A connection takes 2 KiB while it rests, and 21 KiB for a second behind a request.
        let flags = ["--gateway", "10.77.0.1", "--memory", "96M"];
        let server = Server::on(Cable::best(), site.path(), &flags);
        ip("route add local 10.78.0.0/16 dev lo");
        let url = format!("{}/small", URLS[0]);
        let report = load(&[&url, "--source", "10.78.0.0/16", "--idle", "15000", "-d", "2s"]);
        assert_eq!(report["idle"]["held"], 15_000, "{report}");
        server.stop();
    });
}

/// A machine of four, with 14 source addresses of its own.
fn machine(number: u32) -> Namespace {
    let machine = Namespace::new();
    ip(&format!("link add h{number} type veth peer name m{number}"));
    machine.take(&format!("m{number}"));
    ip(&format!("addr add 10.79.{number}.1/30 dev h{number}"));
    ip(&format!("link set h{number} up"));
    machine.ip(&format!("addr add 10.79.{number}.2/30 dev m{number}"));
    machine.ip(&format!("link set m{number} up"));
    machine.ip(&format!("route add local 10.78.{number}.0/28 dev lo"));
    machine.ip(&format!("route add default via 10.79.{number}.1"));
    ip(&format!("route add 10.78.{number}.0/28 via 10.79.{number}.2"));
    machine
}

#[test]
fn four_machines_put_on_one_load_and_their_reports_are_joined() {
    let test = "load::four_machines_put_on_one_load_and_their_reports_are_joined";
    namespace::inside(test, &["nsenter", "unshare"], || {
        let peers = kernels_server();
        let site = tools::directory();
        let program = env!("CARGO_BIN_EXE_lightwait");
        let url = "http://10.100.0.1:8080/";
        ip("addr add 10.100.0.1/32 dev lo");
        let sources = "10.78.1.0/28,10.78.2.0/28,10.78.3.0/28,10.78.4.0/28";
        let load = ["--rate", "800", "-d", "3s", "--warm-up", "0", "--ports", "20000-20999"];
        let started = (1..=4).map(|number| {
            let machine = machine(number);
            let part = format!("{number}/4");
            let report = std::fs::File::create(site.path().join(number.to_string())).unwrap();
            let mut command = machine.command(program);
            command.args(["load", url, "--json", "--source", sources, "--part", &part]).args(load);
            let process = command.stdout(report).spawn().unwrap();
            (machine, process)
        });
        for (_machine, mut process) in started.collect::<Vec<_>>() {
            assert!(process.wait().unwrap().success());
        }
        let paths = [1, 2, 3, 4].map(|number: u32| site.path().join(number.to_string()));
        let mut merge = Command::new(program);
        let text = tools::output(merge.args(["load", "merge", "--json"]).args(&paths));
        let merged: Value = serde_json::from_str(&text).unwrap();
        {
            let mut peers = peers.lock().unwrap();
            // One more of each for the first look.
            assert_eq!(peers.len(), 2404);
            assert_eq!(peers.iter().collect::<HashSet<_>>().len(), 2404, "no 4-tuple comes twice");
            peers.clear();
        }
        ip("route add local 10.78.0.0/16 dev lo");
        let mut one = Command::new(program);
        one.args(["load", url, "--json", "--source", "10.78.9.0/25"]).args(load);
        let one: Value = serde_json::from_str(&tools::output(&mut one)).unwrap();
        for key in ["requests_answered", "requests_failed", "rate_asked", "closed_by_server"] {
            assert_eq!(merged[key], one[key], "{key}: {merged}\n{one}");
        }
        assert_eq!(merged["requests_answered"], 2400);
        assert_eq!(merged["latency_ns"]["total"]["count"], 2400);
        assert_eq!(merged["sources"]["addresses"], 4 * 14, "all there are");
        assert!(!merged["warnings"].to_string().contains("missing"), "{merged}");
        // A machine that is busy may start the parts seconds apart.
        let seconds = merged["seconds"].as_array().unwrap();
        let answered = seconds.iter().filter_map(|second| second["answered"].as_u64());
        let ended = merged["ended"]["answered"].as_u64();
        assert_eq!(Some(answered.sum::<u64>()), ended, "those of the grace belong to no second");
        // What a part alone says is not all of it.
        let mut merge = Command::new(program);
        let text = tools::output(merge.args(["load", "merge"]).args(&paths[..3]));
        assert!(text.contains("of its parts 4/4 are missing"), "{text}");
    });
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connections of the kernel's that are in TIME-WAIT.
pub(crate) fn in_time_wait() -> u64 {
    let counts = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    let mut words = counts.split_whitespace().skip_while(|word| *word != "tw");
    words.nth(1).unwrap().parse().unwrap()
}

/// The server closes first, and our stack takes TIME-WAIT over from it.
#[test]
fn nginx_keeps_no_time_wait_where_the_load_takes_it_over() {
    let test = "load::nginx_keeps_no_time_wait_where_the_load_takes_it_over";
    namespace::inside(test, &["nginx"], || {
        let site = tools::directory();
        std::fs::write(site.path().join("small"), [b'x'; 500]).unwrap();
        let cable = Cable::best();
        cable.prepare();
        // A TAP is there only while the load is.
        ip("addr add 10.77.0.1/32 dev lo");
        ip("addr add fd77::1/128 dev lo nodad");
        let _nginx = Nginx::start(site.path());
        let url = &["http://10.77.0.1:8080/small", "--rate", "1000", "--duration", "3s"];
        let flags = ["--ip", "10.77.0.2/24", "--source", "10.77.0.128/25", "--warm-up", "0"];
        // Each from ports of its own, so that no TIME-WAIT of the one before is in the way.
        let kept = |close, heeds_resets: bool, ports| {
            let rule = "/proc/sys/net/ipv4/tcp_rfc1337";
            std::fs::write(rule, if heeds_resets { "0" } else { "1" }).unwrap();
            let before = in_time_wait();
            let more = ["--close", close, "--ports", ports];
            let report = load(&[&url[..], cable.flags(), &flags, &more].concat());
            assert_eq!(report["requests_answered"], 3000, "{report}");
            assert_eq!(report["requests_failed"], 0, "{report}");
            assert_eq!(report["close"], close);
            in_time_wait() - before
        };
        assert!(kept("swap", true, "20000-24999") <= 30, "one in a hundred at most");
        assert!(kept("swap", false, "25000-29999") >= 3000, "it ignores every RST (RFC 1337)");
        assert!(kept("server", true, "30000-34999") >= 3000);
    });
}

#[test]
fn a_browser_shows_the_page_of_a_load_with_its_charts() {
    let test = "load::a_browser_shows_the_page_of_a_load_with_its_charts";
    namespace::inside(test, &["chromium"], || {
        let site = tools::directory();
        std::fs::write(site.path().join("small"), [b'x'; 500]).unwrap();
        let server = Server::bridged(site.path(), &[]);
        let page = site.path().join("load.html");
        let url = format!("{}/small", server.url);
        let flags = ["--rate", "200", "-d", "2s", "--warm-up", "1s", "--html"];
        let report = load(&[&[&*url], &flags[..], &[page.to_str().unwrap()]].concat());
        server.stop();
        let (document, picture) = tools::browse(&format!("file://{}", page.display()));
        let answered = format!("{} answered", report["requests_answered"]);
        assert!(answered != "0 answered" && document.contains(&answered), "{document}");
        for heading in ["Throughput", "4-tuples at rest", "Latency"] {
            assert!(document.contains(heading), "{heading}");
        }
        assert_eq!(document.matches("<svg").count(), 3);
        // What is drawn takes more than text alone.
        let text = site.path().join("text.html");
        let table = document.split("<h2>").next().unwrap();
        std::fs::write(&text, table).unwrap();
        let (_, plain) = tools::browse(&format!("file://{}", text.display()));
        assert!(picture.len() > plain.len() + 2000, "{} and {}", picture.len(), plain.len());
    });
}

/// nginx with TLS at 10.77.0.1, its files and its certificate in `site`.
fn nginx_with_tls(site: &Path) -> Running {
    let at = site.display();
    let request = "[req]\ndistinguished_name = name\nx509_extensions = server\n[name]\n\
                   [server]\nsubjectAltName = IP:10.77.0.1\nbasicConstraints = CA:FALSE\n";
    std::fs::write(site.join("request"), request).unwrap();
    let make = format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
         -subj /CN=load -config {at}/request -keyout {at}/key -out {at}/certificate"
    );
    tools::output(tools::command("openssl").args(make.split_whitespace()));
    std::fs::write(site.join("small"), [b'x'; 500]).unwrap();
    let configuration = format!(
        "daemon off; master_process off; user root; pid {at}/pid; error_log {at}/error;\n\
         events {{ }}\nhttp {{ access_log off; client_body_temp_path {at}/body;\n\
         proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
         server {{ listen 8443 ssl; ssl_certificate {at}/certificate;\n\
         ssl_certificate_key {at}/key; root {at}; }} }}\n"
    );
    std::fs::write(site.join("nginx.conf"), configuration).unwrap();
    let mut nginx = tools::command("nginx");
    nginx.arg("-c").arg(site.join("nginx.conf"));
    // Who reads this test's output is not to wait for it.
    Running(nginx.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn nginx_is_loaded_by_tls_on_either_stack_if_its_chain_is_good() {
    let test = "load::nginx_is_loaded_by_tls_on_either_stack_if_its_chain_is_good";
    namespace::inside(test, &["nginx", "openssl"], || {
        let site = tools::directory();
        let cable = Cable::best();
        cable.prepare();
        ip("addr add 10.77.0.1/32 dev lo");
        let _nginx = nginx_with_tls(site.path());
        reach("10.77.0.1", 8443);
        let url = "https://10.77.0.1:8443/small";
        let flags = ["--rate", "200", "-d", "2s", "--warm-up", "0", "--ports", "20000-39999"];
        let kernels: &[&str] = &["--source", "10.77.0.1"];
        let device = [cable.flags(), &["--ip", "10.77.0.2/24"]].concat();
        let joined = [kernels, &["--stack", "lightwait"]].concat();
        for stack in [kernels, &device, &joined] {
            let arguments = [&["load", url, "--json"], &flags[..], stack].concat();
            let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            load.args(&arguments).env("SSL_CERT_FILE", site.path().join("certificate"));
            let report: Value = serde_json::from_str(&tools::output(&mut load)).unwrap();
            assert_eq!(report["requests_answered"], 400, "{report}");
            assert_eq!(report["requests_failed"], 0, "{report}");
            assert_eq!(report["closed_by_server"], 400, "{report}");
            // The system's authorities did not sign it.
            let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            let output = load.args(&arguments).env_remove("SSL_CERT_FILE").output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains("its certificate"), "{text}");
            let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            let report = tools::output(load.args(&arguments).arg("--insecure"));
            let report: Value = serde_json::from_str(&report).unwrap();
            assert_eq!(report["requests_answered"], 400, "{report}");
            let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            let report = tools::output(load.args(&arguments).args([
                "--insecure",
                "--close",
                "client-close",
            ]));
            let report: Value = serde_json::from_str(&report).unwrap();
            assert_eq!(report["requests_answered"], 400, "{report}");
            assert_eq!(report["requests_failed"], 0, "{report}");
            assert_eq!(report["client_closes"], 400, "{report}");
        }
    });
}
