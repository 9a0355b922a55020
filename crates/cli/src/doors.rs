//! Asks the admin doors of running servers, from outside.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::serve::admin::AdminAddress;
use crate::serve::admin::connections::LIMIT_MOST;

/// Where a server's door is where nothing else is said.
pub(crate) const USUAL: &str = "127.0.0.1:9100";
/// How long a door has to answer, beyond what the question itself takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;

/// The doors to ask.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoorArgs {
    /// The admin door of a server (`lightwait serve --admin`); may be repeated, one for each
    /// process
    #[arg(long, value_name = "ADDR|unix:PATH", default_value = USUAL)]
    pub(crate) admin: Vec<AdminAddress>,
}

/// Why a door gave no answer.
#[derive(Debug)]
pub(crate) enum DoorError {
    /// Nobody can be reached there.
    Unreachable(io::Error),
    /// It took too long.
    Late,
    /// What answers is no admin door, or one of another version.
    NoDoor(String),
    /// The door says what is wrong with the question.
    Refused(String),
}

/// A door to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Door(pub(crate) AdminAddress);

/// What the futures of questions run on.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// How a list of a server's sockets ended.
pub(crate) struct Ending {
    /// There are more.
    pub(crate) is_cut: bool,
    /// The shards that gave no answer, whose sockets are missing.
    silent: BTreeSet<u64>,
}

impl Ending {
    /// What to say of the shards that are missing, if any is.
    pub(crate) fn complaint(&self) -> Option<String> {
        let silent: Vec<String> = self.silent.iter().map(u64::to_string).collect();
        let text = format!("shard {} gives no answer: its sockets are missing", silent.join(", "));
        (!silent.is_empty()).then_some(text)
    }
}

impl Door {
    /// The doors that the command line names, each once.
    pub(crate) fn all(args: &DoorArgs) -> Vec<Door> {
        let mut doors: Vec<Door> = Vec::new();
        for address in &args.admin {
            let door = Door(address.clone());
            if !doors.contains(&door) {
                doors.push(door);
            }
        }
        doors
    }

    /// Its name for people: what was typed.
    pub(crate) fn name(&self) -> String {
        match &self.0 {
            AdminAddress::Tcp(at) => crate::zone::Named(*at).to_string(),
            AdminAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Asks for `target`, which takes the server `long`, and reads the JSON that comes.
    pub(crate) async fn ask(&self, target: &str, long: Duration) -> Result<Value, Failure> {
        let answer = timeout(long + PATIENCE, self.get(target)).await;
        let body = match answer {
            Ok(body) => body.map_err(|error| Failure::Door(self.name(), error))?,
            Err(_) => return Err(Failure::Door(self.name(), DoorError::Late)),
        };
        serde_json::from_slice(&body).map_err(|error| {
            let why = format!("{target} is no JSON: {error}");
            Failure::Door(self.name(), DoorError::NoDoor(why))
        })
    }

    async fn get(&self, target: &str) -> Result<Bytes, DoorError> {
        match &self.0 {
            AdminAddress::Tcp(at) => {
                let stream = TcpStream::connect(at).await.map_err(DoorError::Unreachable)?;
                exchange(stream, target).await
            }
            AdminAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(DoorError::Unreachable)?;
                exchange(stream, target).await
            }
        }
    }

    /// The sockets that `query` asks for, `most` at most.
    pub(crate) async fn sockets(
        &self,
        query: &str,
        most: usize,
    ) -> Result<(Vec<Value>, Ending), Failure> {
        let mut rows = Vec::new();
        let keep = |page| {
            rows.extend(page);
            Ok(true)
        };
        let ending = self.pages(query, most, keep).await?;
        Ok((rows, ending))
    }

    /// The sockets that `query` asks for, `most` at most, some thousands at a time, until `take`
    /// fails or returns false.
    pub(crate) async fn pages(
        &self,
        query: &str,
        most: usize,
        mut take: impl FnMut(Vec<Value>) -> Result<bool, Failure>,
    ) -> Result<Ending, Failure> {
        let (mut left, mut next, mut silent) = (most, None::<String>, BTreeSet::new());
        loop {
            let limit = left.min(LIMIT_MOST);
            let from = next.map_or_else(String::new, |next| format!("&from={next}"));
            let target = format!("/connections?limit={limit}{from}{query}");
            let mut answer = self.ask(&target, Duration::ZERO).await?;
            let no_door = |why: &str| Failure::Door(self.name(), DoorError::NoDoor(why.to_owned()));
            let Value::Array(page) = answer["connections"].take() else {
                return Err(no_door("/connections has no connections"));
            };
            let shards = answer["silent_shards"].as_array().into_iter().flatten();
            silent.extend(shards.filter_map(Value::as_u64));
            next = answer["next"].as_str().map(str::to_owned);
            left = left.saturating_sub(page.len());
            let goes_on = take(page)?;
            if next.is_none() || left == 0 || !goes_on {
                return Ok(Ending { is_cut: goes_on && next.is_some(), silent });
            }
        }
    }
}

/// The peer of a row that people mean: the client that a bridge stands for, if there is one.
pub(crate) fn peer(row: &Value) -> Option<&str> {
    row["client"].as_str().or_else(|| row["peer"].as_str())
}

/// A request on a connection of its own, and its answer.
async fn exchange<S>(stream: S, target: &str) -> Result<Bytes, DoorError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_door = |error: &dyn fmt::Display| DoorError::NoDoor(error.to_string());
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| no_door(&error))?;
    let served = tokio::spawn(connection);
    let request = Request::get(target)
        .header(header::HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|error| no_door(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| no_door(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
    served.abort();
    let body = body.map_err(|error| no_door(&error))?.to_bytes();
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::BAD_REQUEST => {
            Err(DoorError::Refused(String::from_utf8_lossy(&body).trim().to_owned()))
        }
        _ => Err(DoorError::NoDoor(format!("it answers {target} with {status}"))),
    }
}

impl fmt::Display for DoorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoorError::Unreachable(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => f.write_str(
                    "no server has its admin door there; start one by `lightwait serve --admin \
                     ADDR`, or name its door by --admin",
                ),
                io::ErrorKind::PermissionDenied => f.write_str(
                    "no permission to reach the admin door; be the user that serves, or root",
                ),
                _ => write!(f, "the admin door cannot be reached: {error}"),
            },
            DoorError::Late => f.write_str("the admin door does not answer"),
            DoorError::NoDoor(why) => write!(
                f,
                "what answers is no admin door of this version ({why}); name by --admin what \
                 `lightwait serve` was given"
            ),
            DoorError::Refused(why) => f.write_str(why),
        }
    }
}
