//! Log lines, for people or for programs.
//!
//! A thread of its own writes the lines, since a stalled terminal must not stop a shard. If the
//! thread falls too far behind, lines are dropped and counted, and the count is logged.

mod access;
mod events;
mod format;
mod journal;
mod outputs;

pub(crate) use events::{Level, collect};
use format::Format;
pub(crate) use outputs::{AccessOutput, Outputs};

use std::io;
#[cfg(test)]
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lightwait_core::ip::conflict::Conflict;
use lightwait_http::Access;
use lightwait_http::date::Utc;
use serde_json::{Map, Value, json};

use crate::counts::Counts;
use crate::failure::mac;
use crate::serve::admin::AdminAddress;

/// The form of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Lines that are of no request are JSON; else words for people.
    pub(crate) is_json: bool,
    /// The form of a request's line.
    pub(crate) requests: Requests,
}

/// The form of a request's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requests {
    /// Combined, as Apache and nginx write it.
    Combined,
    /// Combined, and our own fields behind it.
    Fields,
    /// JSON.
    Json,
    /// The user's own.
    Format(Arc<Format>),
}

impl Form {
    /// Words for people.
    pub(crate) const COMBINED: Form = Form { is_json: false, requests: Requests::Combined };
    /// Combined, with our own fields behind it.
    pub(crate) const FIELDS: Form = Form { is_json: false, requests: Requests::Fields };
    /// JSON.
    pub(crate) const JSON: Form = Form { is_json: true, requests: Requests::Json };
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Requests, String> {
        match text {
            "combined" => Ok(Requests::Combined),
            "fields" => Ok(Requests::Fields),
            "json" => Ok(Requests::Json),
            _ if text.contains('$') => Ok(Requests::Format(Arc::new(text.parse()?))),
            _ => Err("give combined, fields, json, or a format with variables such as \
                      '$remote_addr \"$request\" $status'"
                .to_owned()),
        }
    }
}

/// Lines that may wait for the writer.
const WAITING_LINES: usize = 8192;

/// The writer gathers lines for so long: to wake it for each line costs a shard more than the
/// request that the line tells of. In that time a shard writes a tenth of [`WAITING_LINES`].
const GATHERING: Duration = Duration::from_millis(5);

/// An event that is logged.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// Neighbours are asked about our addresses, to find conflicts.
    Asking { addresses: Vec<IpAddr>, longest: Duration },
    /// Another station claims an address of ours.
    Conflict(Conflict),
    /// The server is ready.
    Serving { directory: String, urls: Vec<String>, stack: String, admin: Option<AdminAddress> },
    /// The certificates that are shown from now on, by their SHA-256.
    Certificates { sha256: Vec<String> },
    /// A configuration file was read again; the keys whose new values hold from now on.
    Reloaded { path: String, keys: Vec<String> },
    /// What the server may not do from now on, and what could not be forbidden.
    Sandbox { parts: Vec<&'static str>, lacking: Vec<String> },
    /// This process has taken a shard over from another, with connections that still end there.
    TakenOver { pid: u64, shard: u16, connections: usize, records: usize },
    /// Another process serves from now on.
    HandedOver { pid: u64 },
    /// The process before this one is gone; so many of its connections were left.
    Drained { pid: u64, left: usize },
    /// A response is over.
    Access(Box<Access>),
    /// A connection ended in an error.
    Failed { peer: SocketAddr, error: String },
    /// A problem that does not end the program.
    Trouble { text: String },
    /// A problem with closed connections that concerns the operator.
    Closed(Concern),
    /// Something at the edge of a connection, or a limit.
    Event { level: &'static str, what: String, fields: Map<String, Value> },
    /// A stack's counters: for people a table, apart from the lines.
    Counts(Box<Counts>),
    /// A frame, by `--trace`, and the shard if there are several.
    Frame { shard: Option<u16>, line: String },
    /// The server stops; that many connections may finish.
    Stopping { connections: usize },
    /// The server has stopped.
    Stopped { unfinished: usize },
    /// Lines that were dropped for lack of room.
    Dropped { lines: u64 },
}

/// A problem with the records of closed connections. Numbers count since the last line of that
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// The table holds `held` records of `limit`: it will soon be full.
    Filling { kind: Kind, held: usize, limit: usize },
    /// The table was full: `evicted` records were dropped before their time.
    Full { kind: Kind, evicted: u64, held: usize },
    /// Segments for records of FIN-WAIT-2 were dropped: too many of these records receive segments
    /// at once, or the limit of connections is reached.
    Unheard { segments: u64 },
    /// TIME-WAIT records refused that many SYNs.
    Refused { syns: u64 },
    /// Opening `opens` connections passed over `passed` ports in TIME-WAIT: ports will soon run
    /// out.
    PortsScarce { passed: u64, opens: u64 },
    /// That many connections could not be opened, since no port was free.
    NoPort { opens: u64 },
    /// Memory was short. It counts connections reset whose peers took no data, or took it too
    /// slowly, connections closed that waited for a request, and connections refused.
    MemoryShort { resets: u64, slow: u64, closed: u64, refused: u64 },
}

