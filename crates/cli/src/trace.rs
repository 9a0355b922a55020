//! `lightwait trace`: draws a connection's event log, or tells it as text.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lightwait_trace::graph::{self, Side};
use lightwait_trace::{Trace, pcapng, qlog, timeline};

use crate::failure::{self, Failure};

/// Draw a connection's event log as a time-sequence graph, or print it as a timeline.
///
/// FILE is the log that a server's admin door gives at /events, in qlog's form, or the capture that
/// it gives at /capture. The graph is an SVG picture on standard output: time to the right,
/// sequence numbers upwards, as tcptrace draws it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
  curl -so log.sqlog 'http://127.0.0.1:9100/events?filter=dst+10.0.0.2&seconds=10'
  lightwait trace log.sqlog --list
  lightwait trace log.sqlog --connection 10.0.0.2:40112 --output graph.svg
  lightwait trace log.sqlog --text | grep -e again: -e loss_detected")]
pub(crate) struct TraceArgs {
    /// A log of events (qlog, JSON-SEQ or contained JSON) or a capture (pcapng)
    file: PathBuf,

    /// Print a line for each event instead
    #[arg(short, long)]
    text: bool,

    /// Print the connections of the file, with their bytes and segments
    #[arg(short, long, conflicts_with_all = ["text", "output", "direction"])]
    list: bool,

    /// The connection, by a part of its name [default: the one with the most bytes]
    #[arg(short, long, value_name = "NAME")]
    connection: Option<String>,

    /// Whose data is drawn [default: that with more bytes]
    #[arg(short, long, value_enum, value_name = "WHICH", conflicts_with = "text")]
    direction: Option<Direction>,

    /// Write there instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// What we have sent
    Sent,
    /// What we have received
    Received,
}

impl From<Direction> for Side {
    fn from(direction: Direction) -> Side {
        match direction {
            Direction::Sent => Side::Sent,
            Direction::Received => Side::Received,
        }
    }
}

pub(crate) fn trace(args: &TraceArgs) -> Result<ExitCode, Failure> {
    let fault = |why: String| Failure::Input(args.file.clone(), why);
    let bytes = fs::read(&args.file).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let traces = read(&bytes).map_err(fault)?;
    if args.list {
        failure::print(&list(&traces))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (trace, others) = choose(&traces, args.connection.as_deref()).map_err(fault)?;
    if others > 0 && args.connection.is_none() {
        let others = if others == 1 { "one other" } else { &format!("{others} others") };
        eprintln!("lightwait: {}; there is {others}: see --list", trace.name);
    }
    let text = if args.text {
        timeline(trace)
    } else {
        let side = args.direction.map_or_else(|| Side::busier(trace), Side::from);
        let nothing = || fault(format!("{}: no data went that way; try --text", trace.name));
        graph::svg(trace, side).ok_or_else(nothing)?
    };
    match &args.output {
        Some(path) => write(path, &text).map_err(|error| Failure::Output(path.clone(), error))?,
        None => failure::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(bytes: &[u8]) -> Result<Vec<Trace>, String> {
    if pcapng::is_capture(bytes) {
        pcapng::read(bytes)
    } else {
        qlog::read(bytes).map_err(|error| error.to_string())
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    fs::File::create(path)?.write_all(text.as_bytes())
}

/// A line for each connection.
fn list(traces: &[Trace]) -> String {
    let line = |trace: &Trace| {
        let (sent, received) = trace.bytes();
        let segments = trace.segments().count();
        let again = trace.segments().filter(|(_, it)| it.again.is_some()).count();
        format!(
            "{}  {sent} bytes sent, {received} received, {segments} segments, {again} sent again\n",
            trace.name
        )
    };
    traces.iter().map(line).collect()
}

/// The connection that is meant, and how many others there are.
fn choose<'a>(traces: &'a [Trace], name: Option<&str>) -> Result<(&'a Trace, usize), String> {
    let mut meant: Vec<&Trace> = match name {
        Some(name) => traces.iter().filter(|trace| trace.name.contains(name)).collect(),
        None => traces.iter().collect(),
    };
    let bytes = |trace: &Trace| trace.bytes().0 + trace.bytes().1;
    // The first of those with as many.
    meant.sort_by_key(|trace| std::cmp::Reverse(bytes(trace)));
    match (&meant[..], name) {
        ([], Some(name)) => Err(format!("no connection's name has {name:?}; see --list")),
        ([], None) => Err("it has no connection".to_owned()),
        ([first, _, ..], Some(name)) => Err(format!(
            "{} connections' names have {name:?}, such as {}; give more of it",
            meant.len(),
            first.name
        )),
        ([first, ..], _) => Ok((first, traces.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_mean_one_connection() {
        let of = |name: &str| Trace { name: name.to_owned(), entries: Vec::new() };
        let traces = [of("10.0.0.1:80-10.0.0.2:4000"), of("10.0.0.1:80-10.0.0.2:4001")];
        assert_eq!(choose(&traces, Some(":4001")).unwrap().0, &traces[1]);
        assert_eq!(choose(&traces, None).unwrap(), (&traces[0], 1));
        assert!(choose(&traces, Some(":400")).unwrap_err().starts_with("2 connections' names"));
        assert!(choose(&traces, Some("x")).unwrap_err().contains("no connection's name"));
        assert!(choose(&[], None).unwrap_err().contains("no connection"));
        assert!(read(b"x").unwrap_err().starts_with("neither qlog nor pcapng"));
    }
}
