//! A link's configuration as a text, for command lines.
//!
//! ```text
//! loss=1%,reorder=5%:2ms,duplicate=1%,delay=30ms,jitter=1ms,rate=100Mbit,queue=256KiB,seed=7
//! ```
//!
//! | key | value |
//! |---|---|
//! | `rate` | bits per second: `9600bit`, `512kbit`, `100Mbit`, `2.5Gbit` |
//! | `bucket` | a rate and a burst: `20Mbit:64KiB` |
//! | `delay` | `200us`, `30ms`, `1.5s`, `0ns` |
//! | `jitter` | `1ms` (uniform), or with its distribution `1ms:normal`, `1ms:pareto` |
//! | `queue` | bytes or packets: `64000B`, `256KiB`, `4MiB`, `100packets` |
//! | `codel` | target and interval: `5ms:100ms`, or `5ms:100ms:ecn`, which marks |
//! | `fq` | queues of flows, with the bytes of a turn: `1024`, `1024:1514` |
//! | `mark` | from so long a queue on: `30packets`, `64KiB`, `1ms` |
//! | `loss` | `1%`, `bursty:FIRST:AFTER`, `gilbert:GOOD_TO_BAD:BAD_TO_GOOD[:IN_BAD[:IN_GOOD]]` |
//! | `reorder` | `5%`, or with the extra delay `5%:2ms`, or the distance `5%:3packets` |
//! | `duplicate`, `corrupt` | `0.1%` |
//! | `mtu` | bytes of the longest IP packet that passes: `1280` |
//! | `seed` | a whole number |

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::{
    Bucket, CodelConfig, Distribution, FairConfig, LinkConfig, Loss, MarkFrom, QueueLimit, Rate,
};

/// The error of a text that describes no link: the wrong part, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLinkError {
    part: String,
    expected: &'static str,
}

impl fmt::Display for ParseLinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.part, self.expected)
    }
}

impl core::error::Error for ParseLinkError {}

const PROBABILITY: &str = "expected a percentage from 0% to 100%, such as 1% or 0.1%";
const DURATION: &str = "expected a duration with its unit (ns, us, ms, s), such as 30ms";
const JITTER: &str = "expected a duration with its unit, such as 1ms, or with its distribution \
                      (uniform, normal, pareto), such as 1ms:normal";
const CODEL: &str = "expected target and interval, such as 5ms:100ms, or 5ms:100ms:ecn";
const BUCKET: &str = "expected a rate and a burst, such as 20Mbit:64KiB";
const FAIR: &str = "expected queues from 1 to 65536, such as 1024, or with the bytes of a turn, \
                    such as 1024:1514";
const MARK: &str = "expected the length of a queue in packets, bytes or time, such as 30packets, \
                    64KiB or 1ms";
const REORDER: &str = "expected a percentage, such as 5%, or with the extra delay or the distance, \
                       such as 5%:2ms or 5%:3packets";
const RATE: &str = "expected bits per second with their unit (bit, kbit, Mbit, Gbit) and above \
                    zero, such as 100Mbit";
const QUEUE: &str = "expected bytes or packets with their unit (B, KB, KiB, MB, MiB, packets) and \
                     above zero, such as 256KiB";
const LOSS: &str = "expected 1%, or bursty:1%:30% (first loss, loss after a loss), or \
                    gilbert:1%:25%:100%:0% (good to bad, bad to good, loss in bad, loss in good)";
const MTU: &str = "expected bytes, 68 or more, such as 1280";
const SEED: &str = "expected a whole number, such as 7";
const KEY: &str = "expected key=value with a key among rate, bucket, delay, jitter, queue, codel, \
                   fq, mark, loss, reorder, duplicate, corrupt, mtu, seed (and trace, \
                   for `lightwait wan`)";

impl FromStr for LinkConfig {
    type Err = ParseLinkError;