/// The kind of a table's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Connections in TIME-WAIT.
    TimeWait,
    /// Connections that the application has closed and the peer has not.
    FinWait2,
}

impl Kind {
    /// The names for people, and for programs.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::TimeWait => ("TIME-WAIT", "time_wait"),
            Kind::FinWait2 => ("FIN-WAIT-2", "fin_wait_2"),
        }
    }
}

/// The sender of records. Clones share one writer.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    sender: SyncSender<(SystemTime, Message)>,
    shared: Arc<Shared>,
}

/// The writer's inputs beside records.
#[derive(Debug, Default)]
struct Shared {
    /// Lines dropped since the log told of that.
    dropped: AtomicU64,
    /// Lines dropped, or not written, since the beginning.
    lost: AtomicU64,
    /// The writer should open its files again.
    reopen: AtomicBool,
}

/// A message to the writer.
#[derive(Debug)]
enum Message {
    Record(Record),
    /// Wakes the writer, which then looks at [`Shared`].
    Nudge,
}

/// The thread that writes; ends when every [`Log`] is dropped.
#[derive(Debug)]
pub(crate) struct Writer(JoinHandle<()>);

impl Log {
    /// Starts a writer.
    pub(crate) fn start(form: Form, outputs: Outputs) -> io::Result<(Log, Writer)> {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        let builder = std::thread::Builder::new().name("log".to_owned());
        let thread = builder.spawn(move || write_all(&receiver, &ours, &form, outputs))?;
        Ok((Log { sender, shared }, Writer(thread)))
    }

    /// Logs a record with the present time, or counts it as dropped if the writer is too far
    /// behind.
    pub(crate) fn write(&self, record: Record) {
        if self.sender.try_send((SystemTime::now(), Message::Record(record))).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the lines that are lost, also when the log itself is gone.
    pub(crate) fn losses(&self) -> Losses {
        Losses(self.shared.clone())
    }

    /// Opens the log's files again, after they were moved.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
        // If the channel is full, the writer looks at the flag anyway.
        let _ = self.sender.try_send((SystemTime::now(), Message::Nudge));
    }
}

/// The lines of a log that are lost.
#[derive(Clone, Debug)]
pub(crate) struct Losses(Arc<Shared>);

