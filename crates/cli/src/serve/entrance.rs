//! Where connections come in: each is admitted, and served in a task of its own.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::bridge::Clients;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Handle;
use lightwait_http::stack::{Retransmits, Transport};
use lightwait_http::{Admission, Credentials, Entry};

use super::FileServer;
use super::admin::Times;
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
        loop {
            match self.listener.accept().await {
                Ok((stream, seen)) => {
                    let client = self.clients.as_ref().and_then(|clients| clients.behind(seen));
                    let peer = client.as_ref().map_or(seen, |client| client.address());
                    let entry = match &credentials {
                        Some(_) => service.server.enter_secured(peer),
                        None => service.server.enter(peer),
                    };
                    let transport = Transport::new(&stream, client, service.times.is_some());
                    let io = (stream, transport);
                    let guest = Guest { io, peer, service: service.clone() };
                    guest.enter(entry, credentials.clone());
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
    /// What connections took, if somebody may ask.
    pub(super) times: Option<Times>,
}

/// A connection that was accepted.
struct Guest {
    io: (TcpStream, Transport),
    peer: SocketAddr,
    service: Service,
}

impl Guest {
    /// Serves the connection in a task of its own, if it may come in.
    fn enter(self, entry: Entry, credentials: Option<Credentials>) {
        let handle = Handle::current();
        match entry {
            // Two tasks: one without TLS has no room for it.
            Entry::Inside(admission) => {
                if let (Some(times), Ok(info)) = (&self.service.times, self.io.0.info()) {
                    times.note_handshake(info.latest_rtt);
                }
                match credentials {
                    None => _ = handle.spawn_local(self.serve(admission)),
                    Some(credentials) => {
                        handle.spawn_local(self.serve_secured(admission, &credentials));
                    }
                }
            }
            Entry::Asks(place) => {
                handle.spawn_local(async move {
                    let entry = match place.await {
                        Ok(admission) => Entry::Inside(admission),
                        Err(refusal) => Entry::Refused(refusal),
                    };
                    self.enter(entry, credentials);
                });
            }
            Entry::Refused(_) => self.io.0.abort(),
        }
    }

    /// Serves the connection. Its task has no room for what it was made from.
    fn serve(self, inside: Admission) -> impl Future<Output = ()> + use<> {
        let Guest { io: (stream, transport), peer, service } = self;
        let retransmits = transport.retransmits();
        let serving = service.server.clone().serve_controlled(hasty(stream), transport, peer);
        async move {
            let _inside = inside;
            service.note_end(retransmits, peer, serving.await);
        }
    }

    /// Serves the connection over TLS.
    fn serve_secured(
        self,
        inside: Admission,
        credentials: &Credentials,
    ) -> impl Future<Output = ()> + use<> {
        let Guest { io: (stream, transport), peer, service } = self;
        let (server, retransmits) = (service.server.clone(), transport.retransmits());
        let serving = server.serve_secured(hasty(stream), transport, peer, credentials);
        async move {
            let _inside = inside;
            service.note_end(retransmits, peer, serving.await);
        }
    }
}

/// Nagle would hold a response's last segment back until the one before is acknowledged.
fn hasty(stream: TcpStream) -> TcpStream {
    // It fails only on a connection that is over already.
    let _ = stream.set_nodelay(true);
    stream
}

impl Service {
    /// A connection is over, and its segments were retransmitted so often.
    fn note_end<E: std::error::Error>(
        &self,
        retransmits: Option<Retransmits>,
        peer: SocketAddr,
        outcome: Result<(), E>,
    ) {
        if let (Some(times), Some(count)) = (&self.times, retransmits.and_then(|it| it.get())) {
            times.note_end(count);
        }
        if let Err(error) = outcome
            && self.logs_failures
        {
            self.log.write(Record::Failed { peer, error: describe(&error) });
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
