//! Log lines, for people or for programs.
//!
//! A thread of its own writes them: a terminal that stands still must not stop a shard. When it
//! falls too far behind, lines are dropped, counted, and the count is logged.

mod outputs;

pub(crate) use outputs::Outputs;

use std::io;
#[cfg(test)]
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use lightwait_http::Access;
use lightwait_http::date::Utc;
use serde_json::{Value, json};

use crate::counts::Counts;

/// Lines that may wait for the writer.
const WAITING_LINES: usize = 8192;

/// Something worth a line.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// The server is ready.
    Serving { directory: String, urls: Vec<String>, stack: String },
    /// A response is over.
    Access(Access),
    /// A connection ended in an error.
    Failed { peer: SocketAddr, error: String },
    /// Something went wrong that does not end the program.
    Trouble { text: String },
    /// Something about closed connections that an operator has to know.
    Closed(Concern),
    /// What a stack has counted: for people a table, apart from the lines.
    Counts(Box<Counts>),
    /// A frame, by `--trace`.
    Frame { line: String },
    /// A stop was asked for; so many connections have to finish.
    Stopping { connections: usize },
    /// All is over.
    Stopped { unfinished: usize },
    /// Lines that found no room.
    Dropped { lines: u64 },
}

/// What may be wrong with what closed connections leave behind. Numbers are of the time since the
/// last such line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// So many records are held of those that may be: there will soon be no room.
    Filling { kind: Kind, held: usize, limit: usize },
    /// There was no room: so many records went before their time.
    Full { kind: Kind, evicted: u64, held: usize },
    /// So many segments for records of FIN-WAIT-2 were not heard: too many of these are spoken to
    /// at once, or there are as many connections as may be.
    Unheard { segments: u64 },
    /// So many SYNs met a TIME-WAIT record that did not let them through.
    Refused { syns: u64 },
    /// So many ports were passed over because they are in TIME-WAIT, while so many connections were
    /// opened: soon there will be none.
    PortsScarce { passed: u64, opens: u64 },
    /// So many connections could not be opened for want of a port.
    NoPort { opens: u64 },
}

/// Whose records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Connections that are over.
    TimeWait,
    /// Those that nobody uses any more, and whose peer has not closed.
    FinWait2,
}

impl Kind {
    /// For people, and for programs.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::TimeWait => ("TIME-WAIT", "time_wait"),
            Kind::FinWait2 => ("FIN-WAIT-2", "fin_wait_2"),
        }
    }
}

/// Where records go. Clones share one writer.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    sender: SyncSender<(SystemTime, Message)>,
    shared: Arc<Shared>,
}

/// What the writer is told beside records.
#[derive(Debug, Default)]
struct Shared {
    dropped: AtomicU64,
    /// Files are to be opened again.
    reopen: AtomicBool,
}

/// What the writer hears.
#[derive(Debug)]
enum Message {
    Record(Record),
    /// Look whether something is to be done.
    Nudge,
}

/// The thread that writes; ends when every [`Log`] is dropped.
#[derive(Debug)]
pub(crate) struct Writer(JoinHandle<()>);

impl Log {
    /// Starts a writer.
    pub(crate) fn start(json: bool, outputs: Outputs) -> io::Result<(Log, Writer)> {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        let builder = std::thread::Builder::new().name("log".to_owned());
        let thread = builder.spawn(move || write_all(&receiver, &ours, json, outputs))?;
        Ok((Log { sender, shared }, Writer(thread)))
    }

    /// Logs a record of this moment, or counts it if the writer is too far behind.
    pub(crate) fn write(&self, record: Record) {
        if self.sender.try_send((SystemTime::now(), Message::Record(record))).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the log's files again: somebody has moved them.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
        // A writer that has so much to do will look anyway.
        let _ = self.sender.try_send((SystemTime::now(), Message::Nudge));
    }
}

impl Writer {
    /// Waits until everything is written. Every [`Log`] must be gone.
    pub(crate) fn finish(self) {
        // It panics only if formatting does; then that has been said already.
        let _ = self.0.join();
    }
}

fn write_all(
    receiver: &Receiver<(SystemTime, Message)>,
    shared: &Shared,
    json: bool,
    mut outputs: Outputs,
) {
    let write = |outputs: &mut Outputs, time, record: &Record| {
        let is_access = matches!(record, Record::Access(_));
        // Who closed our output does not want to read any more; serving goes on.
        let _ = match record {
            _ if json => outputs.line(&machine(time, record), is_access),
            Record::Counts(counts) => outputs.table(&counts.table()),
            _ => outputs.line(&human(time, record), is_access),
        };
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
        let _ = outputs.flush();
    }
}

