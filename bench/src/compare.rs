//! Compares all stacks in one table, for `compare`.
//!
//! Each measurement runs in a process of its own, so that none inherits another's heap. The stacks
//! of a row are measured one directly after the other.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::stacks::Which;

/// The time limit of a measurement with its preparation; beyond it the table has no value.
const PATIENCE: Duration = Duration::from_secs(180);

/// A line of the table: a bench with its arguments, and the value of its result that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The measured quantity, in words.
    pub words: &'static str,
    arguments: Arguments,
    /// The key of the value in the result.
    pub key: &'static str,
    kind: Kind,
    /// The divisor of the value for printing.
    unit: f64,
    /// The names of the stacks that cannot run this.
    left_out: &'static [&'static str],
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// More is better.
    Rate,
    /// Counted by callgrind: less is better.
    Instructions,
    /// Less is better.
    Bytes,
}

type Arguments = &'static [&'static str];

const fn rate(words: &'static str, arguments: Arguments, key: &'static str, unit: f64) -> Row {
    Row { words, arguments, key, kind: Kind::Rate, unit, left_out: &[] }
}

const fn count(words: &'static str, arguments: Arguments, key: &'static str) -> Row {
    Row { words, arguments, key, kind: Kind::Instructions, unit: 1.0, left_out: &[] }
}

const fn bytes(words: &'static str, arguments: Arguments) -> Row {
    let key = "bytes_per_connection";
    Row { words, arguments, key, kind: Kind::Bytes, unit: 1.0, left_out: &[] }
}

const CONNECTIONS: &str = "connections_per_s";
const REQUESTS: &str = "requests_per_s";
const GBIT: &str = "gbit_per_s";

const DATAGRAMS: &str = "datagrams_per_s";
/// Those whose datagrams are not measured.
const NO_DATAGRAMS: &[&str] = &["lightwait-sockets", "lwip", "linux"];

/// These reach a million in minutes or hours, if at all.
const NOT_SO_MANY: &[&str] = &["smoltcp", "lwip", "linux"];

/// Rates.
pub const RATES: &[Row] = &[
    rate(
        "1000 connections/s, one at a time",
        &["connections", "--at-once=1", "--seconds=2"],
        CONNECTIONS,
        1e3,
    ),
    rate("… 16 at a time", &["connections", "--at-once=16", "--seconds=2"], CONNECTIONS, 1e3),
    rate(
        "… 1,000 in TIME-WAIT",
        &["connections", "--at-once=16", "--seconds=2", "--time-wait=1000"],
        CONNECTIONS,
        1e3,
    ),
    rate(
        "… 10,000",
        &["connections", "--at-once=16", "--seconds=2", "--time-wait=10000"],
        CONNECTIONS,
        1e3,
    ),
    rate(
        "… 100,000",
        &["connections", "--at-once=16", "--seconds=2", "--time-wait=100000"],
        CONNECTIONS,
        1e3,
    ),
    Row {
        left_out: NOT_SO_MANY,
        ..rate(
            "… 1,000,000",
            &["connections", "--at-once=16", "--seconds=2", "--time-wait=1000000"],
            CONNECTIONS,
            1e3,
        )
    },
    rate(
        "… 9,000 idle",
        &["connections", "--at-once=16", "--seconds=2", "--idle=9000"],
        CONNECTIONS,
        1e3,
    ),
    Row {
        left_out: NOT_SO_MANY,
        ..rate(
            "… 1,000,000",
            &["connections", "--at-once=16", "--seconds=2", "--idle=1000000"],
            CONNECTIONS,
            1e3,
        )
    },
    rate(
        "1000 requests/s, 1 connection",
        &["pingpong", "--connections=1", "--requests=500000"],
        REQUESTS,
        1e3,
    ),
    rate("… 100", &["pingpong", "--connections=100", "--requests=500000"], REQUESTS, 1e3),
    rate("… 10,000", &["pingpong", "--connections=10000", "--requests=50000"], REQUESTS, 1e3),
    rate("Gbit/s, MTU 1500", &["bulk", "--mtu=1500", "--bytes=2000000000"], GBIT, 1.0),
    Row {
        // Debian's lwIP has segments of 1460 bytes at any MTU.
        left_out: &["lwip"],
        ..rate("… 9000", &["bulk", "--mtu=9000", "--bytes=2000000000"], GBIT, 1.0)
    },
    Row {
        left_out: NO_DATAGRAMS,
        ..rate("1000 datagrams/s, 100 bytes", &["datagrams", "--size=100"], DATAGRAMS, 1e3)
    },
    Row {
        left_out: NO_DATAGRAMS,
        ..rate("… 1,400 bytes", &["datagrams", "--size=1400"], DATAGRAMS, 1e3)
    },
];

