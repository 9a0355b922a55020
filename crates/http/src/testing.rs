//! The shared parts of the tests: files in memory, a fixed date, and a client that speaks raw HTTP
//! over an in-memory pipe.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::access::Access;
use crate::control::Delivery;
use crate::files::path::RelativePath;
use crate::files::source::{
    Entries, Entry, FileSource, Kind, Metadata, OpenError, Opened, ReadBuffer,
};
use crate::limits::memory::{ConnectionRoom, MemoryBudget};
use crate::{Clock, Control, Files, FilesConfig, Handler, Pending, Server, ServerConfig};

/// Sun, 09 Sep 2001 01:46:40 GMT.
pub(crate) fn date() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// A fixed date, and tokio's time (which tests may pause).
pub(crate) fn clock() -> Clock {
    Clock {
        timer: Rc::new(TokioTimer::new()),
        measure: Rc::new(|| tokio::time::Instant::now().into_std()),
        wall: Rc::new(date),
    }
}

/// Files in memory, last modified ten seconds before [`date`]. A name that ends in a slash is a
/// directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFiles {
    pub(crate) files: Rc<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Every read: offset and length.
    pub(crate) reads: Rc<RefCell<Vec<(u64, usize)>>>,
    /// Reads end here, as if the file had shrunk since it was opened.
    pub(crate) shrunk_to: Option<usize>,
    /// Each read is done when it has been polled that often before; 0: it is at hand at once.
    pub(crate) polls: u32,
}

impl MemoryFiles {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(name, bytes)| (name.as_bytes().to_vec(), bytes.to_vec()));
        MemoryFiles { files: Rc::new(files.collect()), polls: 1, ..MemoryFiles::default() }
    }

    fn describe(&self, kind: Kind, name: &[u8], len: usize) -> Metadata {
        let modified = Some(date() - Duration::from_secs(10));
        let identity = self.files.keys().position(|known| known == name).unwrap_or(usize::MAX);
        let (len_bytes, identity) = (len as u64, identity as u64);
        Metadata { kind, len_bytes, modified, changed: modified, identity }
    }
}

impl FileSource for MemoryFiles {
    type Handle = Vec<u8>;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<Vec<u8>>, OpenError>> {
        let name = path.as_bytes().to_vec();
        let mut directory = name.clone();
        if !name.is_empty() {
            directory.push(b'/');
        }
        let opened = if name == b"forbidden" {
            Err(OpenError::Forbidden)
        } else if name == b"broken" {
            Err(OpenError::Unavailable(io::Error::other("broken")))
        } else if let Some(bytes) = self.files.get(&name) {
            Ok((Kind::File, bytes.len()))
        } else if self.files.keys().any(|known| known.starts_with(&directory)) {
            Ok((Kind::Directory, 0))
        } else {
            Err(OpenError::NotFound)
        };
        let opened = opened.map(|(kind, len)| Opened {
            handle: if kind == Kind::File { name } else { directory },
            metadata: self.describe(kind, path.as_bytes(), len),
        });
        Box::pin(std::future::ready(opened))
    }

    fn read_at(
        &self,
        handle: &Vec<u8>,
        offset: u64,
        mut buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        self.reads.borrow_mut().push((offset, buffer.len()));
        let file = &self.files[handle];
        let end = file.len().min(self.shrunk_to.unwrap_or(usize::MAX));
        let start = (offset as usize).min(end);
        let length = buffer.len().min(end - start);
        buffer.truncate(length);
        buffer.copy_from_slice(&file[start..start + length]);
        let polls = self.polls;
        Box::pin(async move {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            Ok(buffer)
        })
    }

    fn metadata(&self, handle: &Vec<u8>) -> io::Result<Metadata> {
        let file = self.files.get(handle).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.describe(Kind::File, handle, file.len()))
    }

    fn list<T: Send + 'static>(
        &self,
        handle: &Vec<u8>,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        let mut entries: Vec<Entry> = Vec::new();
        for (name, bytes) in self.files.iter() {
            let Some(rest) = name.strip_prefix(handle.as_slice()) else { continue };
            let mut parts = rest.splitn(2, |byte| *byte == b'/');
            let (name, below) = (parts.next().unwrap_or(b"").to_vec(), parts.next().is_some());
            if name.is_empty() || entries.last().is_some_and(|last| last.name == name) {
                continue;
            }
            let kind = if below { Kind::Directory } else { Kind::File };
            let metadata = self.describe(kind, &name, bytes.len());
            entries.push(Entry { name, metadata });
        }
        let complete = entries.len() <= limit;
        entries.truncate(limit);
        let modified = self.describe(Kind::Directory, handle, 0).modified;
        Box::pin(std::future::ready(Ok(make(Entries { entries, complete, modified }))))
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        Box::pin(std::future::ready(Some(work())))
    }
}

/// Runs a test on one thread, as a shard does.
pub(crate) async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

/// A pipe that fails where it would end, as when the peer resets the connection.
pub(crate) struct Failing(pub(crate) DuplexStream, pub(crate) io::ErrorKind);

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buffer))?;
        let has_ended = buffer.filled().len() == before;
        Poll::Ready(if has_ended { Err(self.1.into()) } else { Ok(()) })
    }
}

impl AsyncWrite for Failing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A connection to a server, seen from the client.
pub(crate) struct Client<S = DuplexStream, E = hyper::Error> {
    pub(crate) stream: S,
    pub(crate) serving: JoinHandle<Result<(), E>>,
    pub(crate) records: Rc<RefCell<Vec<Access>>>,
}

pub(crate) fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 1234))
}

