//! The outputs of the log: streams, or files that can be opened again after they were moved.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::journal::{self, Journal};
use crate::failure::Failure;

/// Where lines of requests go, if not to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessOutput {
    /// A file, to which they are appended.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// journald, at this socket.
    Journal(PathBuf),
}

impl FromStr for AccessOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<AccessOutput, String> {
        Ok(match text {
            "" => return Err("give a file, -, or journald".to_owned()),
            "-" | "stdout" => AccessOutput::Stdout,
            "journald" => AccessOutput::Journal(journal::SOCKET.into()),
            _ => match text.strip_prefix("journald:") {
                Some("") => return Err("give a socket's path behind `journald:`".to_owned()),
                Some(path) => AccessOutput::Journal(path.into()),
                None => AccessOutput::File(text.into()),
            },
        })
    }
}

/// The outputs of the log.
pub(crate) struct Outputs {
    lines: Output,
    /// The file for lines of requests, if they have one of their own.
    access: Option<Output>,
    /// Tables for people.
    tables: Box<dyn Write + Send>,
    has_complained: bool,
}

impl Outputs {
    /// Lines to `lines`, tables to `tables`.
    pub(crate) fn new(
        lines: impl Write + Send + 'static,
        tables: impl Write + Send + 'static,
    ) -> Outputs {
        let lines = Output::of(Box::new(lines), None);
        Outputs { lines, access: None, tables: Box::new(tables), has_complained: false }
    }

    /// Appends the lines, and the lines of requests, to files where a path is given.
    pub(crate) fn with_files(
        mut self,
        lines: Option<&Path>,
        access: Option<&AccessOutput>,
    ) -> Result<Outputs, Failure> {
        if let Some(path) = lines {
            self.lines = Output::open(path)?;
        }
        self.access = match access {
            None => None,
            Some(AccessOutput::File(path)) => Some(Output::open(path)?),
            Some(AccessOutput::Stdout) => Some(Output::of(Box::new(io::stdout()), None)),
            Some(AccessOutput::Journal(path)) => {
                let journal = Journal::open(path);
                let journal = journal.map_err(|error| Failure::Output(path.clone(), error))?;
                Some(Output { sink: Sink::Journal(journal), path: None, waiting: 0, lost: 0 })
            }
        };
        Ok(self)
    }

    /// Writes a line; `is_access` marks the line of a request.
    pub(super) fn line(&mut self, line: &str, is_access: bool) -> io::Result<()> {
        let lines = &mut self.lines;
        let output = if is_access { self.access.as_mut().unwrap_or(lines) } else { lines };
        output.line(line)
    }

    /// Lines that could not be written since this was last asked.
    pub(super) fn take_lost(&mut self) -> u64 {
        let outputs = [Some(&mut self.lines), self.access.as_mut()];
        outputs.into_iter().flatten().map(|output| std::mem::take(&mut output.lost)).sum()
    }

    /// Writes a table after the lines before it. Lines may be lost, but not the table.
    pub(super) fn table(&mut self, table: &str) -> io::Result<()> {
        let flushed = self.flush();
        self.tables.write_all(table.as_bytes())?;
        flushed
    }

    /// Reports among the tables, once, that a file of the log cannot be written.
    pub(super) fn complain(&mut self, error: &io::Error) {
        if self.has_complained || self.lines.path.is_none() && self.access.is_none() {
            return;
        }
        self.has_complained = true;
        let _ = writeln!(self.tables, "lightwait: the log cannot be written: {error}");
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        let access = self.access.as_mut().map_or(Ok(()), Output::flush);
        self.lines.flush().and(access)
    }

    /// Opens the files again, by their names. A file that cannot be opened stays as it is. Returns
    /// the errors.
    pub(super) fn reopen(&mut self) -> Vec<String> {
        let outputs = [Some(&mut self.lines), self.access.as_mut()];
        outputs.into_iter().flatten().filter_map(|output| output.reopen().err()).collect()
    }
}

/// One output.
struct Output {
    sink: Sink,
    /// Its name, if it is a file.
    path: Option<PathBuf>,
    /// Lines that are gathered, and not written.
    waiting: u64,
    /// Lines that could not be written.
    lost: u64,
}

enum Sink {
    Stream(BufWriter<Box<dyn Write + Send>>),
    Journal(Journal),
}

impl Output {
    fn of(writer: Box<dyn Write + Send>, path: Option<PathBuf>) -> Output {
        Output { sink: Sink::Stream(BufWriter::new(writer)), path, waiting: 0, lost: 0 }
    }

    fn open(path: &Path) -> Result<Output, Failure> {
        let file = append(path).map_err(|error| Failure::Output(path.to_owned(), error))?;
        Ok(Output::of(Box::new(file), Some(path.to_owned())))
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.waiting += 1;
        let written = match &mut self.sink {
            Sink::Stream(writer) => {
                writer.write_all(line.as_bytes()).and_then(|()| writer.write_all(b"\n"))
            }
            Sink::Journal(journal) => journal.send(line).inspect(|()| self.waiting -= 1),
        };
        written.inspect_err(|_| self.lose())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.sink {
            Sink::Stream(writer) => writer.flush(),
            Sink::Journal(_) => Ok(()),
        };
        match flushed {
            Ok(()) => self.waiting = 0,
            Err(_) => self.lose(),
        }
        flushed
    }

    /// What is gathered counts as lost. It is dropped: the same lines would fail again.
    fn lose(&mut self) {
        self.lost += std::mem::take(&mut self.waiting);
        if let Sink::Stream(writer) = &mut self.sink {
            let inner: Box<dyn Write + Send> = Box::new(io::sink());
            let (inner, _gathered) = std::mem::replace(writer, BufWriter::new(inner)).into_parts();
            *writer = BufWriter::new(inner);
        }
    }

    fn reopen(&mut self) -> Result<(), String> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let file = append(&path).map_err(|error| {
            format!(
                "{}: cannot be opened again, the old file is written on: {error}",
                path.display()
            )
        })?;
        // The buffered lines belong to the old file; if that is full they are lost.
        let _ = self.flush();
        self.sink = Sink::Stream(BufWriter::new(Box::new(file)));
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}
