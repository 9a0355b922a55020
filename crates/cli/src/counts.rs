//! The counters of a stack and how full its pools are, at one moment. Prints them as a table for
//! people or as a JSON object for programs.

use std::fmt::Write;

use lightwait_core::Host;
use lightwait_core::counters::Counters;
use serde_json::{Map, Value, json};

/// One stack at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) stack: String,
    /// Each kind of resource, how much of it is in use, and its limit.
    pub(crate) levels: Vec<(&'static str, u64, u64)>,
    /// What was counted since the stack began.
    pub(crate) counters: Vec<Counter>,
    /// Malformed frames, by reason.
    pub(crate) malformed: Vec<(&'static str, u64)>,
}

/// A number of a stack or of what runs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) name: &'static str,
    /// What it counts, in Markdown.
    pub(crate) meaning: &'static str,
    pub(crate) value: u64,
    /// It is how much there is, and may fall.
    pub(crate) is_level: bool,
}

impl Counter {
    /// What has happened so many times.
    pub(crate) const fn of(name: &'static str, value: u64, meaning: &'static str) -> Counter {
        Counter { name, meaning, value, is_level: false }
    }

    /// How much there is.
    pub(crate) const fn level(name: &'static str, value: u64, meaning: &'static str) -> Counter {
        Counter { name, meaning, value, is_level: true }
    }
}

impl Counts {
    /// Reads the counters of `host`, the stack named `stack`.
    pub(crate) fn of(stack: &str, host: &Host) -> Counts {
        let limits = &host.config().limits;
        let level = |name, held: usize, limit: usize| (name, held as u64, limit as u64);
        let promised = host.receive_window_promised();
        Counts {
            stack: stack.to_owned(),
            levels: vec![
                level("connections", host.connections(), limits.connections),
                level("syn_cache", host.half_open(), limits.syn_cache),
                level("time_wait", host.time_wait_len(), limits.time_wait),
                level("fin_wait_2", host.fin_wait_2_len(), limits.time_wait),
                level("pages", host.pages_in_use(), limits.pages),
                ("receive_window_bytes", promised, limits.receive_window_bytes),
            ],
            counters: (host.counters().iter().zip(Counters::meanings()))
                .map(|((name, value), meaning)| Counter::of(name, value, meaning))
                .collect(),
            malformed: host.malformed().map(|(reason, count)| (reason.text(), count)).collect(),
        }
    }

    /// Adds counters that the stack does not keep, such as the server's.
    pub(crate) fn add(&mut self, counters: &[Counter]) {
        self.counters.extend(counters);
    }

    /// Adds the connections of the server, and their limit. The lower limit of connections comes
    /// first: it is the one that refuses them.
    pub(crate) fn add_served(&mut self, (held, limit): (usize, usize)) {
        let level = ("http_connections", held as u64, limit as u64);
        let is_lower = self.levels.first().is_some_and(|(_, _, first)| level.2 <= *first);
        self.levels.insert(usize::from(!is_lower), level);
    }

    /// Adds those of another shard of the same stack.
    pub(crate) fn merge(&mut self, other: &Counts) {
        for (name, held, limit) in &other.levels {
            if let Some(ours) = self.levels.iter_mut().find(|(known, ..)| known == name) {
                (ours.1, ours.2) = (ours.1 + held, ours.2.saturating_add(*limit));
            }
        }
        for counter in &other.counters {
            match self.counters.iter_mut().find(|known| known.name == counter.name) {
                Some(known) => known.value += counter.value,
                None => self.counters.push(*counter),
            }
        }
        for (reason, count) in &other.malformed {
            match self.malformed.iter_mut().find(|(known, _)| known == reason) {
                Some(known) => known.1 += count,
                None => self.malformed.push((reason, *count)),
            }
        }
    }

    /// A table for people: every level, and the counters that are not zero.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}:\n", self.stack);
        for (name, held, limit) in &self.levels {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:<26} {held:>14} of {limit}");
        }
        let counters = self.counters.iter().map(|counter| (counter.name, counter.value));
        for (name, count) in counters.chain(self.malformed.iter().copied()) {
            if count > 0 {
                let _ = writeln!(text, "  {name:<26} {count:>14}");
            }
        }
        text
    }

    /// A JSON object for programs, with every level and counter.
    pub(crate) fn object(&self) -> Value {
        let levels = self.levels.iter().map(|(name, held, limit)| {
            ((*name).to_owned(), json!({ "held": held, "limit": limit }))
        });
        let number = |name: &str, count: u64| (name.to_owned(), json!(count));
        let counters = self.counters.iter().map(|counter| number(counter.name, counter.value));
        let malformed = self.malformed.iter().map(|(reason, count)| number(reason, *count));
        json!({
            "event": "counts",
            "stack": self.stack,
            "levels": levels.collect::<Map<_, _>>(),
            "counters": counters.collect::<Map<_, _>>(),
            "malformed": malformed.collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::config::Member;
    use lightwait_core::{Capabilities, Config, Medium};

    #[test]
    fn the_lower_limit_of_connections_comes_first() {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let mut config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        config.limits.connections = 10;
        for (limit, first) in [(3, "http_connections"), (11, "connections")] {
            let mut counts = Counts::of("bridge", &Host::new(config.clone()).unwrap());
            counts.add_served((1, limit));
            let table = counts.table();
            let names: Vec<&str> =
                table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
            assert_eq!(names[0], first, "{table}");
            assert!(names[..2].contains(&"connections"), "{table}");
            assert!(names[..2].contains(&"http_connections"), "{table}");
        }
    }

    #[test]
    fn shards_of_a_stack_count_as_one() {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        let of = |index| {
            let config = config.member(Member { index, of: 2 });
            let mut counts = Counts::of("TAP lw0", &Host::new(config).unwrap());
            counts.add_served((3, 10));
            counts.add(&[Counter::of("http_responses", 5, "Responses")]);
            (counts.levels[0].1, counts.counters[0].value, counts.malformed[0].1) = (3, 7, 1);
            counts
        };
        let mut whole = of(0);
        whole.merge(&of(1));
        let object = whole.object();
        assert_eq!(object["levels"]["http_connections"], json!({ "held": 6, "limit": 20 }));
        let limit = config.limits.time_wait;
        assert_eq!(object["levels"]["time_wait"], json!({ "held": 0, "limit": limit }));
        assert_eq!(object["counters"]["frames_in"], json!(14));
        assert_eq!(object["counters"]["http_responses"], json!(10));
        assert!(object["malformed"].as_object().unwrap().values().any(|n| *n == json!(2)));
    }

    #[test]
    fn people_read_what_happened_and_programs_everything() {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let mut config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        config.limits.time_wait = 77;
        let mut counts = Counts::of("TAP lw0", &Host::new(config).unwrap());
        assert_eq!(counts.table().lines().count(), 1 + counts.levels.len());
        counts.counters[0].value = 5;
        counts.malformed[0].1 = 6;
        let table = counts.table();
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["TAP", "lw0:"]);
        assert!(rows.contains(&vec!["time_wait", "0", "of", "77"]), "{table}");
        assert!(rows.contains(&vec!["frames_in", "5"]), "{table}");
        assert!(rows.last().unwrap().ends_with(&["6"]), "{table}");
        let object = counts.object();
        assert_eq!(object["levels"]["time_wait"], json!({ "held": 0, "limit": 77 }));
        assert_eq!(object["counters"]["frames_in"], json!(5));
        assert_eq!(object["counters"].as_object().unwrap().len(), counts.counters.len());
        assert_eq!(object["malformed"].as_object().unwrap().len(), counts.malformed.len());
    }
}
