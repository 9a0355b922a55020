//! HTTP servers of others on the kernel's TCP, beside nginx ([`crate::client::Nginx`]).

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::client::PORT;
use crate::server::{KERNELS, reach};
use crate::tools::command;

/// Apache, in a process of its own.
pub(crate) struct Apache(Child);

impl Apache {
    /// Serves `directory` on the kernel's addresses. It takes root, or the users of its own that it
    /// wants to become are not there.
    pub(crate) fn start(directory: &Path) -> Apache {
        let own = directory.join("apache");
        fs::create_dir(&own).unwrap();
        let [v4, v6] = KERNELS;
        let config = format!(
            "ServerRoot {own}\nServerName h\nDefaultRuntimeDir {own}\nPidFile {own}/pid\n\
             LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
             LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
             User nobody\nGroup nogroup\nListen {v4}:{PORT}\nListen [{v6}]:{PORT}\n\
             ErrorLog {own}/error\nDocumentRoot {}\n",
            directory.display(),
            own = own.display(),
        );
        fs::write(own.join("apache.conf"), config).unwrap();
        let mut apache = command("apache2");
        // One process, which does not leave the terminal.
        apache.arg("-X").arg("-f").arg(own.join("apache.conf"));
        let apache = Apache(apache.stdin(Stdio::null()).spawn().unwrap());
        KERNELS.iter().for_each(|kernel| reach(kernel, PORT));
        apache
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server by hyper alone, on a thread that ends with the test's process: 500 bytes for
/// each GET, and 405 for any other method.
pub(crate) fn start_hyper() {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let [v4, v6] = KERNELS.map(|kernel| SocketAddr::new(kernel.parse().unwrap(), PORT));
            tokio::join!(serve(v4), serve(v6));
        });
    });
    KERNELS.iter().for_each(|kernel| reach(kernel, PORT));
}

async fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::task::spawn_local(async move {
            let service = service_fn(answer);
            // A peer that only looked whether it is there sends nothing.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_get = request.method() == Method::GET;
    let body = if is_get { Bytes::from_static(&[b'x'; 500]) } else { Bytes::new() };
    let mut response = Response::new(Full::new(body));
    if !is_get {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    Ok(response)
}
