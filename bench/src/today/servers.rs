//! Starts the servers, each with a namespace for its client. The kernel's congestion control is
//! CUBIC on every route, whatever the system's default is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::live::{self, Failure, Namespace, Process, Server};

/// The address and port of every server.
pub const ADDRESS: &str = "10.9.0.1:80";
/// Addresses of the client, beside its own, 10.9.0.2.
pub const SOURCES: &str = "10.8.0.0/24";

/// Files of so many bytes and more are sent by nginx with `sendfile`: it is slower for short ones.
const SENDFILE_FROM: usize = 64 << 10;

/// The age from which on the version of a file can be told by its times.
const SETTLED: Duration = Duration::from_secs(3);

/// A server and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nginx on the kernel's stack, over a veth.
    Nginx,
    /// Ours by a packet socket, over a veth.
    PacketSocket,
    /// Ours by AF_XDP, over a veth. Its other end completes checksums and cuts segments itself.
    AfXdp,
    /// Ours over a TAP.
    Tap,
    /// Ours over a TUN.
    Tun,
    /// No server: the loop that answers with so many ready-made bytes over a TAP ([`limit`]).
    ///
    /// [`limit`]: super::limit
    Limit(usize),
}

impl Kind {
    /// The servers.
    pub const SERVERS: [Kind; 5] =
        [Kind::Nginx, Kind::PacketSocket, Kind::AfXdp, Kind::Tap, Kind::Tun];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx, kernel (CUBIC), veth",
            Kind::PacketSocket => "lightwait, packet socket, veth",
            Kind::AfXdp => "lightwait, AF_XDP, veth",
            Kind::Tap => "lightwait, TAP",
            Kind::Tun => "lightwait, TUN",
            Kind::Limit(_) => "the TAP's limit",
        }
    }
}

