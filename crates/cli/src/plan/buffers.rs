//! `--send-buffer` and `--pool-policy`: how large send buffers are, and which connection gets the
//! next page.

use std::str::FromStr;

use clap::ValueEnum;

use super::{Bytes, Setting};

/// How large the send buffer of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendBuffer {
    Round,
    Los,
    Fixed(u32),
    Linux { lowat: Option<u32> },
}

/// The forms that `--send-buffer` accepts.
const FORMS: &str = "give round, los, fixed:BYTES, linux or linux:lowat=BYTES";

impl FromStr for SendBuffer {
    type Err = String;

    fn from_str(text: &str) -> Result<SendBuffer, String> {
        let (rule, rest) = match text.split_once(':') {
            Some((rule, rest)) => (rule, Some(rest)),
            None => (text, None),
        };
        match (rule, rest) {
            ("round", None) => Ok(SendBuffer::Round),
            ("los", None) => Ok(SendBuffer::Los),
            ("fixed", Some(size)) => Ok(SendBuffer::Fixed(bytes(size)?)),
            ("linux", None) => Ok(SendBuffer::Linux { lowat: None }),
            ("linux", Some(rest)) => {
                let lowat = rest.strip_prefix("lowat=").ok_or(FORMS)?;
                Ok(SendBuffer::Linux { lowat: Some(bytes(lowat)?) })
            }
            _ => Err(FORMS.to_owned()),
        }
    }
}

/// The size of a buffer: at least one byte.
fn bytes(text: &str) -> Result<u32, String> {
    let Bytes(bytes) = text.parse::<Bytes>()?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "give 1 byte at least, and less than 4G".to_owned())
}

impl SendBuffer {
    /// The knobs that stand for this choice.
    pub(crate) fn settings(self) -> Vec<Setting> {
        let rule = |rule: &str| Setting::new("buffers.send_size", rule);
        match self {
            SendBuffer::Round => vec![rule("round")],
            SendBuffer::Los => vec![rule("los")],
            SendBuffer::Fixed(size) => {
                vec![rule("fixed"), Setting::new("buffers.send", &size.to_string())]
            }
            SendBuffer::Linux { lowat } => {
                let lowat = lowat.map_or_else(|| "off".to_owned(), |bytes| bytes.to_string());
                vec![rule("linux"), Setting::new("buffers.send_lowat", &lowat)]
            }
        }
    }
}

/// Which connection gets the next page of memory where it is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolPolicy {
    /// The one that has waited longest, and as much as two windows carry
    Line,
    /// The one that has waited longest; all may hold the same
    Naive,
    /// The one that has waited longest, a page at a time
    RoundRobin,
    /// The one that holds the least part of what it needs, a page at a time
    Priority,
    /// The one that has waited longest; each may hold its fair share, found by scans
    Psc,
}

impl PoolPolicy {
    /// The knob that stands for this choice.
    pub(crate) fn setting(self) -> Setting {
        let word = self.to_possible_value().expect("no policy is hidden");
        Setting::new("pool.policy", word.get_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_with_its_size() {
        for (text, rule) in [
            ("round", SendBuffer::Round),
            ("los", SendBuffer::Los),
            ("fixed:32K", SendBuffer::Fixed(32 << 10)),
            ("fixed:1", SendBuffer::Fixed(1)),
            ("linux", SendBuffer::Linux { lowat: None }),
            ("linux:lowat=16K", SendBuffer::Linux { lowat: Some(16 << 10) }),
        ] {
            assert_eq!(text.parse(), Ok(rule), "{text}");
        }
        for text in ["", "fixed", "los:1", "linux:16K", "fixed:0", "fixed:4G", "linux:lowat=0"] {
            assert!(text.parse::<SendBuffer>().unwrap_err().starts_with("give "), "{text}");
        }
    }
}
