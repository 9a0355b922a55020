//! Where connections come in: each is admitted, and served in a task of its own.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::bridge::Clients;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Handle;
use lightwait_http::{Admission, Credentials};

use super::FileServer;
use super::transport::Transport;
use crate::log::{Log, Record};

/// The wait after `accept` has failed: it lacked memory or descriptors, and that takes time to
/// pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A listener.
pub(super) struct Entrance {
    pub(super) listener: TcpListener,
    /// The port that clients know.
    pub(super) port: u16,
    /// The clients behind bridged connections.
    pub(super) clients: Option<Clients>,
}

impl Entrance {
    /// An entrance without a bridge before it.
    pub(super) fn open(stack: &Handle, at: SocketAddr) -> io::Result<Entrance> {
        let listener = TcpListener::bind_on(stack, at)?;
        Ok(Entrance { listener, port: at.port(), clients: None })
    }

    /// Accepts connections until the task is aborted, over TLS if there are credentials.
    pub(super) async fn accept_all(self, service: Service, credentials: Option<Credentials>) {
        let handle = Handle::current();
        loop {
            match self.listener.accept().await {
                Ok((stream, seen)) => {
                    let client = self.clients.as_ref().and_then(|clients| clients.behind(seen));
                    let peer = client.as_ref().map_or(seen, |client| client.address());
                    let server = &service.server;
                    let admitted = match &credentials {
                        Some(_) => server.admit_secured(peer),
                        None => server.admit(peer),
                    };
                    let Ok(admission) = admitted else {
                        stream.abort();
                        continue;
                    };
                    let transport = Transport::new(&stream, client);
                    let service = service.clone();
                    match &credentials {
                        None => {
                            handle.spawn_local(service.serve((stream, transport), peer, admission))
                        }
                        Some(credentials) => handle.spawn_local(service.serve_secured(
                            (stream, transport),
                            peer,
                            admission,
                            credentials.clone(),
                        )),
                    };
                }
                Err(_) => lightwait::rt::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

/// The state that every connection shares.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) server: Rc<FileServer>,
    pub(super) log: Log,
    pub(super) logs_failures: bool,
}

impl Service {
    /// Serves an admitted connection.
    async fn serve(
        self,
        (stream, transport): (TcpStream, Transport),
        peer: SocketAddr,
        _inside: Admission,
    ) {
        // Nagle would hold a response's last segment back until the one before is acknowledged. It
        // fails only on a connection that is over already.
        let _ = stream.set_nodelay(true);
        let served = self.server.clone().serve_controlled(stream, transport, peer);
        if let Err(error) = served.await {
            self.log_failure(peer, &error);
        }
    }

    /// Serves an admitted connection over TLS.
    async fn serve_secured(
        self,
        (stream, transport): (TcpStream, Transport),
        peer: SocketAddr,
        _inside: Admission,
        credentials: Credentials,
    ) {
        let _ = stream.set_nodelay(true);
        let server = self.server.clone();
        if let Err(error) = server.serve_secured(stream, transport, peer, &credentials).await {
            self.log_failure(peer, &error);
        }
    }

    fn log_failure(&self, peer: SocketAddr, error: &dyn std::error::Error) {
        if self.logs_failures {
            self.log.write(Record::Failed { peer, error: describe(error) });
        }
    }
}

/// An error with what caused it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