/// A file to serve: its name, and its length in bytes.
pub type File = (&'static str, usize);

/// A server that runs on processor 0.
#[derive(Debug)]
pub struct Serving {
    /// The program `lightwait`.
    pub program: PathBuf,
    server: Running,
    /// The namespace of the server's interface, if it is not the client's.
    pub servers: Namespace,
    clients: Namespace,
    /// Processors that server and clients share; one: the server has the first, and the clients
    /// the second.
    cores: u16,
}

#[derive(Debug)]
enum Running {
    /// nginx, or the loop.
    Other(Process),
    Ours(Server),
}

impl Serving {
    /// Starts a server, with these files in `directory`, and one of ours with these settings.
    ///
    /// # Errors
    /// If a namespace, a device or the server cannot be made.
    pub fn start(
        directory: &Path,
        files: &[File],
        kind: Kind,
        settings: &[&str],
    ) -> Result<Serving, Failure> {
        Serving::start_on(1, directory, files, kind, settings)
    }

    /// Starts a server on so many cores, with a worker or a shard each. More than one it shares
    /// with its clients.
    ///
    /// # Errors
    /// [`Serving::start`] lists them.
    pub fn start_on(
        cores: u16,
        directory: &Path,
        files: &[File],
        kind: Kind,
        settings: &[&str],
    ) -> Result<Serving, Failure> {
        let program = live::lightwait()?;
        let site = directory.join("site");
        fs::create_dir_all(&site)?;
        for (name, bytes) in files {
            fs::write(site.join(name), vec![b'x'; *bytes])?;
        }
        // A server of ours keeps nothing of a file that has just changed.
        thread::sleep(SETTLED);
        let [servers, clients] = [Namespace::new()?, Namespace::new()?];
        if matches!(kind, Kind::Nginx | Kind::PacketSocket | Kind::AfXdp) {
            join(&servers, &clients)?;
        }
        // A load on the kernel's stack uses these addresses for many connections.
        clients.ip(&format!("route add local {SOURCES} dev lo"))?;
        let ours = |namespace: &Namespace, device: [&str; 2]| {
            let mut serve = namespace.command_among(cores, &program);
            serve.arg("serve").args(device).args(["--ip", "10.9.0.1/24"]);
            serve.args(["--shards", &cores.to_string()]);
            serve.args(["--gateway", "10.9.0.2", "--max-client-connections", "2000000"]);
            serve.args(settings.iter().flat_map(|setting| ["--set", *setting]));
            Server::start(serve.arg(&site)).map(Running::Ours)
        };
        let server = match kind {
            Kind::Nginx => {
                servers.ip("addr add 10.9.0.1/24 dev server")?;
                servers.ip("route replace 10.9.0.0/24 dev server src 10.9.0.1 congctl cubic")?;
                servers.ip(&format!("route add {SOURCES} via 10.9.0.2 congctl cubic"))?;
                Running::Other(nginx(directory, &servers, files, cores)?)
            }
            Kind::PacketSocket => {
                // Only the packet socket listens there.
                ours(&servers, ["--af-packet", "server"])?
            }
            Kind::AfXdp => {
                let offloads = ["-K", "client", "tx", "off", "tso", "off", "gso", "off"];
                live::run(clients.command("ethtool").args(offloads))?;
                ours(&servers, ["--afxdp", "server"])?
            }
            Kind::Tap => ours(&clients, ["--tap", "tap0"])?,
            Kind::Tun => ours(&clients, ["--tun", "tap0"])?,
            Kind::Limit(bytes) => {
                let mut limit = clients.command_on(0, std::env::current_exe()?);
                limit.args(["tap-limit", "--tap", "tap0", "--address", ADDRESS]);
                Running::Other(Process::start(limit.args(["--bytes", &bytes.to_string()]))?)
            }
        };
        let serving = Serving { program, server, servers, clients, cores };
        if let Kind::Limit(_) = kind {
            live::wait_until("the TAP is there", || {
                Ok(serving.clients.ip("addr add 10.9.0.2/24 dev tap0").is_ok())
            })?;
        }
        if matches!(kind, Kind::Tap | Kind::Tun | Kind::Limit(_)) {
            serving.clients.ip("route replace 10.9.0.0/24 dev tap0 congctl cubic")?;
        }
        live::wait_until("the server answers", || {
            let mut curl = serving.client("curl");
            curl.args(["--silent", "--fail", "--max-time", "1", "--output", "/dev/null"]);
            Ok(curl.arg(serving.url(files[0].0)).status()?.success())
        })?;
        Ok(serving)
    }

    /// The server's process.
    pub fn id(&self) -> u32 {
        match &self.server {
            Running::Other(process) => process.0.id(),
            Running::Ours(server) => server.id(),
        }
    }

    /// Where a file is.
    pub fn url(&self, file: &str) -> String {
        format!("http://{ADDRESS}/{file}")
    }

    /// A command of the client: on processor 1, or on all that it shares with the server.
    pub fn client(&self, program: impl AsRef<Path>) -> Command {
        match self.cores {
            1 => self.clients.command_on(1, program),
            cores => self.clients.command_among(cores, program),
        }
    }

    /// Connections in TIME-WAIT at the server.
    ///
    /// # Errors
    /// If the server or the kernel does not say.
    pub fn time_wait(&mut self) -> Result<u64, Failure> {
        match &mut self.server {
            Running::Ours(server) => server.held("time_wait"),
            Running::Other(_) => {
                let text = live::run(self.servers.command("cat").arg("/proc/net/sockstat"))?;
                let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
                let mut words = line.split(' ').skip_while(|word| *word != "tw").skip(1);
                let count = words.next().and_then(|word| word.parse().ok());
                count.ok_or_else(|| "no tw in sockstat".into())
            }
        }
    }

    /// Ends the server.
    ///
    /// # Errors
    /// If it ended with an error.
    pub fn stop(self) -> Result<(), Failure> {
        match self.server {
            Running::Other(process) => process.stop(),
            Running::Ours(server) => server.stop(),
        }
    }
}

/// Makes a veth between them.
fn join(servers: &Namespace, clients: &Namespace) -> Result<(), Failure> {
    clients.ip("link add client type veth peer name server")?;
    clients.give("server", servers)?;
    clients.ip("addr add 10.9.0.2/24 dev client")?;
    clients.ip("link set client up")?;
    clients.ip("route replace 10.9.0.0/24 dev client congctl cubic")?;
    servers.ip("link set server up")
}

/// nginx in its fastest configuration here: one process a core, no log, open files kept, and
/// `sendfile` only for long files. Several processes have a listening socket each.
fn nginx(
    directory: &Path,
    namespace: &Namespace,
    files: &[File],
    cores: u16,
) -> Result<Process, Failure> {
    let (site, directory) = (directory.join("site"), directory.join("nginx"));
    fs::create_dir_all(&directory)?;
    let at = directory.display();
    let long = files.iter().filter(|(_, bytes)| *bytes >= SENDFILE_FROM);
    let sent: String =
        long.map(|(name, _)| format!("location = /{name} {{ sendfile on; }}\n")).collect();
    let (processes, shared) = match cores {
        1 => ("master_process off;\n".to_owned(), ""),
        _ => (format!("worker_processes {cores};\nworker_cpu_affinity auto;\n"), " reuseport"),
    };
    let configuration = format!(
        "daemon off;\n{processes}user root;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         worker_rlimit_nofile 20000;\nevents {{ worker_connections 16000; }}\nhttp {{\n\
         access_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout 300s;\n\
         open_file_cache max=2000 inactive=1h;\ntcp_nopush on;\ndefault_type text/plain;\n\
         client_body_temp_path {at}/body;\nproxy_temp_path {at}/proxy;\n\
         fastcgi_temp_path {at}/fastcgi;\nuwsgi_temp_path {at}/uwsgi;\n\
         scgi_temp_path {at}/scgi;\nserver {{\nlisten {ADDRESS} backlog=4096{shared};\n\
         root {site};\nsendfile off;\n{sent}}}\n}}\n",
        site = site.display(),
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, configuration)?;
    let mut nginx = namespace.command_among(cores, "nginx");
    nginx.arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(&mut nginx)
}
