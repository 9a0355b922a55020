//! The outputs of the log: streams, or files that can be opened again after they were moved.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

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
        let lines = Output { writer: BufWriter::new(Box::new(lines)), path: None };
        Outputs { lines, access: None, tables: Box::new(tables), has_complained: false }
    }

    /// Appends the lines, and the lines of requests, to files where a path is given.
    pub(crate) fn with_files(
        mut self,
        lines: Option<&Path>,
        access: Option<&Path>,
    ) -> Result<Outputs, Failure> {
        if let Some(path) = lines {
            self.lines = Output::open(path)?;
        }
        self.access = access.map(Output::open).transpose()?;
        Ok(self)
    }

    /// Writes a line; `is_access` marks the line of a request.
    pub(super) fn line(&mut self, line: &str, is_access: bool) -> io::Result<()> {
        let lines = &mut self.lines;
        let output = if is_access { self.access.as_mut().unwrap_or(lines) } else { lines };
        writeln!(output.writer, "{line}")
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
        let access = self.access.as_mut().map_or(Ok(()), |access| access.writer.flush());
        self.lines.writer.flush().and(access)
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
    writer: BufWriter<Box<dyn Write + Send>>,
    /// Its name, if it is a file.
    path: Option<PathBuf>,
}

impl Output {
    fn open(path: &Path) -> Result<Output, Failure> {
        let file = append(path).map_err(|error| Failure::Output(path.to_owned(), error))?;
        Ok(Output { writer: BufWriter::new(Box::new(file)), path: Some(path.to_owned()) })
    }

    fn reopen(&mut self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = append(path).map_err(|error| {
            format!(
                "{}: cannot be opened again, the old file is written on: {error}",
                path.display()
            )
        })?;
        // The buffered lines belong to the old file; if that is full they are lost.
        let _ = self.writer.flush();
        self.writer = BufWriter::new(Box::new(file));
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}
