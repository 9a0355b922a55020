//! One connection's story: the data of each end, the speed of its readers, and the end that closes
//! first.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::tcp::{Keepalive, SocketOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::pattern::Pattern;

/// The behaviour of the two ends of one connection.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The time at which A opens it, from the world's beginning.
    pub start: Duration,
    /// Bytes that A sends.
    pub up_bytes: u64,
    /// Bytes that B sends.
    pub down_bytes: u64,
    /// Bytes of a write.
    pub write_bytes: usize,
    /// Bytes of a read.
    pub read_bytes: usize,
    /// The pause of the reader after each 64 KiB.
    pub pause: Option<Duration>,
    /// The ending.
    pub ending: Ending,
}

/// The end that closes, and the time. A is the client, B the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends send at once; each shuts its half down when it has sent everything, and reads to
    /// the end.
    EachShutsDown,
    /// The client sends a request, the server answers and closes.
    ServerFirst,
    /// The server closes first, and the client closes that long after it has read the end.
    ClientLate(Duration),
    /// The client sends a request, the server answers, the client closes.
    ClientFirst,
    /// The client closes during the answer, with or without unread data.
    ClientDropsEarly,
    /// The client closes during the answer, with linger zero.
    ClientResets,
}

impl Ending {
    /// True if the ending loses data on purpose.
    fn is_cut(self) -> bool {
        matches!(self, Ending::ClientDropsEarly | Ending::ClientResets)
    }
}

/// The outcome of a conversation for its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It was cut on purpose, so that data on its way may be lost.
    pub is_cut: bool,
    /// Bytes that the client received, all of them correct.
    pub down_bytes: u64,
    /// Bytes that the server received, all of them correct.
    pub up_bytes: u64,
}

/// The progress of each conversation.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) outcomes: Vec<Outcome>,
    clients: Vec<Option<Result<(), String>>>,
    servers: Vec<Option<Result<(), String>>>,
    /// Tasks of the server that have not ended.
    serving: usize,
}

impl Board {
    pub(super) fn new(count: usize) -> Self {
        let empty = vec![None; count];
        let outcomes = vec![Outcome::default(); count];
        Board { outcomes, clients: empty.clone(), servers: empty, serving: 0 }
    }

    /// True if every client task and every server task has ended, or one has failed.
    pub(super) fn is_over(&self) -> bool {
        if self.verdict().is_err() {
            return true;
        }
        let served = |number: usize| self.servers[number].is_some() || self.outcomes[number].is_cut;
        self.serving == 0
            && self.clients.iter().all(Option::is_some)
            && (0..self.servers.len()).all(served)
    }