    /// Reads the text above. A knob that is missing keeps its default; the empty text is the
    /// perfect link.
    fn from_str(text: &str) -> Result<LinkConfig, ParseLinkError> {
        let mut config = LinkConfig::default();
        let mut parts = text.split(',').map(str::trim);
        let mut seen = alloc::vec::Vec::new();
        if text.trim().is_empty() {
            return Ok(config);
        }
        parts.try_for_each(|part| {
            let error = |expected| ParseLinkError { part: part.to_owned(), expected };
            let (key, value) = part.split_once('=').ok_or_else(|| error(KEY))?;
            if seen.contains(&key) {
                return Err(error("given twice"));
            }
            seen.push(key);
            apply(&mut config, key, value).map_err(error)
        })?;
        Ok(config)
    }
}

/// Sets one key, or returns what was expected.
fn apply(config: &mut LinkConfig, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        "rate" => config.rate = Rate::BitsPerSecond(rate(value).ok_or(RATE)?),
        "bucket" => config.bucket = Some(bucket(value).ok_or(BUCKET)?),
        "fq" => config.fair = Some(fair(value).ok_or(FAIR)?),
        "mark" => config.mark = Some(mark(value).ok_or(MARK)?),
        "delay" => config.delay = duration(value).ok_or(DURATION)?,
        "jitter" => {
            (config.jitter, config.jitter_distribution) = jitter(value).ok_or(JITTER)?;
        }
        "queue" => config.queue = queue(value).ok_or(QUEUE)?,
        "codel" => config.codel = Some(codel(value).ok_or(CODEL)?),
        "loss" => config.loss = loss(value).ok_or(LOSS)?,
        "reorder" => {
            let (share, late) = value.split_once(':').map_or((value, None), |(p, d)| (p, Some(d)));
            config.reorder = probability(share).ok_or(REORDER)?;
            match late.map(|late| (queue(late), late)) {
                None => {}
                Some((Some(QueueLimit::Packets(distance)), _)) => {
                    config.reorder_distance = Some(u32::try_from(distance).map_err(|_| REORDER)?);
                }
                Some((_, late)) => config.reorder_delay = duration(late).ok_or(REORDER)?,
            }
        }
        "duplicate" => config.duplicate = probability(value).ok_or(PROBABILITY)?,
        "corrupt" => config.corrupt = probability(value).ok_or(PROBABILITY)?,
        "mtu" => config.mtu = Some(value.parse().ok().filter(|mtu| *mtu >= 68).ok_or(MTU)?),
        "seed" => config.seed = value.parse().map_err(|_| SEED)?,
        _ => return Err(KEY),
    }
    Ok(())
}

fn loss(value: &str) -> Option<Loss> {
    let mut parts = value.split(':');
    let kind = parts.next()?;
    let mut next = || parts.next().map(probability);
    let loss = match kind {
        "bursty" => Loss::Bursty { first: next()??, after_loss: next()?? },
        "gilbert" => Loss::GilbertElliott {
            good_to_bad: next()??,
            bad_to_good: next()??,
            loss_in_bad: next().unwrap_or(Some(1.0))?,
            loss_in_good: next().unwrap_or(Some(0.0))?,
        },
        share => Loss::Uniform(probability(share)?),
    };
    parts.next().is_none().then_some(loss)
}

fn jitter(value: &str) -> Option<(Duration, Distribution)> {
    let (width, name) = value.split_once(':').unwrap_or((value, "uniform"));
    let distribution = match name {
        "uniform" => Distribution::Uniform,
        "normal" => Distribution::Normal,
        "pareto" => Distribution::Pareto,
        _ => return None,
    };
    Some((duration(width)?, distribution))
}

fn codel(value: &str) -> Option<CodelConfig> {
    let (times, ecn) = value.strip_suffix(":ecn").map_or((value, false), |times| (times, true));
    let (target, interval) = times.split_once(':')?;
    let codel = CodelConfig { target: duration(target)?, interval: duration(interval)?, ecn };
    (!codel.interval.is_zero()).then_some(codel)
}

fn bucket(value: &str) -> Option<Bucket> {
    let (filled, burst) = value.split_once(':')?;
    let QueueLimit::Bytes(burst_bytes) = queue(burst)? else { return None };
    Some(Bucket { bits_per_second: rate(filled)?, burst_bytes })
}

