//! Starts the servers, each with a namespace for its client.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::FILES;
use crate::live::{self, Namespace, Process, Server};
use crate::plan::Failure;
use crate::report::Report;

/// The address and port of every server.
pub(super) const ADDRESS: &str = "10.9.0.1:80";
/// Addresses of the client, beside its own, 10.9.0.2.
pub(super) const SOURCES: &str = "10.8.0.0/24";

/// A server and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// nginx on the kernel's stack, over a veth.
    Nginx,
    /// Ours by a packet socket, over a veth.
    PacketSocket,
    /// Ours over a TAP.
    Tap,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Nginx, Kind::PacketSocket, Kind::Tap];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx, kernel, veth",
            Kind::PacketSocket => "lightwait, packet socket, veth",
            Kind::Tap => "lightwait, TAP",
        }
    }
}

/// A server that runs on processor 0.
pub(super) struct Serving {
    pub(super) program: PathBuf,
    server: Running,
    /// The namespace of the server's interface, if it is not the client's.
    pub(super) servers: Namespace,
    clients: Namespace,
}

enum Running {
    Nginx(Process),
    Ours(Server),
}

impl Serving {
    /// Starts a server, with the files.
    pub(super) fn start(report: &Report, kind: Kind) -> Result<Serving, Failure> {
        let program = live::lightwait()?;
        let site = report.path("site");
        fs::create_dir_all(&site)?;
        for (name, bytes, _) in FILES {
            fs::write(site.join(name), vec![b'x'; bytes])?;
        }
        let [servers, clients] = [Namespace::new()?, Namespace::new()?];
        if kind != Kind::Tap {
            clients.ip("link add client type veth peer name server")?;
            clients.give("server", &servers)?;
            clients.ip("addr add 10.9.0.2/24 dev client")?;
            clients.ip("link set client up")?;
            servers.ip("link set server up")?;
        }
        // A load on the kernel's stack uses these addresses for many connections.
        clients.ip(&format!("route add local {SOURCES} dev lo"))?;
        let ours = |namespace: &Namespace, device: [&str; 2]| {
            let mut serve = namespace.command_on(0, &program);
            serve.arg("serve").args(device).args(["--ip", "10.9.0.1/24"]);
            serve.args(["--gateway", "10.9.0.2", "--max-client-connections", "2000000"]);
            Server::start(serve.arg(&site)).map(Running::Ours)
        };
        let server = match kind {
            Kind::Nginx => {
                servers.ip("addr add 10.9.0.1/24 dev server")?;
                servers.ip(&format!("route add {SOURCES} via 10.9.0.2"))?;
                Running::Nginx(nginx(report, &servers, &site)?)
            }
            Kind::PacketSocket => {
                // Only the packet socket listens there.
                ours(&servers, ["--af-packet", "server"])?
            }
            Kind::Tap => ours(&clients, ["--tap", "tap0"])?,
        };
        let serving = Serving { program, server, servers, clients };
        live::wait_until("the server answers", || {
            let mut curl = serving.client("curl");
            curl.args(["--silent", "--fail", "--max-time", "1", "--output", "/dev/null"]);
            Ok(curl.arg(serving.url(FILES[0].0)).status()?.success())
        })?;
        Ok(serving)
    }

    /// The server's process.
    pub(super) fn id(&self) -> u32 {
        match &self.server {
            Running::Nginx(process) => process.0.id(),
            Running::Ours(server) => server.id(),
        }
    }

    pub(super) fn url(&self, file: &str) -> String {
        format!("http://{ADDRESS}/{file}")
    }

    /// A command of the client, on processor 1.
    pub(super) fn client(&self, program: impl AsRef<Path>) -> Command {
        self.clients.command_on(1, program)
    }

    /// Connections in TIME-WAIT at the server.
    pub(super) fn time_wait(&mut self) -> Result<u64, Failure> {
        match &mut self.server {
            Running::Ours(server) => server.held("time_wait"),
            Running::Nginx(_) => {
                let text = live::run(self.servers.command("cat").arg("/proc/net/sockstat"))?;
                let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
                let mut words = line.split(' ').skip_while(|word| *word != "tw").skip(1);
                let count = words.next().and_then(|word| word.parse().ok());
                count.ok_or_else(|| "no tw in sockstat".into())
            }
        }
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        match self.server {
            Running::Nginx(process) => process.stop(),
            Running::Ours(server) => server.stop(),
        }
    }
}

/// nginx in its fastest configuration here: one process, no log, open files kept, and `sendfile`
/// only for large files.
fn nginx(report: &Report, namespace: &Namespace, site: &Path) -> Result<Process, Failure> {
    let directory = report.path("nginx");
    fs::create_dir_all(&directory)?;
    let at = directory.display();
    let configuration = format!(
        "daemon off;\nmaster_process off;\nuser root;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         worker_rlimit_nofile 20000;\nevents {{ worker_connections 16000; }}\nhttp {{\n\
         access_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout 300s;\n\
         open_file_cache max=100 inactive=1h;\ntcp_nopush on;\ndefault_type text/plain;\n\
         client_body_temp_path {at}/body;\nproxy_temp_path {at}/proxy;\n\
         fastcgi_temp_path {at}/fastcgi;\nuwsgi_temp_path {at}/uwsgi;\n\
         scgi_temp_path {at}/scgi;\nserver {{\nlisten {ADDRESS} backlog=4096;\nroot {site};\n\
         sendfile off;\nlocation = /1MB {{ sendfile on; }}\n}}\n}}\n",
        site = site.display(),
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, configuration)?;
    let mut nginx = namespace.command_on(0, "nginx");
    nginx.arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(&mut nginx)
}

/// Opens `count` connections to `address`, makes a request on each and keeps it, until standard
/// input ends. Meanwhile the server's memory of idle connections can be measured.
pub(crate) fn idle(address: SocketAddr, count: usize) -> Result<(), Failure> {
    use std::io::{Read, Write};
    let request = format!("GET /{} HTTP/1.1\r\nHost: idle\r\n\r\n", FILES[0].0);
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        while answer.len() < FILES[0].1 || !answer.ends_with(b"xxx") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece)? {
                0 => return Err("the server does not keep its connections".into()),
                len => answer.extend_from_slice(&piece[..len]),
            }
        }
        connections.push(stream);
    }
    lightwait_bench::say_line!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
