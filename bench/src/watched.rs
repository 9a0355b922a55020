//! What it costs a server to be watched: processor time for a request, with the admin door scraped
//! each second, its page open and an access log, beside none of that. Rounds alternate, since a
//! machine is not as fast at all times. And how long a scrape takes with many connections at rest.
//!
//! ```text
//!   processor 0                         processor 1
//!   lightwait serve ──────── TAP ────── wrk, the kernel's TCP
//!                   ──── loopback ───── curl: /metrics each second; /rates and /summary, as the
//!                                       page asks for them
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::live::{self, Failure, Namespace, Process, Server, processor_time};
use crate::today::requests;

/// The server's address, and its admin door's.
const ADDRESS: &str = "10.9.0.1";
const DOOR: &str = "127.0.0.1:9100";
/// Bytes of the file that is asked for.
const BYTES: usize = 500;
/// How long the connections may take to come, and then to rest.
const OPENING: Duration = Duration::from_secs(300);
const RESTING: Duration = Duration::from_secs(8);
/// The age from which on a file's version can be told by its times.
const SETTLED: Duration = Duration::from_secs(3);

/// What looks at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing.
    Nothing,
    /// `/metrics` each second, and what the live page asks for.
    Door,
    /// An access log, to a file.
    Log,
    /// Both.
    All,
}

impl Watch {
    /// All, in the order of a round.
    pub const ALL: [Watch; 4] = [Watch::Nothing, Watch::Door, Watch::Log, Watch::All];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Watch::Nothing => "nothing",
            Watch::Door => "door",
            Watch::Log => "log",
            Watch::All => "all",
        }
    }

    fn has_door(self) -> bool {
        matches!(self, Watch::Door | Watch::All)
    }

    fn has_log(self) -> bool {
        matches!(self, Watch::Log | Watch::All)
    }
}

/// The result of one load.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// What looked at the server.
    pub watch: Watch,
    /// Requests a second.
    pub rate: f64,
    /// Processor time of the server's process, all threads, for a request.
    pub processor_us: f64,
    /// Scrapes of `/metrics` meanwhile.
    pub scrapes: u64,
}

/// A load's length and breadth.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections, which stay.
    pub connections: u32,
    /// How long.
    pub seconds: u32,
}

/// The server, and the namespace that it and its clients share.
struct Serving {
    server: Server,
    clients: Namespace,
}

impl Serving {
    fn start(directory: &Path, watch: Watch) -> Result<Serving, Failure> {
        let program = live::lightwait()?;
        let clients = Namespace::new()?;
        let mut serve = clients.command_on(0, &program);
        serve.args(["serve", "--tap", "tap0", "--ip", &format!("{ADDRESS}/24")]);
        serve.args(["--gateway", "10.9.0.2", "--max-client-connections", "2000000"]);
        if watch.has_door() {
            serve.args(["--admin", DOOR]);
        }
        if watch.has_log() {
            let log = directory.join("access.log");
            serve.arg("--access-log").arg(log).args(["--access-log-format", "combined"]);
        }
        let server = Server::start(serve.arg(directory.join("site")))?;
        live::wait_until("the server answers", || {
            let mut curl = clients.command_on(1, "curl");
            curl.args(["--silent", "--fail", "--max-time", "1", "--output", "/dev/null"]);
            Ok(curl.arg(format!("http://{ADDRESS}/file")).status()?.success())
        })?;
        Ok(Serving { server, clients })
    }

    /// Asks the door for `paths` each second, to the end.
    fn ask(&self, paths: &[&str]) -> Result<Process, Failure> {
        let asks: Vec<_> = paths
            .iter()
            .map(|path| format!("curl -s -o /dev/null 'http://{DOOR}{path}'"))
            .collect();
        let script = format!("while true; do {}; sleep 1; done", asks.join("; "));
        Process::start(self.clients.command_on(1, "sh").args(["-c", &script]))
    }
}

/// A directory with the file.
fn site(directory: &Path) -> Result<(), Failure> {
    let site = directory.join("site");
    fs::create_dir_all(&site)?;
    fs::write(site.join("file"), vec![b'x'; BYTES])?;
    // The server keeps nothing of a file that has just changed.
    thread::sleep(SETTLED);
    Ok(())
}

/// Loads a server once for each kind of watching, round by round, and tells `tell` of each.
///
/// # Errors
/// If a namespace, a device or the server cannot be made, or requests fail.
pub fn cost(
    directory: &Path,
    rounds: u32,
    load: Load,
    mut tell: impl FnMut(&Measured),
) -> Result<Vec<Measured>, Failure> {
    site(directory)?;
    let mut all = Vec::new();
    for round in 0..rounds {
        // Which comes first changes, too.
        let mut order = Watch::ALL;
        order.rotate_left(round as usize % Watch::ALL.len());
        for watch in order {
            let measured = measure(directory, watch, load)?;
            tell(&measured);
            all.push(measured);
        }
    }
    Ok(all)
}