/// A line for people: a date with its zone, and what happened.
fn human(time: SystemTime, record: &Record) -> String {
    match record {
        // It has the shard's time.
        Record::Frame { line } => line.clone(),
        _ => format!("{} {}", Utc::of(time), words(record)),
    }
}

fn words(record: &Record) -> String {
    match record {
        Record::Serving { directory, urls, stack } => {
            let urls = urls.join(" and ");
            format!("Serving {directory} at {urls} ({stack}). Ctrl-C stops.")
        }
        Record::Access(access) => {
            format!(
                "{} {} {} {} {} B {:.3} ms{}",
                access.peer.ip(),
                access.method,
                access.target,
                access.status.as_u16(),
                access.body_bytes,
                access.duration.as_secs_f64() * 1e3,
                if access.complete { "" } else { " (cut short)" },
            )
        }
        Record::Failed { peer, error } => format!("{peer}: {error}"),
        Record::Trouble { text } => text.clone(),
        Record::Closed(concern) => human_concern(*concern),
        Record::Counts(counts) => counts.table(),
        Record::Frame { line } => line.clone(),
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

/// A number and its noun.
fn many(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What to do.
const MORE_PORTS: &str = "More source addresses have more ports: see README, \"Ports\".";

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
            format!("TIME-WAIT refused {syns}: peers come back with ports used just before.")
        }
        Concern::Unheard { segments } => format!(
            "FIN-WAIT-2 did not hear {}: there are as many connections as may be, or too many of \
             these are spoken to at once.",
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
    }
}

/// A JSON object for programs, on one line; times in seconds since 1970 and in microseconds.
fn machine(time: SystemTime, record: &Record) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut object = match record {
        Record::Serving { directory, urls, stack } => {
            json!({ "event": "serving", "directory": directory, "urls": urls, "stack": stack })
        }
        Record::Access(access) => json!({
            "event": "access",
            "peer": access.peer.to_string(),
            "method": access.method.as_str(),
            "target": access.target,
            "status": access.status.as_u16(),
            "body_bytes": access.body_bytes,
            "complete": access.complete,
            "duration_us": u64::try_from(access.duration.as_micros()).unwrap_or(u64::MAX),
        }),
        Record::Failed { peer, error } => {
            json!({ "event": "failed", "peer": peer.to_string(), "error": error })
        }
        Record::Trouble { text } => json!({ "event": "trouble", "text": text }),
        Record::Closed(concern) => machine_concern(*concern),
        Record::Counts(counts) => counts.object(),
        Record::Frame { line } => json!({ "event": "frame", "line": line }),
        Record::Stopping { connections } => {
            json!({ "event": "stopping", "connections": connections })
        }
        Record::Stopped { unfinished } => json!({ "event": "stopped", "unfinished": unfinished }),
        Record::Dropped { lines } => json!({ "event": "dropped", "lines": lines }),
    };
    object["time_s"] = json!(since.as_secs_f64());
    object.to_string()
}

/// Output that two threads can look at, and one can stop.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Page {
    /// What was written.
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
mod tests {
    use super::*;
    use std::time::Duration;

    fn access(complete: bool) -> Record {
        let request = "GET".parse().unwrap();
        Record::Access(Access {
            peer: "192.0.2.1:5".parse().unwrap(),
            method: request,
            target: "/a?\"b".to_owned(),
            status: Default::default(),
            body_bytes: 12,
            complete,
            duration: Duration::from_micros(1500),
        })
    }

