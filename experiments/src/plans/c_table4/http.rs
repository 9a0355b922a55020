//! The column of CLIENT_CLOSE: our HTTP server, unmodified, and clients that request a file and
//! then close first, or let the server close. Such a client announces that it closes by a request
//! that needs no answer, and closes its half at once. It then drops all data until the server's
//! FIN.
//!
//! A server need not know the method. To test a server that does not, the same request is sent
//! under another name as well, and its errors are counted. Conversely, a server that asks its
//! clients to close meets clients that do not know that request.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::TcpStream;
use lightwait_core::wire::tcp::{Flags, Segment};
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_netem::LinkConfig;
use lightwait_sim::disk::Disk;
use lightwait_sim::{Side, web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{CONNECTIONS, DELAY, FILE_BYTES, Found, LENGTH, ROWS};
use crate::network::{server, shared, watched};
use crate::plan::Failure;
use crate::plans::newreno;

/// A client's behaviour after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// It has asked the server to close.
    Plain,
    /// It closes, announced by this method.
    Closes(&'static str),
    /// It resets the connection once it has its answer.
    Resets,
}

/// The time that a server waits for its client after asking it to close.
const GRACE: Duration = Duration::from_millis(100);

const KNOWN: Client = Client::Closes("CLIENT_CLOSE");
const UNKNOWN: Client = Client::Closes("CLIENT_CLOSE_BY_ANOTHER_NAME");

/// A segment without its numbers and its data: flags, and whether it has options of each kind.
type Kind = (u8, [bool; 6]);

/// The results of a world.
#[derive(Debug, Default)]
struct Seen {
    served: u64,
    failed: u64,
    /// In TIME-WAIT at the end.
    server: usize,
    client: usize,
    packets: u64,
    kinds: BTreeSet<Kind>,
    /// The client's data, and RSTs in either direction.
    text: Vec<u8>,
    resets: u64,
    /// Error answers of the server.
    errors: u64,
    /// Connections whose clients it asked to close, and those that it then closed itself.
    asked: u64,
    unheeded: u64,
}

impl Seen {
    fn is_whole(&self) -> bool {
        (self.served, self.failed) == (CONNECTIONS, 0)
    }

    fn per_connection(&self) -> f64 {
        self.packets as f64 / CONNECTIONS as f64
    }

    fn note(&mut self, segment: &Segment<'_>, from_client: bool) {
        let o = &segment.options;
        let kinds = [
            o.mss.is_some(),
            o.window_scale.is_some(),
            o.sack_permitted,
            o.timestamps.is_some(),
            !o.sack.as_slice().is_empty(),
            !o.experimental.is_empty(),
        ];
        self.packets += 1;
        self.kinds.insert((segment.flags.0, kinds));
        self.resets += u64::from(segment.flags.contains(Flags::RST));
        if from_client {
            self.text.extend_from_slice(segment.payload);
        } else {
            self.errors += u64::from(segment.payload.starts_with(b"HTTP/1.1 4"));
        }
    }
}

/// Runs a world with that client, and a server that asks its clients to close if `asks`.
fn see(client: Client, asks: bool) -> Result<Seen, Failure> {
    let link = LinkConfig { delay: DELAY, ..LinkConfig::default() };
    let seen = shared(Seen::default());
    let noted = seen.clone();
    let tcp = [newreno(), newreno()];
    let mut world = watched([link.clone(), link], &tcp, move |passage, segment| {
        if !passage.arrives {
            noted.borrow_mut().note(segment, passage.side == Side::A);
        }
    })?;
    let clock = web::clock(&world, Side::B);
    let disk = Disk::new(&[("file", u64::from(FILE_BYTES), 1)], Duration::ZERO, u64::MAX);
    let files = Files::new(disk, FilesConfig::default(), clock.clone());
    let config =
        ServerConfig { ask_client: asks, client_close_grace: GRACE, ..ServerConfig::default() };
    let files = Rc::new(Server::new(files, config, clock));
    web::serve(&world, Side::B, server(), &files)?;
    world.spawn(Side::A, ask(client, seen.clone()));
    world.run_for(LENGTH)?;
    let mut seen = seen.take();
    seen.server = world.host(Side::B, lightwait_core::Host::time_wait_len);
    seen.client = world.host(Side::A, lightwait_core::Host::time_wait_len);
    (seen.asked, seen.unheeded) = (files.tally().asked, files.tally().asked_unheeded);
    Ok(seen)
}

/// Makes one connection after the other.
async fn ask(client: Client, seen: Rc<RefCell<Seen>>) {
    for _ in 0..CONNECTIONS {
        let outcome = ask_once(client).await;
        let mut seen = seen.borrow_mut();
        seen.served += u64::from(outcome.is_ok());
        seen.failed += u64::from(outcome.is_err());
    }
}

async fn ask_once(client: Client) -> io::Result<()> {
    let mut stream = TcpStream::connect(server()).await?;
    if client == Client::Plain {
        stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        return body_of(&answer).map(|_| ());
    };
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n").await?;
    let mut answer = Vec::new();
    while body_of(&answer).is_err() {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&piece[..len]);
    }
    let Client::Closes(method) = client else {
        stream.abort();
        return Ok(());
    };
    let last = format!("{method} * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(last.as_bytes()).await?;
    stream.shutdown().await?;
    // A server that does not know the method answers with an error.
    stream.read_to_end(&mut Vec::new()).await.map(|_| ())
}

/// The body of a complete answer.
fn body_of(answer: &[u8]) -> io::Result<&[u8]> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let body = head.map(|at| &answer[at + 4..]);
    let is_whole = answer.starts_with(b"HTTP/1.1 200 ");
    let body = body.filter(|body| is_whole && body.len() == FILE_BYTES as usize);
    body.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The checks of CLIENT_CLOSE, row by row, with their results. If ablated, of clients and servers
/// to which each must give the other answer.
pub(super) fn column(is_ablated: bool) -> Result<[(&'static str, Found); ROWS.len()], Failure> {
    let client = |client| if is_ablated { Client::Plain } else { client };
    let [plain, known, unknown] =
        [see(Client::Plain, false)?, see(client(KNOWN), false)?, see(client(UNKNOWN), false)?];
    let asked = see(Client::Plain, !is_ablated)?;
    let new = match is_ablated {
        true => see(Client::Resets, false)?,
        false => see(KNOWN, false)?,
    };
    let all = CONNECTIONS as usize;
    let whole = plain.is_whole() && known.is_whole() && unknown.is_whole();
    let in_place = |seen: &Seen| (seen.server, seen.client) == (0, all);
    let found =
        |seen: &Seen| format!("{} at the server, {} at the client", seen.server, seen.client);
    let new = new.kinds.difference(&plain.kinds).count();
    let says = |what: bool| if what { "the same" } else { "another request" };
    let is_same = known.text == plain.text;
    Ok([
        (
            ROWS[0].name,
            (
                whole && plain.server == all && in_place(&known),
                format!("{} → {}", plain.server, found(&known)),
            ),
        ),
        is_compatible(&known, &unknown, &asked),
        (ROWS[2].name, (whole && unknown.server == 0, found(&unknown))),
        (
            "the server has none, and no RST was sent that it would have had to heed",
            (whole && known.server == 0 && known.resets == 0, found(&known)),
        ),
        (
            "each segment has flags and options that ordinary segments have",
            (new == 0, format!("{new} kinds of segment that are new, {} RSTs", known.resets)),
        ),
        (ROWS[5].name, (is_same, format!("the client says {}", says(is_same)))),
        (
            ROWS[6].name,
            (
                known.packets <= plain.packets,
                format!(
                    "{:.2} → {:.2} a connection, {:.2} if the server does not know the method",
                    plain.per_connection(),
                    known.per_connection(),
                    unknown.per_connection()
                ),
            ),
        ),
        is_required(&asked),
    ])
}

/// Only one end knows the method: a client whose server does not, and answers with an error each
/// time; and a server whose clients do not know that they are asked to close.
fn is_compatible(known: &Seen, unknown: &Seen, asked: &Seen) -> (&'static str, Found) {
    let all = CONNECTIONS as usize;
    let client_alone = (unknown.server, unknown.client, unknown.errors) == (0, all, CONNECTIONS);
    let server_alone = (asked.server, asked.client, asked.asked) == (all, 0, CONNECTIONS);
    let served = unknown.is_whole() && asked.is_whole() && known.errors == 0;
    (
        "either end modified, the other not: all is served, one end waits",
        (
            served && client_alone && server_alone,
            format!(
                "{} failed; client alone: {} and {}, {} errors dropped; server alone: {} and {} \
                 wait",
                unknown.failed + asked.failed,
                unknown.server,
                unknown.client,
                unknown.errors,
                asked.server,
                asked.client
            ),
        ),
    )
}

/// A server can only ask. That is no requirement if each client that was asked and did not close
/// was still served.
fn is_required(asked: &Seen) -> (&'static str, Found) {
    let all = CONNECTIONS as usize;
    let is_served = asked.is_whole() && asked.server == all;
    let are_asked = (asked.asked, asked.unheeded) == (CONNECTIONS, CONNECTIONS);
    (
        "a client that is asked to close, and does not take part, gets no connection",
        (
            !(is_served && are_asked),
            format!("{} asked, {} served, {} refused", asked.asked, asked.served, asked.failed),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_close_holds_and_an_exchange_has_six_packets() {
        let plain = see(Client::Plain, false).unwrap();
        assert!(plain.is_whole(), "{plain:?}");
        assert_eq!((plain.server, plain.client, plain.resets), (50, 0, 0));
        assert_eq!(plain.packets, 50 * 6);
    }

    #[test]
    fn each_row_can_be_answered_otherwise() {
        let [known, unknown] = [KNOWN, UNKNOWN].map(|client| see(client, false).unwrap());
        let asked = see(Client::Plain, true).unwrap();
        assert!(is_compatible(&known, &unknown, &asked).1.0 && !is_required(&asked).1.0);
        // A server that knows the method is no example of one that does not, and one that does not
        // ask is none of one that does.
        assert!(!is_compatible(&known, &known, &asked).1.0);
        let plain = see(Client::Plain, false).unwrap();
        assert!(!is_compatible(&known, &unknown, &plain).1.0);
        assert!(is_required(&plain).1.0 && is_required(&see(KNOWN, true).unwrap()).1.0);
    }

    #[test]
    fn a_client_that_resets_in_place_of_closing_is_seen() {
        let mut seen = Seen::default();
        let reset = Flags::RST | Flags::ACK;
        let segment = |flags| Segment {
            source_port: 1,
            destination_port: 80,
            seq: lightwait_core::flow::Seq(1),
            ack: lightwait_core::flow::Seq(1),
            flags,
            window: 1,
            urgent: 0,
            options: Default::default(),
            payload: b"text",
        };
        seen.note(&segment(reset), true);
        assert_eq!((seen.resets, seen.packets, &*seen.text), (1, 1, &b"text"[..]));
        let plain = see(Client::Plain, false).unwrap();
        assert!(!seen.kinds.is_subset(&plain.kinds), "{:?}", plain.kinds);
    }
}
