//! The admin door: HTTP on the kernel's stack, on a thread of its own, so that it answers while
//! ours is under attack. It reads the state of the server, and changes nothing.
//!
//! ```text
//!   curl, Prometheus ── kernel's TCP ── this thread ── questions ──▶ each shard
//!                                            ◀── what it has ──────────┘
//! ```

mod capture;
pub(crate) mod connections;
mod events;
mod metrics;
mod questions;
mod rates;
mod summary;

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lightwait::wrap::pcap::Captures;
use lightwait_trace::qlog;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::Stacks;
use super::crew::Health;
use crate::failure::Failure;
use capture::{Captured, Refusal};
use connections::Query;
pub(super) use metrics::Times;
use metrics::{Form, Report};
pub(super) use questions::{Question, Shards, answer};

/// Connections at a time: others wait.
const CONNECTIONS: usize = 128;
/// How long a connection may wait for a request, and how long it may take.
const IDLE: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);
/// What a capture is.
const CAPTURE_TYPE: &str = "application/vnd.tcpdump.pcap";
/// The wait after `accept` has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What the door has, for people.
const INDEX: &str = "\
/             a live page
/metrics      counters and levels, for Prometheus
/healthz      200 if every shard answers
/readyz       200 if every shard serves
/connections  JSON; ?state=ESTABLISHED&peer=10.0.0.0/8&limit=100
/rates        what happens a second, as JSON; ?seconds=1
/summary      all sockets together, and those worth a look, as JSON
/capture      frames as pcapng; ?filter=dst+10.0.0.2:4000&seconds=5&bytes=4194304
/events       what happens on connections, as qlog; ?filter=dst+10.0.0.2&sample=10&seconds=5
/config       the knobs in force, as JSON
";

/// Where the door is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<AdminAddress, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("give a path behind `unix:`".to_owned()),
            Some(path) => Ok(AdminAddress::Unix(path.into())),
            None => crate::zone::parse(text)
                .map(AdminAddress::Tcp)
                .map_err(|error| format!("{error}, or unix:PATH")),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Tcp(address) => write!(f, "http://{}/", crate::zone::Named(*address)),
            AdminAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket of the kernel's.
#[derive(Debug)]
enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// A door that is open, and not answered yet.
#[derive(Debug)]
pub(super) struct Door {
    listener: Listener,
    /// Where it is, with the port that the kernel chose.
    pub(super) address: AdminAddress,
    shards: Shards,
}

impl Door {
    /// Listens, for a server of these shards; at the socket that another process `had` there, if
    /// one has.
    pub(super) fn open(
        address: &AdminAddress,
        shards: &Shards,
        had: Option<OwnedFd>,
    ) -> Result<Door, Failure> {
        let refuse = |error| Failure::Admin(address.clone(), error);
        let (listener, address) = match address {
            AdminAddress::Tcp(at) => {
                let listener = match had {
                    Some(socket) => std::net::TcpListener::from(socket),
                    None => std::net::TcpListener::bind(at).map_err(refuse)?,
                };
                listener.set_nonblocking(true).map_err(refuse)?;
                let at = listener.local_addr().map_err(refuse)?;
                (Listener::Tcp(listener), AdminAddress::Tcp(at))
            }
            AdminAddress::Unix(path) => {
                let listener = match had {
                    Some(socket) => std::os::unix::net::UnixListener::from(socket),
                    None => {
                        remove_stale(path);
                        std::os::unix::net::UnixListener::bind(path).map_err(refuse)?
                    }
                };
                listener.set_nonblocking(true).map_err(refuse)?;
                (Listener::Unix(listener), address.clone())
            }
        };
        Ok(Door { listener, address, shards: shards.clone() })
    }

    /// Its socket, for another process.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        match &self.listener {
            Listener::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Listener::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Answers on a thread of its own, to the end of the program.
    pub(super) fn answer(self, health: Arc<Health>, captures: Captures) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Door { listener, shards, address } = self;
        let is_local = matches!(address, AdminAddress::Tcp(at) if at.ip().is_loopback());
        let work = move || {
            let (capturing, given) = (Arc::new(Semaphore::new(1)), health.given.clone());
            let state = Arc::new(State { shards, health, captures, capturing, is_local });
            // The thread has nothing to tell its failure to: a listener that is there is taken.
            let _: io::Result<()> = runtime.block_on(async {
                let accepting = async {
                    match listener {
                        Listener::Tcp(listener) => {
                            let listener = TcpListener::from_std(listener)?;
                            accept(&state, async || Ok(listener.accept().await?.0)).await
                        }
                        Listener::Unix(listener) => {
                            let listener = UnixListener::from_std(listener)?;
                            accept(&state, async || Ok(listener.accept().await?.0)).await
                        }
                    }
                };
                tokio::select! {
                    failed = accepting => return failed,
                    () = given.notified() => {}
                }
                // Another process answers from here on; what was begun goes on.
                std::future::pending().await
            });
        };
        thread::Builder::new().name("admin".to_owned()).spawn(work).map(drop)
    }
}

