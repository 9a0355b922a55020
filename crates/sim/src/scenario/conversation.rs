//! One connection's story: who says how much, how fast it is read, and who hangs up first.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::net::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::tcp::{Keepalive, SocketOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::pattern::Pattern;

/// What the two ends of one connection do.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// When A opens it, counted from the world's beginning.
    pub start: Duration,
    /// What A says, in bytes.
    pub up_bytes: u64,
    /// What B says, in bytes.
    pub down_bytes: u64,
    /// Bytes handed over in one write.
    pub write_bytes: usize,
    /// Bytes asked for in one read.
    pub read_bytes: usize,
    /// Who reads rests that long after each 64 KiB.
    pub pause: Option<Duration>,
    /// How it ends.
    pub ending: Ending,
}

/// Who hangs up, and when. A is the client, B the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both talk at once; each shuts its half down when it has said all, and reads to the end.
    EachShutsDown,
    /// The client asks, the server answers and closes.
    ServerFirst,
    /// The client asks, the server answers, the client closes.
    ClientFirst,
    /// The client closes in the midst of the answer, unread data or not.
    ClientDropsEarly,
    /// The same with linger zero.
    ClientResets,
}

impl Ending {
    /// True if not everything arrives, on purpose.
    fn is_cut(self) -> bool {
        matches!(self, Ending::ClientDropsEarly | Ending::ClientResets)
    }
}

/// How far each conversation is.
#[derive(Debug)]
pub(super) struct Board {
    clients: Vec<Option<Result<(), String>>>,
    servers: Vec<Option<Result<(), String>>>,
    /// Tasks of the server that have not ended.
    serving: usize,
    cut: Vec<bool>,
}

impl Board {
    pub(super) fn new(count: usize) -> Self {
        let empty = vec![None; count];
        Board { clients: empty.clone(), servers: empty, serving: 0, cut: vec![false; count] }
    }

    /// True if every client has ended and every server task, too; or something went wrong.
    pub(super) fn is_over(&self) -> bool {
        if self.verdict().is_err() {
            return true;
        }
        let served = |number: usize| self.servers[number].is_some() || self.cut[number];
        self.serving == 0
            && self.clients.iter().all(Option::is_some)
            && (0..self.servers.len()).all(served)
    }

    /// The first conversation that went wrong.
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

/// Where the patterns of a conversation begin.
fn patterns(seed: u64, number: usize) -> (Pattern, Pattern) {
    let base = seed.wrapping_add(number as u64 * 2);
    (Pattern::new(base), Pattern::new(base + 1))
}

/// The client's end.
pub(super) async fn converse(
    server: SocketAddr,
    seed: u64,
    conversations: Rc<[Conversation]>,
    number: usize,
    board: Rc<RefCell<Board>>,
) {
    let plan = &conversations[number];
    rt::sleep(plan.start).await;
    let outcome = client(server, seed, plan, number).await;
    let mut board = board.borrow_mut();
    board.cut[number] = plan.ending.is_cut();
    // Whoever cuts it does not care how it failed before.
    let outcome = if plan.ending.is_cut() { ignore_broken(outcome) } else { outcome };
    board.clients[number] = Some(outcome.map_err(|error| error.to_string()));
}

async fn client(
    server: SocketAddr,
    seed: u64,
    plan: &Conversation,
    number: usize,
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
            hear_to_end(&mut reader, down, plan.down_bytes, plan).await?;
            writing.await.map_err(io::Error::other)?.map(drop)
        }
        Ending::ServerFirst => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear_to_end(&mut reader, down, plan.down_bytes, plan).await
        }
        Ending::ClientFirst => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear(&mut reader, down, 0, plan.down_bytes, plan).await
        }
        Ending::ClientDropsEarly | Ending::ClientResets => {
            say(&mut writer, up, plan.up_bytes, plan).await?;
            hear(&mut reader, down, 0, plan.down_bytes / 2, plan).await?;
            let stream = reader.reunite(writer).expect("both halves are of one stream");
            if plan.ending == Ending::ClientResets {
                stream.set_linger(Some(Duration::ZERO))?;
            }
            Ok(())
        }
    }
}