fn fair(value: &str) -> Option<FairConfig> {
    let (queues, quantum) = value.split_once(':').map_or((value, None), |(n, q)| (n, Some(q)));
    let queues = queues.parse().ok().filter(|queues| (1..=1 << 16).contains(queues))?;
    let quantum_bytes = match quantum {
        Some(quantum) => quantum.parse().ok().filter(|bytes| *bytes > 0)?,
        None => FairConfig::default().quantum_bytes,
    };
    Some(FairConfig { queues, quantum_bytes })
}

fn mark(value: &str) -> Option<MarkFrom> {
    match queue(value) {
        Some(QueueLimit::Packets(from)) => Some(MarkFrom::Packets(from)),
        Some(QueueLimit::Bytes(from)) => Some(MarkFrom::Bytes(from)),
        Some(QueueLimit::Unlimited) | None => duration(value).map(MarkFrom::Wait),
    }
}

fn probability(value: &str) -> Option<f64> {
    let percent = decimal(value.strip_suffix('%')?)?;
    (percent <= 100.0).then_some(percent / 100.0)
}

fn duration(value: &str) -> Option<Duration> {
    let (number, unit) = split_unit(value)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn rate(value: &str) -> Option<u64> {
    let (number, unit) = split_unit(value)?;
    let bits = match unit {
        "bit" => 1.0,
        "kbit" => 1e3,
        "Mbit" => 1e6,
        "Gbit" => 1e9,
        _ => return None,
    };
    whole(number * bits)
}

fn queue(value: &str) -> Option<QueueLimit> {
    let (number, unit) = split_unit(value)?;
    let scale = match unit {
        "packets" | "packet" => {
            return whole(number).map(|n| QueueLimit::Packets(n as usize));
        }
        "B" => 1.0,
        "KB" => 1e3,
        "KiB" => 1024.0,
        "MB" => 1e6,
        "MiB" => 1024.0 * 1024.0,
        _ => return None,
    };
    whole(number * scale).map(|n| QueueLimit::Bytes(n as usize))
}

/// `number` rounded down, if that is at least one and far from any overflow.
fn whole(number: f64) -> Option<u64> {
    (1.0..1e15).contains(&number).then_some(number as u64)
}

fn split_unit(value: &str) -> Option<(f64, &str)> {
    let unit = value.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = value.split_at(unit);
    Some((decimal(number)?, unit))
}

/// A plain decimal number: no sign, no exponent, no infinity.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn parse(text: &str) -> LinkConfig {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn every_key_is_read() {
        let text = "loss=1%, reorder=5%:2ms, duplicate=1%, delay=30ms, jitter=1.5ms, rate=100Mbit, \
                    queue=256KiB, corrupt=0.1%, seed=7";
        let expected = LinkConfig {
            rate: Rate::BitsPerSecond(100_000_000),
            delay: Duration::from_millis(30),
            jitter: Duration::from_micros(1500),
            queue: QueueLimit::Bytes(256 << 10),
            loss: Loss::Uniform(0.01),
            reorder: 0.05,
            reorder_delay: Duration::from_millis(2),
            duplicate: 0.01,
            corrupt: 0.001,
            seed: 7,
            ..LinkConfig::default()
        };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(" "), LinkConfig::default());
        assert_eq!(parse("mtu=1280").mtu, Some(1280));
        assert_eq!(parse("queue=100packets").queue, QueueLimit::Packets(100));
        assert_eq!(parse("rate=2.5Gbit").rate, Rate::BitsPerSecond(2_500_000_000));
        let codel = CodelConfig::default();
        assert_eq!(parse("codel=5ms:100ms").codel, Some(codel));
        assert_eq!(parse("codel=5ms:100ms:ecn").codel, Some(CodelConfig { ecn: true, ..codel }));
        let bucket = Bucket { bits_per_second: 20_000_000, burst_bytes: 64 << 10 };
        assert_eq!(parse("bucket=20Mbit:64KiB").bucket, Some(bucket));
        assert_eq!(parse("fq=1024").fair, Some(FairConfig::default()));
        let fair = FairConfig { queues: 2, quantum_bytes: 300 };
        assert_eq!(parse("fq=2:300").fair, Some(fair));
        for (text, from) in [
            ("mark=30packets", MarkFrom::Packets(30)),
            ("mark=64KiB", MarkFrom::Bytes(64 << 10)),
            ("mark=1ms", MarkFrom::Wait(Duration::from_millis(1))),
        ] {
            assert_eq!(parse(text).mark, Some(from));
        }
        let late = parse("reorder=5%:3packets");
        assert_eq!((late.reorder, late.reorder_distance), (0.05, Some(3)));
        for (text, distribution) in [
            ("jitter=2ms", Distribution::Uniform),
            ("jitter=2ms:uniform", Distribution::Uniform),
            ("jitter=2ms:normal", Distribution::Normal),
            ("jitter=2ms:pareto", Distribution::Pareto),
        ] {
            let config = parse(text);
            assert_eq!(config.jitter, Duration::from_millis(2));
            assert_eq!(config.jitter_distribution, distribution, "{text}");
        }
    }

    #[test]
    fn every_loss_model_is_read() {
        let bursty = Loss::Bursty { first: 0.01, after_loss: 0.3 };
        assert_eq!(parse("loss=bursty:1%:30%").loss, bursty);
        let chain = |loss_in_bad, loss_in_good| Loss::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_in_bad,
            loss_in_good,
        };
        assert_eq!(parse("loss=gilbert:1%:25%").loss, chain(1.0, 0.0));
        assert_eq!(parse("loss=gilbert:1%:25%:50%").loss, chain(0.5, 0.0));
        assert_eq!(parse("loss=gilbert:1%:25%:50%:2%").loss, chain(0.5, 0.02));
    }

    #[test]
    fn a_hundred_percent_is_a_probability_and_a_little_more_is_not() {
        assert_eq!(parse("loss=100%").loss, Loss::Uniform(1.0));
        assert!("loss=100.1%".parse::<LinkConfig>().is_err());
    }

    #[test]
    fn an_error_names_the_part_and_says_what_was_expected() {
        let message = |text: &str| text.parse::<LinkConfig>().unwrap_err().to_string();
        assert_eq!(
            message("delay=30ms,loss=1"),
            "`loss=1`: expected 1%, or bursty:1%:30% (first loss, loss after a loss), or \
             gilbert:1%:25%:100%:0% (good to bad, bad to good, loss in bad, loss in good)"
        );
        assert_eq!(message("delay=1ms,delay=2ms"), "`delay=2ms`: given twice");
        assert!(message("dealy=1ms").contains("a key among rate, bucket"));
        assert!(message("delay=1ms,").contains("key=value"));
    }

    #[test]
    fn bad_values_are_refused() {
        for text in [
            "delay=30",
            "delay=ms",
            "delay=-1ms",
            "delay=1e9s",
            "jitter=infs",
            "jitter=1ms:gauss",
            "codel=5ms",
            "codel=5ms:0ms",
            "codel=5ms:ecn",
            "bucket=20Mbit",
            "bucket=20Mbit:3packets",
            "fq=0",
            "fq=65537",
            "fq=1:0",
            "mark=30",
            "reorder=5%:3",
            "reorder=5%:9999999999packets",
            "rate=0bit",
            "rate=100MB",
            "rate=99999999999Gbit",
            "queue=0B",
            "queue=12",
            "loss=bursty:1%",
            "loss=bursty:1%:2%:3%",
            "loss=gilbert:1%",
            "loss=gilbert:1%:1%:1%:1%:1%",
            "reorder=5%:2",
            "corrupt=nan%",
            "mtu=67",
            "mtu=1280B",
            "corrupt=%",
            "duplicate=1.2.3%",
            "seed=-1",
        ] {
            assert!(text.parse::<LinkConfig>().is_err(), "{text}");
        }
    }
}