fn measure(directory: &Path, watch: Watch, load: Load) -> Result<Measured, Failure> {
    let serving = Serving::start(directory, watch)?;
    let _askers = if watch.has_door() {
        // The page asks for rates over a second, and then for the sockets.
        vec![serving.ask(&["/metrics"])?, serving.ask(&["/rates?seconds=1", "/summary"])?]
    } else {
        Vec::new()
    };
    wrk(&serving, Load { seconds: 1, ..load })?;
    let before = processor_time(serving.server.id())?;
    let (count, seconds) = wrk(&serving, load)?;
    let time = processor_time(serving.server.id())?.saturating_sub(before);
    if watch.has_log() {
        let log = fs::read_to_string(directory.join("access.log"))?;
        let lines = log.lines().count() as u64;
        if lines < count / 2 {
            return Err(format!("{lines} lines of {count} requests in the log").into());
        }
        fs::remove_file(directory.join("access.log"))?;
    }
    serving.server.stop()?;
    Ok(Measured {
        watch,
        rate: count as f64 / seconds,
        processor_us: time.as_secs_f64() * 1e6 / count as f64,
        scrapes: if watch.has_door() { u64::from(load.seconds) } else { 0 },
    })
}

fn wrk(serving: &Serving, load: Load) -> Result<(u64, f64), Failure> {
    let mut wrk = serving.clients.command_on(1, "wrk");
    wrk.args(["--threads", "1", "--connections", &load.connections.to_string()]);
    wrk.args(["--duration", &format!("{}s", load.seconds)]);
    requests(&live::run(wrk.arg(format!("http://{ADDRESS}/file")))?)
}

/// What was measured of scrapes.
#[derive(Clone, Debug)]
pub struct Scrapes {
    /// Connections of the server meanwhile.
    pub connections: u64,
    /// How long each took, as curl tells.
    pub times: Vec<Duration>,
    /// Bytes of an answer.
    pub bytes: usize,
}

/// Opens so many connections of our own stack that rest, over a veth, and scrapes.
///
/// # Errors
/// If a namespace, a device or the server cannot be made, or the connections do not come.
pub fn scrapes(directory: &Path, connections: u32, times: u32) -> Result<Scrapes, Failure> {
    site(directory)?;
    let program: PathBuf = live::lightwait()?;
    let [servers, clients] = [Namespace::new()?, Namespace::new()?];
    servers.ip("link add server type veth peer name client")?;
    servers.give("client", &clients)?;
    servers.ip("link set server up")?;
    clients.ip("link set client up")?;
    let mut serve = servers.command_on(0, &program);
    serve.args(["serve", "--af-packet", "server", "--ip", &format!("{ADDRESS}/16")]);
    serve.args(["--probe", "100ms", "--max-client-connections", "2000000", "--memory", "8G"]);
    serve.args(["--max-connections", "2000000", "--set", "limits.connections=2000000"]);
    let mut server = Server::start(serve.args(["--admin", DOOR]).arg(directory.join("site")))?;
    let mut load = clients.command_on(1, &program);
    load.args(["load", &format!("http://{ADDRESS}/file"), "--idle", &connections.to_string()]);
    load.args(["--af-packet", "client", "--ip", "10.9.0.2/16", "--source", "10.9.128.0/20"]);
    load.args(["--duration", "10m"]);
    let mut load = Process::start(load.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let end = Instant::now() + OPENING;
    while server.held("http_connections")? < u64::from(connections) {
        if Instant::now() > end || !load.runs()? {
            let held = server.held("http_connections")?;
            return Err(format!("only {held} connections came").into());
        }
        thread::sleep(Duration::from_secs(1));
    }
    // Those on which nothing moves come to rest.
    thread::sleep(RESTING);
    let (mut all, mut bytes) = (Vec::new(), 0);
    for _ in 0..times {
        let mut curl: Command = servers.command_on(1, "curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{time_total} %{size_download}"]);
        let told = live::run(curl.arg(format!("http://{DOOR}/metrics")))?;
        let (time, size) = told.split_once(' ').ok_or("curl told nothing")?;
        all.push(Duration::from_secs_f64(time.parse()?));
        bytes = size.parse()?;
        thread::sleep(Duration::from_millis(200));
    }
    let connections = server.held("http_connections")?;
    drop(load);
    server.stop()?;
    Ok(Scrapes { connections, times: all, bytes })
}
