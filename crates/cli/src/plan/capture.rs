//! `--pcap` and its limits: the destination of a capture and how much it keeps.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lightwait::wrap::pcap::LEAST_LIMIT;

use crate::args::ServeArgs;
use crate::failure::Failure;

/// The destination of a capture, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) target: Target,
    /// Bytes of a frame, at most.
    pub(crate) snaplen: Option<u32>,
}

/// Where a capture goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output; the log then goes to standard error.
    Stdout,
    /// A file or a FIFO.
    File(PathBuf),
    /// A file and its predecessor, within this many bytes together.
    Within(PathBuf, u64),
}

impl Capture {
    /// The capture that the flags ask for; `None` if they ask for none.
    pub(crate) fn new(args: &ServeArgs) -> Result<Option<Capture>, Failure> {
        let Some(path) = &args.pcap else { return Ok(None) };
        let target = if is_stdout(path) {
            if io::stdout().is_terminal() {
                return usage(
                    "--pcap -: a capture is not for a terminal; give a file, or a pipe \
                              such as | tshark -i -",
                );
            }
            if args.pcap_limit.is_some() {
                return usage("--pcap-limit bounds files; standard output takes what it gets");
            }
            Target::Stdout
        } else {
            match args.pcap_limit {
                None => Target::File(path.clone()),
                Some(Bytes(limit)) if limit < LEAST_LIMIT => {
                    let least = LEAST_LIMIT >> 10;
                    return usage(&format!("--pcap-limit {limit}: at least {least}K"));
                }
                Some(_) if fs::metadata(path).is_ok_and(|found| !found.is_file()) => {
                    return usage("--pcap-limit bounds files; --pcap names something else");
                }
                Some(Bytes(limit)) => Target::Within(path.clone(), limit),
            }
        };
        Ok(Some(Capture { target, snaplen: args.snaplen }))
    }

    /// True if the capture goes to standard output.
    pub(crate) fn takes_stdout(&self) -> bool {
        self.target == Target::Stdout
    }

    /// The destination, as a text for people.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.target {
            Target::Stdout => "standard output".into(),
            Target::File(path) | Target::Within(path, _) => path.clone(),
        }
    }
}

fn usage<T>(text: &str) -> Result<T, Failure> {
    Err(Failure::Usage(text.to_owned()))
}

/// True for `-`, and for any other name of the pipe or file that standard output is.
fn is_stdout(path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?;
        let named = fs::metadata(path)?;
        Ok((stdout.dev(), stdout.ino()) == (named.dev(), named.ino()))
    };
    path == Path::new("-") || same().unwrap_or(false)
}

/// A number of bytes: plain, or with K, M or G for 2^10, 2^20, 2^30.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        // "MB" is a million to some: `MiB` is the same as `M` to all.
        let text = text.strip_suffix("iB").unwrap_or(text);
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
            Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
            Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let number: Option<u64> = digits.parse().ok();
        let bytes = number.and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Bytes).ok_or_else(|| "expected a number of bytes, such as 100M".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_have_a_unit() {
        for (text, bytes) in [("0", 0), ("1000", 1000), ("256KiB", 256 << 10), ("3m", 3 << 20)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "1T", "17179869184G"] {
            assert!(text.parse::<Bytes>().unwrap_err().contains("100M"), "{text}");
        }
    }
}
