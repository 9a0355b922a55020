//! `/events`: what happens on chosen connections for a while, as qlog. One log at a time, of
//! bounded time and size.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lightwait::observe::{Log, Wanted, Watching};
use lightwait_core::tcp::State;
use lightwait_trace::qlog;
use tokio::time::sleep;

use super::capture;
use super::connections::parts;
use super::questions::Shards;
use crate::filter::Filter;

/// Connections, unless the request says, and at most.
const CONNECTIONS: usize = 16;
const CONNECTIONS_MOST: usize = 256;
/// Events of each, unless the request says, and the least and the most.
const EVENTS: usize = 10_000;
const EVENTS_LEAST: usize = 100;
const EVENTS_MOST: usize = 100_000;
/// Events of all connections together, at most: 50 MB, and as much again as text.
const TOGETHER: usize = 400_000;
/// How long after its time a shard ends what nobody has ended.
const GRACE: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    filter: Option<Filter>,
    /// One connection in so many.
    sample: u64,
    time: Duration,
    connections: usize,
    events: usize,
}

impl Query {
    /// Reads the query of a request's target, or says which part of it is wrong.
    pub(super) fn parse(query: &str) -> Result<Query, String> {
        let mut asked = Query {
            filter: None,
            sample: 1,
            time: capture::USUAL,
            connections: CONNECTIONS,
            events: EVENTS,
        };
        for (key, value) in parts(query) {
            match key {
                "filter" => asked.filter = capture::of_ends(&value)?,
                "seconds" => asked.time = capture::seconds(&value)?,
                "sample" => {
                    let given = value.parse().ok().filter(|it| *it > 0);
                    asked.sample = given.ok_or_else(|| {
                        format!("sample={value}: give N, for one connection in N")
                    })?;
                }
                "connections" => {
                    let given = value.parse().ok();
                    let given = given.filter(|it| (1..=CONNECTIONS_MOST).contains(it));
                    asked.connections = given.ok_or_else(|| {
                        format!("connections={value}: give 1 to {CONNECTIONS_MOST}")
                    })?;
                }
                "events" => {
                    let given = value.parse().ok();
                    let given = given.filter(|it| (EVENTS_LEAST..=EVENTS_MOST).contains(it));
                    asked.events = given.ok_or_else(|| {
                        format!("events={value}: give {EVENTS_LEAST} to {EVENTS_MOST}")
                    })?;
                }
                _ => {
                    return Err(format!(
                        "{key}: give filter, sample, seconds, connections or events"
                    ));
                }
            }
        }
        if asked.connections * asked.events > TOGETHER {
            return Err(format!(
                "connections={} and events={}: together at most {TOGETHER} events",
                asked.connections, asked.events
            ));
        }
        Ok(asked)
    }

    /// Which connections are observed.
    fn wanted(&self) -> Wanted {
        let (filter, sample) = (self.filter.clone(), self.sample);
        let chance = RandomState::new();
        Arc::new(move |local, remote| {
            filter.as_ref().is_none_or(|it| it.has(State::Established, local, Some(remote)))
                && (sample == 1 || chance.hash_one((local, remote)).is_multiple_of(sample))
        })
    }
}

/// Observes for the time that is asked for. Returns what was seen, as qlog.
pub(super) async fn take(shards: &Shards, query: &Query) -> io::Result<Vec<u8>> {
    let nanos = (query.time + GRACE).as_nanos() as u64;
    let watching = Watching {
        wanted: query.wanted(),
        connections: query.connections.div_ceil(shards.count()),
        events: query.events,
        time: lightwait_core::time::Duration::from_nanos(nanos),
    };
    shards.ask_all(move |stacks| stacks.server_stack().observe(watching)).await;
    // If the asker leaves, the observers end by themselves.
    sleep(query.time).await;
    let logs = shards.ask_all(|stacks| stacks.server_stack().observed()).await;
    let logs: Vec<Log> = logs.into_iter().flatten().flatten().collect();
    let text = move || {
        let mut text = Vec::new();
        qlog::write(&logs, env!("CARGO_PKG_VERSION"), &mut text)?;
        Ok(text)
    };
    tokio::task::spawn_blocking(text).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_bounds_and_says_what_is_wrong() {
        let usual = Query::parse("").unwrap();
        assert_eq!((usual.sample, usual.connections, usual.events), (1, 16, 10_000));
        for query in ["sample=1", "connections=256&events=100", "connections=4&events=100000"] {
            assert!(Query::parse(query).is_ok(), "{query}");
        }
        for (query, part) in [
            ("sample=0", "sample=0: give N"),
            ("connections=0", "connections=0: give 1 to 256"),
            ("connections=257", "connections=257: give"),
            ("events=99", "events=99: give 100 to 100000"),
            ("events=100001", "events=100001: give"),
            ("connections=5&events=100000", "connections=5 and events=100000: together at most"),
            ("seconds=61", "seconds=61: give 0.1 to 60"),
            ("filter=state+established", "filter=state established: a frame has no state"),
            ("bytes=1", "bytes: give filter, sample, seconds, connections or events"),
        ] {
            let error = Query::parse(query).unwrap_err();
            assert!(error.starts_with(part), "{query}: {error}");
        }
    }

    #[test]
    fn a_sample_has_about_its_part_of_the_connections() {
        let wanted = |query: &str| {
            let wanted = Query::parse(query).unwrap().wanted();
            let local = "10.0.0.1:80".parse().unwrap();
            let remote = |port: u16| ([10, 0, 0, 2], port).into();
            (1..=10_000).filter(|port| wanted(local, remote(*port))).count()
        };
        assert_eq!(wanted("filter=sport+80"), 10_000);
        assert_eq!(wanted("filter=dst+10.0.0.2:77"), 1);
        assert_eq!(wanted("filter=sport+81"), 0);
        let sampled = wanted("sample=10");
        assert!((700..1300).contains(&sampled), "{sampled}");
    }
}
