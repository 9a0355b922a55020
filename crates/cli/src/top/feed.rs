//! Samples of all doors.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::doors::Door;
use crate::failure::Failure;
use crate::rates::per_second;

/// A connection among all that are seen: the number of its door, its shard and its name.
type Key = (usize, u64, String);

/// Asks the doors again and again.
#[derive(Debug)]
pub(super) struct Feed {
    doors: Vec<Door>,
    interval: Duration,
    limit: usize,
    /// Bytes sent and received of the connections that were seen last, and when.
    last: HashMap<Key, ([u64; 2], Instant)>,
}

/// What all doors said.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) doors: Vec<DoorSample>,
}

/// What a door said.
#[derive(Clone, Debug)]
pub(super) struct DoorSample {
    pub(super) door: String,
    /// The answer of `/rates`, and connections with their own rates; or why there is none.
    pub(super) told: Result<Told, String>,
}

/// The answers of a door.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) rates: Value,
    pub(super) connections: Vec<Value>,
    /// There are more than were asked for.
    pub(super) is_cut: bool,
    /// What is missing of them.
    pub(super) complaint: Option<String>,
}

impl Feed {
    /// Asks these doors in this interval for so many connections each.
    pub(super) fn new(doors: Vec<Door>, interval: Duration, limit: usize) -> Feed {
        Feed { doors, interval, limit, last: HashMap::new() }
    }

    /// Looks at the connections for the first time. Fails if no door answers.
    pub(super) async fn begin(&mut self, filter: &str) -> Result<(), Failure> {
        let (mut failure, query) = (None, query(filter));
        let mut answered = false;
        for (number, door) in self.doors.clone().iter().enumerate() {
            match door.sockets(&query, self.limit).await {
                Ok((mut rows, _)) => {
                    answered = true;
                    self.note(number, &mut rows);
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.filter(|_| !answered).map_or(Ok(()), Err)
    }

    /// The next sample, an interval later.
    pub(super) async fn next(&mut self, filter: &str) -> Sample {
        let mut asked = JoinSet::new();
        for (number, door) in self.doors.iter().cloned().enumerate() {
            let (query, time, limit) = (query(filter), self.interval, self.limit);
            asked.spawn(async move {
                let told = ask(&door, &query, time, limit).await;
                (number, told.map_err(|failure| failure.to_string()))
            });
        }
        let mut told: Vec<_> = asked.join_all().await;
        told.sort_by_key(|(number, _)| *number);
        if told.iter().all(|(_, told)| told.is_err()) {
            // None took the time that it would have taken.
            tokio::time::sleep(self.interval).await;
        }
        let seen: Vec<DoorSample> = told
            .into_iter()
            .map(|(number, mut told)| {
                if let Ok(told) = &mut told {
                    self.note(number, &mut told.connections);
                }
                DoorSample { door: self.doors[number].name(), told }
            })
            .collect();
        let longest = self.interval * 10;
        self.last.retain(|_, (_, at)| at.elapsed() < longest.max(Duration::from_secs(10)));
        Sample { doors: seen }
    }

    /// Gives connections their rates, by what was seen of them before.
    fn note(&mut self, door: usize, rows: &mut [Value]) {
        let now = Instant::now();
        for row in rows {
            let Some(id) = row["id"].as_str() else { continue };
            let key = (door, row["shard"].as_u64().unwrap_or(0), id.to_owned());
            let bytes = ["sent_bytes", "received_bytes"];
            let bytes = bytes.map(|name| row[name].as_u64().unwrap_or(0));
            let before = self.last.insert(key, (bytes, now));
            // One that is new has had the whole interval.
            let (before, over) = before
                .map_or(([0; 2], self.interval), |(before, at)| (before, now.duration_since(at)));
            row["sent_per_second"] = json!(per_second(before[0], bytes[0], over));
            row["received_per_second"] = json!(per_second(before[1], bytes[1], over));
        }
    }
}

fn query(filter: &str) -> String {
    format!("&filter={}", utf8_percent_encode(filter, NON_ALPHANUMERIC))
}

async fn ask(door: &Door, query: &str, time: Duration, limit: usize) -> Result<Told, Failure> {
    let target = format!("/rates?seconds={}", time.as_secs_f64());
    let rates = door.ask(&target, time).await?;
    let (connections, ending) = door.sockets(query, limit).await?;
    let complaint = ending.complaint();
    Ok(Told { rates, connections, is_cut: ending.is_cut, complaint })
}

impl Sample {
    /// True if every door answered.
    pub(super) fn is_whole(&self) -> bool {
        self.doors.iter().all(|door| door.told.is_ok())
    }

    /// It as JSON, for programs.
    pub(super) fn object(&self) -> Value {
        let doors = self.doors.iter().map(|DoorSample { door, told }| match told {
            Ok(told) => json!({
                "door": door,
                "rates": told.rates,
                "connections": told.connections,
                "truncated": told.is_cut,
                "complaint": told.complaint,
            }),
            Err(why) => json!({ "door": door, "error": why }),
        });
        json!({ "doors": doors.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_rate_since_it_was_seen_last() {
        let mut feed = Feed::new(Vec::new(), Duration::from_secs(2), 10);
        let row =
            |shard: u64, sent: u64| json!({ "shard": shard, "id": "1.1", "sent_bytes": sent });
        let mut first = [row(0, 4000), row(1, 0)];
        feed.note(0, &mut first);
        assert_eq!(first[0]["sent_per_second"], json!(2000.0), "it is new");
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let mut second = [row(0, 5000), row(1, 0), json!({ "kind": "listener" })];
        feed.note(0, &mut second);
        let rate = second[0]["sent_per_second"].as_f64().unwrap();
        let most = 1000.0 / 0.05;
        let least = 1000.0 / (begin.elapsed().as_secs_f64() + 0.01);
        assert!((least..=most).contains(&rate), "{rate}");
        assert_eq!(second[1]["sent_per_second"], json!(0.0), "another shard's");
        assert!(second[2].get("sent_per_second").is_none());
        let mut other = [row(0, 4000)];
        feed.note(1, &mut other);
        assert_eq!(other[0]["sent_per_second"], json!(2000.0), "another door's");
    }
}