/// Connects to a server of `handler`, through a pipe of `pipe_bytes`.
pub(crate) fn connect<H: Handler>(handler: H, config: ServerConfig, pipe_bytes: usize) -> Client {
    connect_to(Server::new(handler, config, clock()), pipe_bytes).0
}

/// Connects to `server`, and returns the server too.
pub(crate) fn connect_to<H: Handler>(
    server: Server<H>,
    pipe_bytes: usize,
) -> (Client, Rc<Server<H>>) {
    connect_through(server, pipe_bytes, |io| io)
}

/// Connects to `server`, whose end of the pipe goes through `wrap`.
pub(crate) fn connect_through<H: Handler, I: AsyncRead + AsyncWrite + Unpin + 'static>(
    server: Server<H>,
    pipe_bytes: usize,
    wrap: impl FnOnce(DuplexStream) -> I,
) -> (Client, Rc<Server<H>>) {
    let records = Rc::new(RefCell::new(Vec::new()));
    let log = records.clone();
    let server = Rc::new(server.on_access(move |access| log.borrow_mut().push(access)));
    let (stream, io) = tokio::io::duplex(pipe_bytes);
    let serving = spawn_local(server.clone().serve(TokioIo::new(wrap(io)), peer()));
    (Client { stream, serving, records }, server)
}

/// A transport that the test scripts: the undelivered bytes, and whether it was reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transport {
    pub(crate) undelivered: Rc<Cell<usize>>,
    pub(crate) is_reset: Rc<Cell<bool>>,
    /// What it knows of deliveries, until it is reset.
    pub(crate) delivery: Rc<Cell<Option<Delivery>>>,
    /// The task to wake when the peer resets it.
    pub(crate) task: Rc<RefCell<Option<Waker>>>,
}

impl Control for Transport {
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<usize> {
        Poll::Ready(usize::MAX)
    }

    fn abort(&self) {
        self.is_reset.set(true);
        self.delivery.set(None);
    }

    fn is_closed(&self) -> bool {
        self.is_reset.get()
    }

    fn wake_when_closed(&self, cx: &Context<'_>) {
        *self.task.borrow_mut() = Some(cx.waker().clone());
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        Some(self.undelivered.get())
    }

    fn delivery(&self) -> Option<Delivery> {
        self.delivery.get()
    }
}

/// Connects to a server of `handler` over `transport`.
pub(crate) fn connect_over<H: Handler>(
    transport: &Transport,
    handler: H,
    config: ServerConfig,
) -> Client {
    serve_over(transport, Server::new(handler, config, clock()))
}

/// Connects to `server` over `transport`.
pub(crate) fn serve_over<H: Handler>(transport: &Transport, server: Server<H>) -> Client {
    let (stream, io) = tokio::io::duplex(1 << 20);
    let serving = Rc::new(server).serve_controlled(TokioIo::new(io), transport.clone(), peer());
    Client { stream, serving: spawn_local(serving), records: Rc::default() }
}

/// Connects to a file service with every knob at its default.
pub(crate) fn connect_files(source: MemoryFiles) -> Client {
    let files = Files::new(source, FilesConfig::default(), clock());
    connect(files, ServerConfig::default(), 64 << 10)
}

type GiveBack = Rc<dyn Fn()>;

/// A budget without a limit, until the test sets one. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Purse {
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) by_connections: Arc<AtomicUsize>,
    /// The whole of it; 0: without an end.
    pub(crate) bytes: Rc<Cell<usize>>,
    pub(crate) is_scarce: Rc<Cell<bool>>,
    /// Responses have no room.
    pub(crate) is_empty: Rc<Cell<bool>>,
    /// The room for connections, if it is not enough.
    pub(crate) room: Rc<Cell<Option<ConnectionRoom>>>,
    /// What the server does again and again while memory is scarce.
    pub(crate) give_back: Rc<RefCell<Option<GiveBack>>>,
}

impl MemoryBudget for Purse {
    fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    fn by_connections(&self) -> &Arc<AtomicUsize> {
        &self.by_connections
    }

    fn bytes(&self) -> usize {
        if self.bytes.get() == 0 { usize::MAX } else { self.bytes.get() }
    }

    fn is_scarce(&self) -> bool {
        self.is_scarce.get()
    }

    fn has_room(&self) -> bool {
        !self.is_empty.get()
    }

    fn room(&self) -> Pending<()> {
        let is_empty = self.is_empty.clone();
        Box::pin(std::future::poll_fn(move |_| match is_empty.get() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }))
    }

    fn when_scarce(&self, give_back: GiveBack) {
        *self.give_back.borrow_mut() = Some(give_back);
    }

    fn room_for_connection(&self, _bytes: usize) -> ConnectionRoom {
        self.room.get().unwrap_or(ConnectionRoom::Enough)
    }

    fn set_crowded(&self, _is_crowded: bool) {}
}

/// A response, taken apart.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The value of a field, if it is there.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, E> Client<S, E> {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads one response; `bodiless`: to a HEAD, or 304.
    pub(crate) async fn receive(&mut self, bodiless: bool) -> Reply {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.expect("a response"));
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if !bodiless && let Some(length) = reply.field("content-length") {
            reply.body = vec![0; length.parse().unwrap()];
            self.stream.read_exact(&mut reply.body).await.unwrap();
        }
        reply
    }

    /// Sends one request and reads its response.
    pub(crate) async fn ask(&mut self, method: &str, target: &str, fields: &str) -> Reply {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: here\r\n{fields}\r\n");
        self.send(request).await;
        self.receive(method == "HEAD" || fields.contains("If-None-Match: *")).await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Reply {
        self.ask("GET", target, "").await
    }

    /// All bytes until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).await.unwrap();
        bytes
    }
}