/// Attempts to connect while the network is to blame: ARP and NDP give up after three losses, and a
/// damaged ARP packet, which has no checksum, leads a handshake astray until its time is over.
const ATTEMPTS: usize = 20;

async fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    for _ in 0..ATTEMPTS {
        match TcpStream::connect(server).await {
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

/// Accepts connections for ever, each served by a task of its own.
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
            let mut number = None;
            let outcome = serve(stream, seed, &conversations, &mut number).await;
            let mut board = board.borrow_mut();
            board.serving -= 1;
            let outcome = match number {
                Some(number) if !conversations[number].ending.is_cut() => {
                    board.servers[number] = Some(outcome.map_err(|error| error.to_string()));
                    return;
                }
                // It was cut before it said its number, or is to be cut.
                _ => ignore_broken(outcome),
            };
            if let Some(number) = number {
                board.servers[number] = Some(outcome.map_err(|error| error.to_string()));
            }
        });
    }
}

/// Long enough to stay out of the way, short enough for the end to come.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(120), interval: Duration::from_secs(10), probes: 9 };

async fn serve(
    stream: TcpStream,
    seed: u64,
    conversations: &[Conversation],
    number: &mut Option<usize>,
) -> io::Result<()> {
    // A reset that is lost leaves us half open, for ever but for these.
    stream.set_options(SocketOptions { keepalive: Some(KEEPALIVE), ..stream.options()? })?;
    let (mut reader, mut writer) = stream.into_split();
    let mut first = [0; 4];
    reader.read_exact(&mut first).await?;
    let named = u32::from_le_bytes(first) as usize;
    let plan = conversations.get(named).ok_or_else(|| io::Error::other("no such conversation"))?;
    *number = Some(named);
    let (up, down) = patterns(seed, named);
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
            hear_to_end(&mut reader, up, plan.up_bytes, plan).await?;
            writing.await.map_err(io::Error::other)?.map(drop)
        }
        Ending::ServerFirst => {
            hear(&mut reader, up, 0, plan.up_bytes, plan).await?;
            say(&mut writer, down, plan.down_bytes, plan).await
        }
        Ending::ClientFirst | Ending::ClientDropsEarly | Ending::ClientResets => {
            hear(&mut reader, up, 0, plan.up_bytes, plan).await?;
            say(&mut writer, down, plan.down_bytes, plan).await?;
            let mut rest = [0; 1];
            match reader.read(&mut rest).await? {
                0 => Ok(()),
                _ => Err(io::Error::other("more came than was said")),
            }
        }
    }
}

/// Errors that a peer which cuts the connection causes are no errors.
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

/// Says `length` bytes of a pattern.
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

/// Hears the bytes `from..to` of a pattern, each as it should be.
async fn hear<R: AsyncRead + Unpin>(
    reader: &mut R,
    pattern: Pattern,
    from: u64,
    to: u64,
    plan: &Conversation,
) -> io::Result<()> {
    let mut buffer = vec![0; plan.read_bytes];
    let mut heard = from;
    while heard < to {
        let size = (to - heard).min(buffer.len() as u64) as usize;
        let count = reader.read(&mut buffer[..size]).await?;
        if count == 0 {
            return Err(io::Error::other(format!("the stream ends at {heard} of {to} bytes")));
        }
        if let Some(at) = pattern.first_difference(heard, &buffer[..count]) {
            return Err(io::Error::other(format!("byte {at} of {to} is wrong")));
        }
        let rested = heard >> 16;
        heard += count as u64;
        if let Some(pause) = plan.pause
            && heard >> 16 != rested
        {
            rt::sleep(pause).await;
        }
    }
    Ok(())
}

/// Hears all of a pattern, and then the stream's end.
async fn hear_to_end<R: AsyncRead + Unpin>(
    reader: &mut R,
    pattern: Pattern,
    length: u64,
    plan: &Conversation,
) -> io::Result<()> {
    hear(reader, pattern, 0, length, plan).await?;
    let mut rest = [0; 1];
    match reader.read(&mut rest).await? {
        0 => Ok(()),
        _ => Err(io::Error::other("more came than was said")),
    }
}