    #[test]
    fn people_read_one_short_line() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(3_661);
        let line = "1970-01-01T01:01:01Z 192.0.2.1 GET /a?\"b 200 12 B 1.500 ms";
        assert_eq!(human(time, &access(true)), line);
        assert!(human(time, &access(false)).ends_with("ms (cut short)"));
    }

    #[test]
    fn programs_read_one_object() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(2);
        let line = machine(time, &access(true));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!((&value["target"], &value["status"]), (&json!("/a?\"b"), &json!(200)));
        assert_eq!((&value["duration_us"], &value["time_s"]), (&json!(1500), &json!(2.0)));
        assert_eq!(value["peer"], json!("192.0.2.1:5"));
    }

    #[test]
    fn what_is_wrong_with_closed_connections_is_told_to_both() {
        let time = SystemTime::UNIX_EPOCH;
        let filling = |kind| Concern::Filling { kind, held: 8, limit: 10 };
        let full = |kind| Concern::Full { kind, evicted: 8, held: 10 };
        let concerns = [
            (filling(Kind::TimeWait), "time_wait_filling"),
            (filling(Kind::FinWait2), "fin_wait_2_filling"),
            (full(Kind::TimeWait), "time_wait_full"),
            (full(Kind::FinWait2), "fin_wait_2_full"),
            (Concern::Unheard { segments: 8 }, "fin_wait_2_unheard"),
            (Concern::Refused { syns: 8 }, "time_wait_refused"),
            (Concern::PortsScarce { passed: 8, opens: 10 }, "ports_in_time_wait"),
            (Concern::NoPort { opens: 8 }, "ports_exhausted"),
        ];
        for (concern, event) in concerns {
            let record = Record::Closed(concern);
            let line = human(time, &record);
            assert!(line.contains(" 8 "), "{line}");
            let value: Value = serde_json::from_str(&machine(time, &record)).unwrap();
            assert_eq!(value["event"], json!(event));
            assert!(value.as_object().unwrap().values().any(|number| *number == json!(8)));
        }
    }

    #[test]
    fn one_is_one_and_two_are_many() {
        let line = |record| human(SystemTime::UNIX_EPOCH, &record);
        for (connections, words) in [(1, " 1 connection may"), (2, " 2 connections may")] {
            assert!(line(Record::Stopping { connections }).contains(words));
        }
        let cut = line(Record::Stopped { unfinished: 1 });
        assert_eq!(cut, "1970-01-01T00:00:00Z Stopped; cut short: 1 connection.");
    }

    #[test]
    fn files_that_were_moved_are_opened_again_and_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        let outputs = Outputs::new(io::sink(), io::sink());
        let outputs = outputs.with_files(Some(&at("log")), Some(&at("access"))).unwrap();
        let (log, writer) = Log::start(false, outputs).unwrap();
        let both = |text: &str| {
            log.write(Record::Trouble { text: text.to_owned() });
            log.write(access(true));
        };
        let read = |name| std::fs::read_to_string(at(name)).unwrap_or_default();
        both("before");
        while !(read("log").contains("before") && read("access").contains("GET")) {
            std::thread::yield_now();
        }
        for name in ["log", "access"] {
            std::fs::rename(at(name), at(name).with_extension("1")).unwrap();
        }
        log.reopen();
        both("after");
        drop(log);
        writer.finish();
        for (name, words) in
            [("log.1", "before"), ("log", "after"), ("access.1", "GET"), ("access", "GET")]
        {
            let text = read(name);
            assert!(text.contains(words) && text.lines().count() == 1, "{name}: {text}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_written_on() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("sub/log"), directory.path().join("moved"));
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let outputs = Outputs::new(io::sink(), io::sink()).with_files(Some(&path), None).unwrap();
        let (log, writer) = Log::start(false, outputs).unwrap();
        std::fs::rename(path.parent().unwrap(), &moved).unwrap();
        log.reopen();
        log.write(Record::Trouble { text: "after".to_owned() });
        drop(log);
        writer.finish();
        let text = std::fs::read_to_string(moved.join("log")).unwrap();
        assert!(text.contains("cannot be opened again") && text.contains("after"), "{text}");
    }

    #[test]
    fn everything_is_written_before_the_end() {
        let page = Page::default();
        let (log, writer) = Log::start(false, Outputs::new(page.clone(), io::sink())).unwrap();
        for _ in 0..100 {
            log.write(access(true));
        }
        drop(log);
        writer.finish();
        assert_eq!(page.text().lines().count(), 100);
    }

    #[test]
    fn a_writer_that_stands_still_stops_nobody_and_the_loss_is_told() {
        let page = Page::default();
        let (log, writer) = Log::start(true, Outputs::new(page.clone(), io::sink())).unwrap();
        let held = page.0.lock().unwrap();
        for _ in 0..3 * WAITING_LINES {
            log.write(access(true));
        }
        drop(held);
        drop(log);
        writer.finish();
        let text = page.text();
        assert!(text.contains("\"event\":\"dropped\""));
        assert!(text.lines().count() < 3 * WAITING_LINES);
    }
}