/// Memory.
pub const MEMORY: &[Row] = &[
    bytes("bytes a connection, idle", &["memory", "--state=established", "--count=100000"]),
    bytes("… in TIME-WAIT", &["memory", "--state=time-wait", "--count=100000"]),
];

/// Instructions.
pub const COUNTS: &[Row] = &[
    count(
        "instructions a connection",
        &["connections", "--at-once=16", "--count=2000", "--instructions"],
        "instructions_per_connection",
    ),
    count(
        "… a request, 1 connection",
        &["pingpong", "--connections=1", "--requests=2000", "--instructions"],
        "instructions_per_request",
    ),
    count(
        "… 100",
        &["pingpong", "--connections=100", "--requests=2000", "--instructions"],
        "instructions_per_request",
    ),
    count(
        "… a MB, MTU 1500",
        &["bulk", "--mtu=1500", "--bytes=20000000", "--instructions"],
        "instructions_per_megabyte",
    ),
    Row {
        left_out: NO_DATAGRAMS,
        ..count(
            "… a datagram of 100 bytes",
            &["datagrams", "--size=100", "--instructions"],
            "instructions_per_datagram",
        )
    },
];

impl Row {
    /// The value of `stack`; `None` if it cannot be measured.
    pub fn measure(&self, stack: Which) -> Option<f64> {
        let is_uncountable = self.kind == Kind::Instructions && !stack.is_countable();
        if is_uncountable || self.left_out.contains(&stack.name().as_str()) {
            return None;
        }
        let mut child = Command::new(std::env::current_exe().ok()?)
            .args(self.arguments)
            .arg(format!("--stack={}", stack.name()))
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let begin = Instant::now();
        while child.try_wait().ok()?.is_none() {
            if begin.elapsed() > PATIENCE {
                child.kill().ok()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // An object fits the buffer of a pipe.
        let result: Value = serde_json::from_reader(child.stdout.take()?).ok()?;
        result.get(self.key)?.as_f64()
    }

    /// The value in short form.
    pub fn in_words(&self, value: f64) -> String {
        let value = value / self.unit;
        if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
    }

    /// The factor by which ours is better than theirs.
    pub fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        if self.kind == Kind::Rate { ours / theirs } else { theirs / ours }
    }

    /// The stacks' values as a JSON object, ours first.
    pub fn json(&self, values: &[(Which, Option<f64>)]) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("arguments".to_owned(), json!(self.arguments.join(" ")));
        object.insert("key".to_owned(), json!(self.key));
        let ours = values.first().and_then(|(_, value)| *value);
        for (stack, value) in values {
            object.insert(stack.name(), json!(value));
            let ratio = ours.zip(*value).map(|(ours, theirs)| self.ratio(ours, theirs));
            object.insert(format!("ratio_to_{}", stack.name()), json!(ratio));
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_says_how_many_times_better_we_are() {
        let (rate, count, bytes) = (&RATES[0], &COUNTS[0], &MEMORY[0]);
        assert_eq!(rate.ratio(300.0, 100.0), 3.0);
        assert_eq!(count.ratio(300.0, 600.0), 2.0);
        assert_eq!(bytes.ratio(300.0, 600.0), 2.0);
        let values = [(Which::Lightwait, Some(1e6)), (Which::Smoltcp, Some(5e5))];
        let object = rate.json(&values);
        assert_eq!(object.get("ratio_to_smoltcp"), Some(&json!(2.0)));
        assert_eq!(object.get("lightwait"), Some(&json!(1e6)));
        assert_eq!((rate.in_words(1e6), bytes.in_words(45.26)), ("1000".into(), "45.3".into()));
        let unknown = rate.json(&[(Which::Lightwait, None), (Which::Smoltcp, Some(1.0))]);
        assert_eq!(unknown.get("ratio_to_smoltcp"), Some(&Value::Null));
    }
}