/// The file of a door in the file system, which goes with the program.
pub(super) struct SocketFile(Option<AdminAddress>);

impl SocketFile {
    pub(super) fn new(address: AdminAddress) -> SocketFile {
        SocketFile(Some(address))
    }

    /// Leaves the file to another process.
    pub(super) fn leave(&mut self) {
        self.0 = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(AdminAddress::Unix(path)) = &self.0 {
            // The next program removes it, if this one cannot.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket of a program that is gone: one that nobody listens on.
fn remove_stale(path: &std::path::Path) {
    let is_socket = path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket());
    let refused =
        || UnixStream::connect(path).is_err_and(|it| it.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && refused() {
        // If it cannot be removed, binding says why.
        let _ = std::fs::remove_file(path);
    }
}

/// What every request may ask.
struct State {
    shards: Shards,
    health: Arc<Health>,
    captures: Captures,
    /// One capture at a time, until it was sent.
    capturing: Arc<Semaphore>,
    /// The door is on a loopback address.
    is_local: bool,
}

/// Accepts for ever, and serves each connection in a task.
async fn accept<S>(
    state: &Arc<State>,
    mut next: impl AsyncFnMut() -> io::Result<S>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok(stream) = next().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(|request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(respond(&state, request).await) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE)
                .serve_connection(TokioIo::new(stream), service);
            // What ends a connection is the client's affair.
            let _ = timeout(LONGEST, served).await;
        });
    }
}

type Answer = Response<Held>;

/// A body, and what its memory is counted against until it was sent.
struct Held {
    bytes: Full<Bytes>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.bytes).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

async fn respond<B>(state: &State, request: Request<B>) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    if is_of_another_site(request.headers()) {
        return text(StatusCode::FORBIDDEN, "this door answers no page of another site\n");
    }
    if state.is_local && !names_this_machine(request.headers()) {
        let why = "this door is for this machine: ask for localhost or for its address\n";
        return text(StatusCode::MISDIRECTED_REQUEST, why);
    }
    match request.uri().path() {
        "/" => page(),
        "/metrics" => {
            let accept = request.headers().get(header::ACCEPT);
            let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
            of_metrics(state, Form::accepted(accept)).await
        }
        "/healthz" => health(state, false).await,
        "/readyz" => health(state, true).await,
        "/connections" => match Query::parse(request.uri().query().unwrap_or_default()) {
            Ok(query) => object(&connections::list(&state.shards, query).await),
            Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        },
        "/rates" => match rates::seconds(request.uri().query().unwrap_or_default()) {
            Ok(time) => object(&rates::over(&state.shards, time).await),
            Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        },
        "/capture" => match capture::Query::parse(request.uri().query().unwrap_or_default()) {
            Ok(_) if *request.method() == Method::HEAD => saved_head(CAPTURE_TYPE),
            Ok(query) => captured(state, &query).await,
            Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        },
        "/events" => match events::Query::parse(request.uri().query().unwrap_or_default()) {
            Ok(_) if *request.method() == Method::HEAD => saved_head(qlog::MEDIA_TYPE),
            Ok(query) => observed(state, &query).await,
            Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        },
        "/summary" => object(&summary::of(&state.shards).await),
        "/config" => config(state).await,
        _ => text(StatusCode::NOT_FOUND, format!("There is:\n{INDEX}")),
    }
}

/// True if a browser asks for a page of another site, which could begin a capture by a picture's
/// address (Fetch Metadata).
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// True if `Host` is an address or localhost. Another name that leads to a loopback address is a
/// stranger's, whose page in a browser here would read what the door tells (DNS rebinding).
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
    })
}

/// Why there is no capture, and no log of events.
const BUSY: &str = "a capture or a log of events runs, or is being sent: there is one at a time\n";