impl Losses {
    /// Lines dropped since the beginning because the writer was too slow, or that it could not
    /// write.
    pub(crate) fn lines(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Waits until everything is written. Every [`Log`] must be gone.
    pub(crate) fn finish(self) {
        // The thread panics only if formatting does, and has then reported it already.
        let _ = self.0.join();
    }
}

fn write_all(
    receiver: &Receiver<(SystemTime, Message)>,
    shared: &Shared,
    form: &Form,
    mut outputs: Outputs,
) {
    let _ = crate::serve::drop_privileges();
    let write = |outputs: &mut Outputs, time, record: &Record| {
        let is_access = matches!(record, Record::Access(_));
        // A closed output is the reader's choice; serving goes on.
        let written = match record {
            Record::Access(access) => outputs.line(&of_request(time, access, form), is_access),
            _ if form.is_json => outputs.line(&machine(time, record), is_access),
            Record::Counts(counts) => outputs.table(&counts.table()),
            _ => outputs.line(&human(time, record), is_access),
        };
        written.unwrap_or_else(|error| outputs.complain(&error));
    };
    while let Ok(first) = receiver.recv() {
        let waiting = receiver.try_iter().take(WAITING_LINES);
        for (time, message) in std::iter::once(first).chain(waiting) {
            if shared.reopen.swap(false, Ordering::Relaxed) {
                for text in outputs.reopen() {
                    write(&mut outputs, SystemTime::now(), &Record::Trouble { text });
                }
            }
            if let Message::Record(record) = message {
                write(&mut outputs, time, &record);
            }
        }
        let lines = shared.dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            write(&mut outputs, SystemTime::now(), &Record::Dropped { lines });
        }
        outputs.flush().unwrap_or_else(|error| outputs.complain(&error));
        shared.lost.fetch_add(outputs.take_lost(), Ordering::Relaxed);
        std::thread::sleep(GATHERING);
    }
}

/// The line of a request.
fn of_request(time: SystemTime, access: &Access, form: &Form) -> String {
    match &form.requests {
        Requests::Combined => access::line(time, access, false),
        Requests::Fields => access::line(time, access, true),
        Requests::Json => stamped(time, access::object(access)),
        Requests::Format(format) => format.line(time, access),
    }
}

/// A line for people: the date with its zone, and the event.
fn human(time: SystemTime, record: &Record) -> String {
    let words = words(time, record);
    match record {
        // Both have a time of their own.
        Record::Access(_) | Record::Frame { .. } => words,
        _ => format!("{} {words}", Utc::of(time)),
    }
}

fn words(time: SystemTime, record: &Record) -> String {
    match record {
        Record::Asking { addresses, longest } => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let (addresses, longest) = (addresses.join(" and "), longest.as_secs_f64());
            format!("Probing for other users of {addresses} ({longest} s at most)…")
        }
        Record::Conflict(Conflict { address, claimant, kept }) => {
            let claimant = mac(*claimant);
            if *kept {
                format!(
                    "Warning: {claimant} claims our address {address}, too. We keep it and have \
                     announced that; one of the two needs another address."
                )
            } else {
                format!("Warning: {claimant} has the address {address}: it is not used here.")
            }
        }
        Record::Serving { directory, urls, stack, admin } => {
            let urls = urls.join(" and ");
            let admin = admin.as_ref().map(|at| format!(" The admin door is at {at}."));
            let admin = admin.unwrap_or_default();
            format!("Serving {directory} at {urls} ({stack}).{admin} Ctrl-C stops.")
        }
        Record::Certificates { sha256 } => {
            format!("Certificates shown, by SHA-256: {}.", sha256.join(", "))
        }
        Record::Reloaded { path, keys } if keys.is_empty() => {
            format!("{path} was read again: nothing new holds.")
        }
        Record::Reloaded { path, keys } => {
            format!("{path} was read again: {} from now on.", keys.join(", "))
        }
        Record::Sandbox { .. }
        | Record::TakenOver { .. }
        | Record::HandedOver { .. }
        | Record::Drained { .. } => words_of_process(record),
        Record::Access(access) => access::line(time, access, false),
        Record::Failed { peer, error } => format!("{peer}: {error}"),
        Record::Trouble { text } => text.clone(),
        Record::Event { level, what, fields } => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::String(text) => format!(" {name}={text}"),
                other => format!(" {name}={other}"),
            };
            format!("{level} {what}{}", fields.iter().map(field).collect::<String>())
        }
        Record::Closed(concern) => human_concern(*concern),
        Record::Counts(counts) => counts.table(),
        Record::Frame { shard: None, line } => line.clone(),
        Record::Frame { shard: Some(shard), line } => format!("shard {shard} {line}"),
        Record::Stopping { connections: 0 } => "Stopping.".to_owned(),
        Record::Stopping { connections } => {
            let connections = many(*connections as u64, "connection");
            format!("Stopping: {connections} may finish. Ctrl-C again stops at once.")
        }
        Record::Stopped { unfinished: 0 } => "Stopped.".to_owned(),
        Record::Stopped { unfinished } => {
            format!("Stopped; cut short: {}.", many(*unfinished as u64, "connection"))
        }
        Record::Dropped { lines } => {
            format!("(Output is too slow. Dropped: {}.)", many(*lines, "log line"))
        }
    }
}

