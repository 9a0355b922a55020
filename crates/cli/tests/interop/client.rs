//! Our sockets as a client of nginx on the kernel's TCP.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use lightwait::device::Device;
use lightwait::executor::spawn_local;
use lightwait::local::TcpStream;
use lightwait::rt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::host;
use crate::namespace;
use crate::server::{KERNELS, reach};
use crate::tools::{self, command};

/// Where servers on the kernel's TCP listen.
pub(crate) const PORT: u16 = 8080;

/// How long a file may take over a bad link.
const PATIENCE: Duration = Duration::from_secs(120);

/// nginx, in a process of its own.
pub(crate) struct Nginx(Child);

impl Nginx {
    /// Serves `directory` on the kernel's addresses.
    pub(crate) fn start(directory: &Path) -> Nginx {
        let own = directory.join("nginx");
        fs::create_dir(&own).unwrap();
        let path = |name: &str| own.join(name).display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", path(kind)))
            .concat();
        let config = format!(
            "user root; daemon off; master_process off; pid {}; error_log stderr;
             events {{ worker_connections 4096; }}
             http {{
                access_log off; sendfile on; keepalive_requests 100000; {temporary}
                server {{
                    listen {}:{PORT}; listen [{}]:{PORT}; root {};
                }}
             }}",
            path("pid"),
            KERNELS[0],
            KERNELS[1],
            directory.display(),
        );
        fs::write(own.join("nginx.conf"), config).unwrap();
        let mut nginx = command("nginx");
        nginx.args(["-e", "stderr", "-c", &path("nginx.conf"), "-p", &path("")]);
        let nginx = Nginx(nginx.stdin(Stdio::null()).spawn().unwrap());
        KERNELS.iter().for_each(|kernel| reach(kernel, PORT));
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches a file on a connection of its own.
async fn fetch(server: &str, name: &str) -> io::Result<Vec<u8>> {
    let address = SocketAddr::new(server.parse().unwrap(), PORT);
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    assert!(reply.starts_with(b"HTTP/1.1 200 "), "{name}: {} bytes", reply.len());
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    Ok(reply.split_off(end))
}

/// Many requests on one connection, each answered with `wanted`.
async fn keep_asking(server: &str, name: &str, wanted: &[u8], requests: usize) -> io::Result<()> {
    let address = SocketAddr::new(server.parse().unwrap(), PORT);
    let mut stream = TcpStream::connect(address).await?;
    let mut reply = Vec::new();
    for _ in 0..requests {
        stream.write_all(format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await?;
        reply.clear();
        while !reply.ends_with(wanted) {
            assert!(stream.read_buf(&mut reply).await? > 0, "after {} bytes", reply.len());
        }
    }
    Ok(())
}

/// Fetches files `0` to `files`, each of one block of the pattern, at the same time, through what
/// `wrap` puts before the device.
pub(crate) fn fetch_all(
    directory: &Path,
    files: u64,
    wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>,
) {
    let device = wrap(host::open_device());
    let _nginx = Nginx::start(directory);
    let fetch = async |n: u64| {
        let server = KERNELS[n as usize % KERNELS.len()];
        let file = rt::timeout(PATIENCE, fetch(server, &n.to_string())).await;
        let file = file.expect("it arrives in time").unwrap();
        assert!(file == tools::pattern(n), "file {n}: {} bytes", file.len());
    };
    host::run(device, async move {
        let fetches: Vec<_> = (0..files).map(|n| spawn_local(fetch(n))).collect();
        for fetch in fetches {
            fetch.await.unwrap();
        }
    });
}

#[test]
fn files_of_nginx_arrive_whole() {
    namespace::inside("client::files_of_nginx_arrive_whole", &["nginx"], || {
        let directory = tools::directory();
        tools::write_file(&directory.path().join("large"), 256);
        let small = tools::pattern(9)[..500].to_vec();
        fs::write(directory.path().join("small"), &small).unwrap();
        let device = host::open_device();
        let _nginx = Nginx::start(directory.path());
        host::run(device, async move {
            for server in KERNELS {
                let large = fetch(server, "large").await.unwrap();
                assert_eq!(large.len(), 256 << 20);
                let is_right = |(n, block): (u64, &[u8])| block == tools::pattern(n);
                assert!((0..).zip(large.chunks(1 << 20)).all(is_right), "{server}");
                for _ in 0..300 {
                    assert_eq!(fetch(server, "small").await.unwrap(), small);
                }
                keep_asking(server, "small", &small, 1000).await.unwrap();
            }
        });
    });
}