/// The events of a while, to be saved.
async fn observed(state: &State, query: &events::Query) -> Answer {
    let Ok(permit) = state.capturing.clone().try_acquire_owned() else {
        return text(StatusCode::CONFLICT, BUSY);
    };
    match events::take(&state.shards, query).await {
        Ok(log) => {
            let name = "attachment; filename=\"lightwait.sqlog\"";
            to_be_saved(qlog::MEDIA_TYPE, name, log, permit)
        }
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// A file, which is counted until it was sent.
fn to_be_saved(
    content_type: &'static str,
    disposition: &'static str,
    file: Vec<u8>,
    permit: OwnedSemaphorePermit,
) -> Answer {
    let mut answer = answer_with(StatusCode::OK, content_type, file);
    answer.body_mut().permit = Some(permit);
    let disposition = HeaderValue::from_static(disposition);
    answer.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    answer
}

/// What the answer of a file to be saved begins with: HEAD takes nothing.
fn saved_head(content_type: &'static str) -> Answer {
    let mut answer = answer_with(StatusCode::OK, content_type, Vec::new());
    // Its length is not known before.
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    answer
}

/// The frames of a while, to be saved.
async fn captured(state: &State, query: &capture::Query) -> Answer {
    let Ok(permit) = state.capturing.clone().try_acquire_owned() else {
        return text(StatusCode::CONFLICT, BUSY);
    };
    let Captured { pcapng, is_cut } =
        match capture::take(&state.captures, &state.shards, query).await {
            Ok(captured) => captured,
            Err(Refusal::Busy) => {
                return text(StatusCode::CONFLICT, BUSY);
            }
            Err(Refusal::Failed(error)) => {
                return text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
            }
        };
    let name = "attachment; filename=\"lightwait.pcapng\"";
    let mut answer = to_be_saved(CAPTURE_TYPE, name, pcapng, permit);
    let is_cut = HeaderValue::from_static(if is_cut { "true" } else { "false" });
    answer.headers_mut().insert("lightwait-truncated", is_cut);
    answer
}

/// The live page: one file, which may load nothing, and ask this door alone.
fn page() -> Answer {
    // Whoever could put text into the page would not know it.
    let random = || RandomState::new().hash_one(());
    let nonce = format!("{:016x}{:016x}", random(), random());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let text = include_str!("admin/page.html").replace("NONCE", &nonce);
    let mut answer = answer_with(StatusCode::OK, "text/html; charset=utf-8", text);
    let headers = answer.headers_mut();
    let policy = HeaderValue::try_from(policy).expect("it is ASCII");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}

async fn of_metrics(state: &State, form: Form) -> Answer {
    let report = |stacks: &Stacks| Report { counts: stacks.counts(), times: stacks.times.clone() };
    let reports = state.shards.ask_all(report).await;
    let expiries = state.health.expiries.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let body = metrics::write(reports, &state.health.counters(), expiries, form);
    answer_with(StatusCode::OK, form.content_type(), body)
}

/// Whether every shard answers, and, to be ready, does not stop.
async fn health(state: &State, is_ready: bool) -> Answer {
    let answers = state.shards.ask_all(|_| ()).await;
    let silent: Vec<String> = (answers.iter().enumerate())
        .filter(|(_, answer)| answer.is_none())
        .map(|(shard, _)| shard.to_string())
        .collect();
    if !silent.is_empty() {
        let silent = silent.join(", ");
        let why = format!("no answer within a second of shard {silent}\n");
        return text(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    if is_ready && state.health.is_stopping() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the server stops\n");
    }
    text(StatusCode::OK, "ok\n")
}

/// The knobs of the first shard's stack: a shard of several has its part of each limit.
async fn config(state: &State) -> Answer {
    let knobs = state.shards.ask(0, |stacks| {
        stacks.with_server(|host, _| {
            let knobs = host.config().knobs().into_iter();
            knobs.map(|knob| (knob.name, Value::from(knob.value))).collect::<Map<_, _>>()
        })
    });
    match knobs.await {
        Some(knobs) => object(&json!({ "shards": state.shards.count(), "knobs": knobs })),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "no answer within a second of shard 0\n"),
    }
}

fn object(value: &Value) -> Answer {
    answer_with(StatusCode::OK, "application/json", format!("{value}\n"))
}

fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    answer_with(status, "text/plain; charset=utf-8", text.into())
}

fn answer_with(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Held { bytes: Full::new(body.into()), permit: None });
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_is_at_an_address_or_a_path() {
        let parse = |text: &str| text.parse::<AdminAddress>();
        assert_eq!(parse("unix:/run/lw"), Ok(AdminAddress::Unix("/run/lw".into())));
        let tcp = parse("127.0.0.1:9100").unwrap();
        assert_eq!(tcp.to_string(), "http://127.0.0.1:9100/");
        assert!(parse("unix:").unwrap_err().contains("path"));
        assert!(parse("9100").unwrap_err().ends_with("or unix:PATH"));
    }

    #[test]
    fn a_socket_without_a_listener_is_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("door");
        let address = AdminAddress::Unix(path.clone());
        let open = |address| Door::open(address, &Shards::new(1).0, None);
        let door = open(&address).unwrap();
        assert!(open(&address).is_err(), "it is in use");
        drop(door);
        assert!(path.exists());
        drop(open(&address).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert!(open(&address).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }
}