    /// The first failure of a conversation.
    pub(super) fn verdict(&self) -> Result<(), String> {
        for (side, outcomes) in [("client", &self.clients), ("server", &self.servers)] {
            for (number, outcome) in outcomes.iter().enumerate() {
                if let Some(Err(why)) = outcome {
                    return Err(format!("conversation {number}, {side}: {why}"));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (client, server)) in self.clients.iter().zip(&self.servers).enumerate() {
            write!(f, "[{number}: client {client:?}, server {server:?}] ")?;
        }
        write!(f, "{} served", self.serving)
    }
}

/// The patterns of a conversation's two directions.
fn patterns(seed: u64, number: usize) -> (Pattern, Pattern) {
    let base = seed.wrapping_add(number as u64 * 2);
    (Pattern::new(base), Pattern::new(base + 1))
}

/// Runs the client's end.
pub(super) async fn converse(
    server: SocketAddr,
    seed: u64,
    conversations: Rc<[Conversation]>,
    number: usize,
    board: Rc<RefCell<Board>>,
) {
    let plan = &conversations[number];
    rt::sleep(plan.start).await;
    let heard = Cell::new(0);
    let outcome = client(server, seed, plan, number, &heard).await;
    let mut board = board.borrow_mut();
    board.outcomes[number].is_cut = plan.ending.is_cut();
    board.outcomes[number].down_bytes = heard.get();
    // A client that cuts the connection ignores earlier failures.
    let outcome = if plan.ending.is_cut() { ignore_broken(outcome) } else { outcome };
    board.clients[number] = Some(outcome.map_err(|error| error.to_string()));
}

async fn client(
    server: SocketAddr,
    seed: u64,
    plan: &Conversation,
    number: usize,
    heard: &Cell<u64>,
) -> io::Result<()> {
    let (up, down) = patterns(seed, number);
    let stream = connect(server).await?;
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(&(number as u32).to_le_bytes()).await?;
    match plan.ending {
        Ending::EachShutsDown => {
            let writing = Handle::current().spawn_local({
                let plan = plan.clone();
                async move {
                    say(&mut writer, up, plan.up_bytes, &plan).await?;
                    writer.shutdown().await?;
                    Ok::<_, io::Error>(writer)
                }
            });
            hear_to_end(&mut reader, down, plan.down_bytes, (plan, heard)).await?;
            writing.await.map_err(io::Error::other)?.map(drop)
        }
        Ending::ServerFirst => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear_to_end(&mut reader, down, plan.down_bytes, (plan, heard)).await
        }
        Ending::ClientLate(stay) => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear_to_end(&mut reader, down, plan.down_bytes, (plan, heard)).await?;
            rt::sleep(stay).await;
            Ok(())
        }
        Ending::ClientFirst => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear(&mut reader, down, plan.down_bytes, (plan, heard)).await
        }
        Ending::ClientDropsEarly | Ending::ClientResets => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear(&mut reader, down, plan.down_bytes / 2, (plan, heard)).await?;
            let stream = reader.reunite(writer).expect("both halves are of one stream");
            if plan.ending == Ending::ClientResets {
                stream.set_linger(Some(Duration::ZERO))?;
            }
            Ok(())
        }
    }
}

/// Attempts to connect while the network is to blame. ARP and NDP give up after three losses. A
/// damaged ARP packet, which has no checksum, misdirects a handshake until its timeout.
const ATTEMPTS: usize = 20;
/// The interval at which a client asks for a port while none is free.
const PORT_EVERY: Duration = Duration::from_millis(100);

async fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    for _ in 0..ATTEMPTS {
        let outcome = loop {
            match TcpStream::connect(server).await {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    rt::sleep(PORT_EVERY).await;
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut
                ) =>
            {
                rt::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
    Err(io::ErrorKind::HostUnreachable.into())
}

/// Accepts connections for ever, with a task for each.
pub(super) async fn accept_all(
    listener: TcpListener,
    seed: u64,
    conversations: Rc<[Conversation]>,
    board: Rc<RefCell<Board>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        board.borrow_mut().serving += 1;
        let (conversations, board) = (conversations.clone(), board.clone());
        Handle::current().spawn_local(async move {
            let (mut number, heard) = (None, Cell::new(0));
            let outcome = serve(stream, seed, &conversations, &mut number, &heard).await;
            let mut board = board.borrow_mut();
            board.serving -= 1;
            if let Some(number) = number {
                board.outcomes[number].up_bytes = heard.get();
            }
            let outcome = match number {
                Some(number) if !conversations[number].ending.is_cut() => {
                    board.servers[number] = Some(outcome.map_err(|error| error.to_string()));
                    return;
                }
                // The connection was cut before it sent its number, or is to be cut.
                _ => ignore_broken(outcome),
            };
            if let Some(number) = number {
                board.servers[number] = Some(outcome.map_err(|error| error.to_string()));
            }
        });
    }
}

/// Long enough to cause no traffic, short enough for the end to come.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(120), interval: Duration::from_secs(10), probes: 9 };

async fn serve(
    stream: TcpStream,
    seed: u64,
    conversations: &[Conversation],
    number: &mut Option<usize>,
    heard: &Cell<u64>,
) -> io::Result<()> {
    // If a reset is lost, only keepalives end the half-open connection.
    stream.set_options(SocketOptions { keepalive: Some(KEEPALIVE), ..stream.options()? })?;
    let (mut reader, mut writer) = stream.into_split();
    let mut first = [0; 4];
    reader.read_exact(&mut first).await?;
    let named = u32::from_le_bytes(first) as usize;
    let plan = conversations.get(named).ok_or_else(|| io::Error::other("no such conversation"))?;
    *number = Some(named);
    let (up, down) = patterns(seed, named);
    if let Ending::ClientLate(_) = plan.ending {
        // An orphan with keepalive would stay a whole connection.
        let stream = reader.as_ref();
        stream.set_options(SocketOptions { keepalive: None, ..stream.options()? })?;
    }
    match plan.ending {
        Ending::EachShutsDown => {
            let writing = Handle::current().spawn_local({
                let plan = plan.clone();
                async move {
                    say(&mut writer, down, plan.down_bytes, &plan).await?;
                    writer.shutdown().await?;
                    Ok::<_, io::Error>(writer)
                }
            });
            hear_to_end(&mut reader, up, plan.up_bytes, (plan, heard)).await?;
            writing.await.map_err(io::Error::other)?.map(drop)
        }
        Ending::ServerFirst | Ending::ClientLate(_) => {
            hear(&mut reader, up, plan.up_bytes, (plan, heard)).await?;
            say(&mut writer, down, plan.down_bytes, plan).await
        }
        Ending::ClientFirst | Ending::ClientDropsEarly | Ending::ClientResets => {
            hear(&mut reader, up, plan.up_bytes, (plan, heard)).await?;
            say(&mut writer, down, plan.down_bytes, plan).await?;
            let mut rest = [0; 1];
            match reader.read(&mut rest).await? {
                0 => Ok(()),
                _ => Err(io::Error::other("more came than was said")),
            }
        }
    }
}

/// Ignores errors that a peer causes by cutting the connection.
fn ignore_broken(outcome: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match outcome {
        Err(error)
            if matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            ) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Sends `length` bytes of a pattern.
async fn say<W: AsyncWrite + Unpin>(
    writer: &mut W,
    pattern: Pattern,
    length: u64,
    plan: &Conversation,
) -> io::Result<()> {
    let mut said = 0;
    let mut buffer = vec![0; plan.write_bytes];
    while said < length {
        let size = (length - said).min(buffer.len() as u64) as usize;
        pattern.fill(said, &mut buffer[..size]);
        writer.write_all(&buffer[..size]).await?;
        said += size as u64;
    }
    Ok(())
}

/// Reads the first `length` bytes of a pattern and checks each; `heard` counts the bytes so far.
async fn hear<R: AsyncRead + Unpin>(
    reader: &mut R,
    pattern: Pattern,
    length: u64,
    (plan, heard): (&Conversation, &Cell<u64>),
) -> io::Result<()> {
    let mut buffer = vec![0; plan.read_bytes];
    while heard.get() < length {
        let before = heard.get();
        let size = (length - before).min(buffer.len() as u64) as usize;
        let count = reader.read(&mut buffer[..size]).await?;
        if count == 0 {
            return Err(io::Error::other(format!("the stream ends at {before} of {length} bytes")));
        }
        if let Some(at) = pattern.first_difference(before, &buffer[..count]) {
            return Err(io::Error::other(format!("byte {at} of {length} is wrong")));
        }
        heard.set(before + count as u64);
        if let Some(pause) = plan.pause
            && heard.get() >> 16 != before >> 16
        {
            rt::sleep(pause).await;
        }
    }
    Ok(())
}

/// Reads all of a pattern, and then the stream's end.
async fn hear_to_end<R: AsyncRead + Unpin>(
    reader: &mut R,
    pattern: Pattern,
    length: u64,
    listening: (&Conversation, &Cell<u64>),
) -> io::Result<()> {
    hear(reader, pattern, length, listening).await?;
    let mut rest = [0; 1];
    match reader.read(&mut rest).await? {
        0 => Ok(()),
        _ => Err(io::Error::other("more came than was said")),
    }
}
