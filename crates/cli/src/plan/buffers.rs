//! `--send-buffer` and `--pool-policy`: how large send buffers are, and which connection gets the
//! next page.

use std::str::FromStr;

use clap::ValueEnum;
use lightwait_http::CONNECTION_BYTES;

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

/// The most that a buffer holds whose size follows the window: Linux's (tcp_wmem).
const FOLLOWING_MOST: u64 = 4 << 20;
/// The library's own limit, which a small pool does not lower.
const FOLLOWING_LEAST: u64 = 1 << 20;
/// One such buffer is no more than this part of the pool.
const FOLLOWING_PART: u64 = 16;

impl SendBuffer {
    /// True if the rule comes with the buffer's size.
    pub(crate) fn says_size(self) -> bool {
        matches!(self, SendBuffer::Fixed(_))
    }

    /// True if the rule comes with a mark of unsent data.
    pub(crate) fn says_lowat(self) -> bool {
        matches!(self, SendBuffer::Linux { lowat: Some(_) })
    }

    /// The knobs that stand for this choice, where a stack has `pool` bytes for pages.
    pub(crate) fn settings(self, pool: u64) -> Vec<Setting> {
        let rule = |rule: &str| Setting::new("buffers.send_size", rule);
        let most = (pool / FOLLOWING_PART).clamp(FOLLOWING_LEAST, FOLLOWING_MOST);
        let most = Setting::new("buffers.send", &most.to_string());
        match self {
            SendBuffer::Round => vec![rule("round")],
            SendBuffer::Los => vec![rule("los"), most],
            SendBuffer::Fixed(size) => {
                vec![rule("fixed"), Setting::new("buffers.send", &size.to_string())]
            }
            SendBuffer::Linux { lowat } => {
                let lowat = lowat.map_or_else(|| "off".to_owned(), |bytes| bytes.to_string());
                vec![rule("linux"), most, Setting::new("buffers.send_lowat", &lowat)]
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
    /// The knobs that stand for this choice, where a stack has `pool` bytes for pages and serves
    /// that many connections at most.
    pub(crate) fn settings(self, pool: u64, connections: usize) -> Vec<Setting> {
        let word = self.to_possible_value().expect("no policy is hidden");
        let mut settings = vec![Setting::new("pool.policy", word.get_name())];
        if self == PoolPolicy::Naive {
            let most = most_connections(pool, connections).to_string();
            settings.push(Setting::new("pool.most_connections", &most));
        }
        settings
    }
}

/// The connections that share a pool of that many bytes by the policy naive, so that each part is
/// what is left beside their own memory. That takes half of the pool at most: only so many share
/// it.
fn most_connections(pool: u64, connections: usize) -> u64 {
    let own = CONNECTION_BYTES as u64;
    let connections = (connections as u64).min(pool / (2 * own)).max(1);
    pool.div_ceil((pool / connections).saturating_sub(own).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_pool_are_equal_and_leave_room_for_connections() {
        let own = CONNECTION_BYTES as u64;
        for (pool, connections, sharing) in [
            (1 << 20, 10, 10),
            (1 << 30, 1000, 1000),
            // More connections than half of the pool has room for.
            (1 << 20, 65_536, 24),
            (64 << 10, 65_536, 1),
        ] {
            let part = pool / most_connections(pool, connections);
            let held = sharing * (part + own);
            assert!(held <= pool && held > pool / 10 * 8, "{pool} {connections}: {part}");
        }
    }

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