/// The words for what concerns the process itself, and others beside it.
fn words_of_process(record: &Record) -> String {
    match record {
        Record::Sandbox { parts, lacking } => {
            let left = if lacking.is_empty() {
                String::new()
            } else {
                format!(" Not restricted: {}.", lacking.join(", "))
            };
            format!("Restricted from now on: {}.{left}", parts.join(", "))
        }
        Record::TakenOver { pid, shard, connections, records } => format!(
            "Shard {shard} takes over from process {pid}: {} end there, {} of closed ones are kept \
             here.",
            many(*connections as u64, "connection"),
            many(*records as u64, "record"),
        ),
        Record::HandedOver { pid } => format!("Process {pid} has taken over."),
        Record::Drained { pid, left: 0 } => {
            format!("Process {pid}, which served before this one, is done.")
        }
        Record::Drained { pid, left } => format!(
            "Process {pid}, which served before this one, is gone; {} had not ended.",
            many(*left as u64, "connection")
        ),
        _ => String::new(),
    }
}

/// A number and its noun.
fn many(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Advice against running out of ports.
const MORE_PORTS: &str = "More source addresses have more ports: see docs/serving.md.";

fn human_concern(concern: Concern) -> String {
    match concern {
        Concern::Filling { kind, held, limit } => {
            let (state, _) = kind.names();
            let records = many(held as u64, "record");
            format!("{state} fills up: it holds {records}, and may hold {limit}.")
        }
        Concern::Full { kind, evicted, held } => {
            let (state, _) = kind.names();
            let records = many(evicted, "record");
            format!("{state} is full: {records} went before their time, and it holds {held}.")
        }
        Concern::Refused { syns } => {
            let syns = many(syns, "SYN");
            format!("TIME-WAIT refused {syns}: peers reuse the ports of recent connections.")
        }
        Concern::Unheard { segments } => format!(
            "FIN-WAIT-2 dropped {}: the limit of connections is reached, or too many of its \
             records receive segments at once.",
            many(segments, "segment")
        ),
        Concern::PortsScarce { passed, opens } => format!(
            "Ports run out: opening {} passed over {passed} in TIME-WAIT. {MORE_PORTS}",
            many(opens, "connection")
        ),
        Concern::NoPort { opens } => format!(
            "No port to the destination is free. Not opened: {}. {MORE_PORTS}",
            many(opens, "connection")
        ),
        Concern::MemoryShort { resets, slow, closed, refused } => {
            let causes = [
                (resets, "reset whose peers took no data"),
                (slow, "reset whose peers took too little"),
                (closed, "closed that waited for a request"),
                (refused, "refused"),
            ];
            let told = causes.iter().filter(|(connections, _)| *connections > 0);
            let told: Vec<String> = told
                .map(|(count, what)| format!("{} {what}", many(*count, "connection")))
                .collect();
            format!("Memory was short (--memory): {}.", told.join(", "))
        }
    }
}

fn machine_concern(concern: Concern) -> Value {
    match concern {
        Concern::Filling { kind, held, limit } => {
            let event = format!("{}_filling", kind.names().1);
            json!({ "event": event, "held": held, "limit": limit })
        }
        Concern::Full { kind, evicted, held } => {
            let event = format!("{}_full", kind.names().1);
            json!({ "event": event, "evicted": evicted, "held": held })
        }
        Concern::Refused { syns } => json!({ "event": "time_wait_refused", "syns": syns }),
        Concern::Unheard { segments } => {
            json!({ "event": "fin_wait_2_unheard", "segments": segments })
        }
        Concern::PortsScarce { passed, opens } => {
            json!({ "event": "ports_in_time_wait", "ports": passed, "opens": opens })
        }
        Concern::NoPort { opens } => json!({ "event": "ports_exhausted", "opens": opens }),
        Concern::MemoryShort { resets, slow, closed, refused } => json!({
            "event": "memory_short",
            "resets": resets,
            "slow": slow,
            "closed": closed,
            "refused": refused,
        }),
    }
}

/// A JSON object for programs, on one line; times in seconds since 1970 and in microseconds.
fn machine(time: SystemTime, record: &Record) -> String {
    let object = match record {
        Record::Asking { addresses, longest } => json!({
            "event": "asking",
            "addresses": addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "longest_s": longest.as_secs_f64(),
        }),
        Record::Conflict(Conflict { address, claimant, kept }) => json!({
            "event": "address_conflict",
            "address": address.to_string(),
            "claimant": mac(*claimant),
            "kept": kept,
        }),
        Record::Serving { directory, urls, stack, admin } => json!({
            "event": "serving",
            "directory": directory,
            "urls": urls,
            "stack": stack,
            "admin": admin.as_ref().map(AdminAddress::to_string),
        }),
        Record::Certificates { sha256 } => json!({ "event": "certificates", "sha256": sha256 }),
        Record::Reloaded { path, keys } => {
            json!({ "event": "reloaded", "path": path, "keys": keys })
        }
        Record::Sandbox { parts, lacking } => {
            json!({ "event": "sandbox", "restricted": parts, "lacking": lacking })
        }
        Record::TakenOver { pid, shard, connections, records } => json!({
            "event": "taken_over",
            "pid": pid,
            "shard": shard,
            "connections": connections,
            "records": records,
        }),
        Record::HandedOver { pid } => json!({ "event": "handed_over", "pid": pid }),
        Record::Drained { pid, left } => json!({ "event": "drained", "pid": pid, "left": left }),
        Record::Access(access) => access::object(access),
        Record::Failed { peer, error } => {
            json!({ "event": "failed", "peer": peer.to_string(), "error": error })
        }
        Record::Trouble { text } => json!({ "event": "trouble", "text": text }),
        Record::Event { level, what, fields } => {
            let mut object = Value::Object(fields.clone());
            (object["event"], object["level"]) = ("event".into(), (*level).into());
            object["what"] = what.as_str().into();
            object
        }
        Record::Closed(concern) => machine_concern(*concern),
        Record::Counts(counts) => counts.object(),
        Record::Frame { shard: None, line } => json!({ "event": "frame", "line": line }),
        Record::Frame { shard, line } => {
            json!({ "event": "frame", "shard": shard, "line": line })
        }
        Record::Stopping { connections } => {
            json!({ "event": "stopping", "connections": connections })
        }
        Record::Stopped { unfinished } => json!({ "event": "stopped", "unfinished": unfinished }),
        Record::Dropped { lines } => json!({ "event": "dropped", "lines": lines }),
    };
    stamped(time, object)
}

/// An object with its time, on one line.
fn stamped(time: SystemTime, mut object: Value) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    object["time_s"] = json!(since.as_secs_f64());
    object.to_string()
}

/// An output that two threads can read, and one can block.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Page {
    /// The written text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[cfg(test)]
impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
