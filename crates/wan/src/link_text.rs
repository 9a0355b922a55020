//! A user's description of a link: pairs of key and value, where later ones replace earlier ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, fs};

use lightwait_netem::{LinkConfig, Rate, Trace};

use crate::Way;

/// Bytes of a frame that an opportunity of a trace carries: a packet of 1500 bytes, and the frame's
/// Ethernet header.
const OPPORTUNITY_BYTES: usize = 1514;

/// Makes the random choices of the two directions differ.
const OTHER_WAY: u64 = 0x9e37_79b9_7f4a_7c15;

/// The error of a link's description; one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError(pub(crate) String);

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DescriptionError {}

/// A link in one direction, such as `delay=30ms,rate=100Mbit`. It has the keys of [`LinkConfig`]'s
/// own text, and `trace=FILE` in place of `rate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkText {
    pairs: BTreeMap<String, String>,
}

impl LinkText {
    /// Adds a pair, or replaces the pair with the same key. A trace replaces a rate, and a rate a
    /// trace.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), DescriptionError> {
        if key != "trace" {
            let checked = format!("{key}={value}").parse::<LinkConfig>();
            checked.map_err(|error| DescriptionError(error.to_string()))?;
        }
        let other = if key == "trace" { "rate" } else { "trace" };
        if ["trace", "rate"].contains(&key) {
            self.pairs.remove(other);
        }
        self.pairs.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Adds the pairs of `base` whose keys `self` lacks.
    #[must_use]
    pub fn over(&self, base: &LinkText) -> LinkText {
        let mut both = base.clone();
        for (key, value) in &self.pairs {
            both.set(key, value).expect("checked when it was added");
        }
        both
    }

    /// The configuration of the link. Reads the trace, if there is one. Each direction derives its
    /// own seed.
    pub fn config(&self, way: Way) -> Result<LinkConfig, DescriptionError> {
        let pairs = self.pairs.iter().filter(|(key, _)| *key != "trace");
        let text: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        let parsed = text.join(",").parse::<LinkConfig>();
        let mut config = parsed.map_err(|error| DescriptionError(error.to_string()))?;
        if let Some(path) = self.pairs.get("trace") {
            config.rate = Rate::Trace(Arc::new(read_trace(Path::new(path))?));
        }
        if way == Way::BToA {
            config.seed ^= OTHER_WAY;
        }
        Ok(config)
    }

    /// True if the text has that key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.contains_key(key)
    }

    /// Takes relative paths as relative to `directory`.
    pub(crate) fn seen_from(&mut self, directory: &Path) {
        if let Some(path) = self.pairs.get_mut("trace") {
            *path = directory.join(&*path).display().to_string();
        }
    }
}

fn read_trace(path: &Path) -> Result<Trace, DescriptionError> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| DescriptionError(format!("trace {shown}: cannot be read: {error}")))?;
    Trace::parse(&text, OPPORTUNITY_BYTES)
        .map_err(|error| DescriptionError(format!("trace {shown}: {error}")))
}

impl FromStr for LinkText {
    type Err = DescriptionError;

    fn from_str(text: &str) -> Result<LinkText, DescriptionError> {
        let mut all = LinkText::default();
        if text.trim().is_empty() {
            return Ok(all);
        }
        for part in text.split(',').map(str::trim) {
            let Some((key, value)) = part.split_once('=') else {
                let text = format!("`{part}`: expected key=value, such as delay=30ms");
                return Err(DescriptionError(text));
            };
            let twice = all.pairs.contains_key(key);
            if twice || key == "rate" && all.pairs.contains_key("trace") {
                let text = if twice { "given twice" } else { "a trace has a rate of its own" };
                return Err(DescriptionError(format!("`{part}`: {text}")));
            }
            if key == "trace" && all.pairs.contains_key("rate") {
                let text = format!("`{part}`: a trace has a rate of its own");
                return Err(DescriptionError(text));
            }
            all.set(key, value)?;
        }
        Ok(all)
    }
}

impl fmt::Display for LinkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> =
            self.pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(text: &str) -> LinkText {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_said_later_replaces_what_was_said_before() {
        let both = text("delay=1ms,loss=2%").over(&text("delay=9ms,rate=8Mbit"));
        assert_eq!(both.to_string(), "delay=1ms,loss=2%,rate=8Mbit");
        let config = both.config(Way::AToB).unwrap();
        assert_eq!(
            (config.delay, config.rate),
            (Duration::from_millis(1), Rate::BitsPerSecond(8_000_000))
        );
        assert_eq!(text("trace=x").over(&text("rate=8Mbit")).to_string(), "trace=x");
        assert_eq!(text("rate=8Mbit").over(&text("trace=x")).to_string(), "rate=8Mbit");
    }

    #[test]
    fn each_direction_makes_its_own_choices() {
        let seed = |way| text("seed=5").config(way).unwrap().seed;
        assert_eq!(seed(Way::AToB), 5);
        assert_ne!(seed(Way::BToA), 5);
    }

    #[test]
    fn a_bad_pair_is_named_with_what_was_expected() {
        for (bad, help) in [
            ("delay=30", "`delay=30`: expected a duration"),
            ("dealy=30ms", "key among"),
            ("delay", "key=value"),
            ("delay=1ms,delay=2ms", "given twice"),
            ("rate=1Mbit,trace=x", "a rate of its own"),
            ("trace=x,rate=1Mbit", "a rate of its own"),
        ] {
            let error = bad.parse::<LinkText>().unwrap_err().to_string();
            assert!(error.contains(help), "{bad}: {error}");
        }
    }

    #[test]
    fn a_trace_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("t"), "1\n2\n").unwrap();
        let mut good = text("trace=t");
        good.seen_from(directory.path());
        let config = good.config(Way::AToB).unwrap();
        let Rate::Trace(trace) = config.rate else { panic!("{config:?}") };
        assert_eq!(trace.bits_per_second(), 1514.0 * 8.0 * 1000.0);
        std::fs::write(directory.path().join("t"), "1\nx\n").unwrap();
        let error = good.config(Way::AToB).unwrap_err().to_string();
        assert!(error.contains("line 2: expected a time"), "{error}");
        let error = text("trace=/no/such").config(Way::AToB).unwrap_err().to_string();
        assert!(error.contains("/no/such: cannot be read"), "{error}");
    }
}
