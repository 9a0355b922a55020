//! The program, serving.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::namespace;

/// Our address of each IP version, and the kernel's.
pub(crate) const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// A server on two cores, as its flags say it.
pub(crate) const TWO_SHARDS: &[&str] = &["--shards", "2", "--pin", "no"];
pub(crate) const KERNELS: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// URLs of our server on a device.
pub(crate) const URLS: [&str; 2] = ["http://10.77.0.2", "http://[fd77::2]"];

/// What joins a host of ours to the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cable {
    Tap,
    Tun,
    PacketSocket,
}

impl Cable {
    /// A TAP if one can be made here.
    pub(crate) fn best() -> Cable {
        if namespace::can_make_tap() { Cable::Tap } else { Cable::PacketSocket }
    }

    /// Makes what must be there before the device is opened: interface `lw0` is ours.
    pub(crate) fn prepare(self) {
        if let Cable::PacketSocket = self {
            namespace::ip("link add lw0 type veth peer name lw1");
            namespace::ip("addr add 10.77.0.1/24 dev lw1");
            namespace::ip("addr add fd77::1/64 dev lw1 nodad");
            namespace::ip("link set lw1 up");
        }
    }

    /// The flags of our end. Nobody else is on a cable of the test's own: asking is short.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Cable::Tap => &["--tap", "lw0"],
            Cable::Tun => &["--tun", "lw0"],
            Cable::PacketSocket => &["--af-packet", "lw0", "--probe", "100ms"],
        }
    }
}

/// A server in a process of its own.
pub(crate) struct Server {
    process: Child,
    /// Its first URL, without the slash at the end.
    pub(crate) url: String,
    lines: BufReader<ChildStdout>,
}

impl Server {
    /// Serves `directory` on a device, reachable at [`URLS`], with more flags.
    pub(crate) fn on(cable: Cable, directory: &Path, flags: &[&str]) -> Server {
        cable.prepare();
        Server::start_on(cable, directory, flags)
    }

    /// Serves `directory` on a cable that is prepared.
    pub(crate) fn start_on(cable: Cable, directory: &Path, flags: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lightwait"));
        command.arg("serve").args(cable.flags());
        command.args(["--ip", "10.77.0.2/24", "--ip", "fd77::2/64"]);
        let server = Server::start(command.args(flags), directory);
        OURS.iter().for_each(|ours| reach(ours, 80));
        server
    }

    /// Serves `directory` through the bridge, as an ordinary user, from a copy of the program that
    /// such a one may run.
    pub(crate) fn bridged(directory: &Path, flags: &[&str]) -> Server {
        const NOBODY: u32 = 65_534;
        let program = directory.join("lightwait.program");
        std::fs::copy(env!("CARGO_BIN_EXE_lightwait"), &program).unwrap();
        let mut command = Command::new(&program);
        if namespace::has_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let server = Server::start(
            command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags),
            directory,
        );
        // A running program needs its file no more.
        std::fs::remove_file(program).unwrap();
        server
    }

    /// Starts a server by a command, and waits until it serves.
    pub(crate) fn start(command: &mut Command, directory: &Path) -> Server {
        let logs_requests = command.get_args().any(|argument| argument == "--access-log");
        let mut process = command
            .args(["--json"].iter().chain((!logs_requests).then_some(&"--quiet")))
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let serving = event(&mut lines, "serving");
        let url = serving["urls"][0].as_str().unwrap().trim_end_matches('/').to_owned();
        Server { process, url, lines }
    }

    /// Waits for the next event of that name in its log.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        event(&mut self.lines, name)
    }

    /// Waits until it ends by itself. What it said on standard error is there if it was asked for.
    pub(crate) fn end(mut self) -> Output {
        let mut output =
            Output { status: self.process.wait().unwrap(), stdout: Vec::new(), stderr: Vec::new() };
        self.lines.read_to_end(&mut output.stdout).unwrap();
        if let Some(stderr) = &mut self.process.stderr {
            stderr.read_to_end(&mut output.stderr).unwrap();
        }
        output
    }

    /// Its address, if the URL has a port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it as a user does: nothing may be left unfinished.
    pub(crate) fn stop(self) {
        self.stop_and_tell();
    }

    /// Stops it as a user does, and returns its output.
    pub(crate) fn stop_and_tell(mut self) -> String {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        assert!(text.contains(r#""unfinished":0"#), "{text}");
        text
    }
}

/// The next event of that name in a log.
fn event(log: &mut impl BufRead, name: &str) -> Value {
    loop {
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("no event `{name}`, but {line:?}: {error}"));
        if event["event"] == name {
            return event;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until somebody answers there: an interface that has just come up takes its time.
pub(crate) fn reach(ip: &str, port: u16) {
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let begin = Instant::now();
    while let Err(error) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
        assert!(begin.elapsed() < Duration::from_secs(20), "{address}: {error}");
        thread::sleep(Duration::from_millis(20));
    }
}
