//! `/rates`: what happens a second, and how full everything is. Those who show it compute nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::host::PoolInfo;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::connections::parts;
use super::metrics::plain;
use super::questions::Shards;
use crate::counts::Counts;
use crate::rates::per_second;
use crate::serve::Stacks;

/// The time between two samples, unless the request says which.
const USUAL: Duration = Duration::from_secs(1);
/// The least and the longest.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(60);

/// The server's stack of one shard, at a moment.
struct Sample {
    at: Instant,
    counts: Counts,
    pool: PoolInfo,
}

/// Reads the query of a request: between which samples.
pub(super) fn seconds(query: &str) -> Result<Duration, String> {
    let mut time = USUAL;
    for (key, value) in parts(query) {
        if key != "seconds" {
            return Err(format!("{key}: give seconds"));
        }
        let given =
            value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let given = given.filter(|time| (LEAST..=MOST).contains(time));
        time = given.ok_or_else(|| format!("seconds={value}: give 0.1 to 60"))?;
    }
    Ok(time)
}

/// Takes two samples of every shard, so long apart.
pub(super) async fn over(shards: &Shards, time: Duration) -> Value {
    let before = shards.ask_all(sample).await;
    sleep(time).await;
    let after = shards.ask_all(sample).await;
    told(&before, &after)
}

fn sample(stacks: &Stacks) -> Sample {
    let (at, pool) = stacks.with_server(|host, now| (now, host.pool_info()));
    let mut counts = stacks.counts();
    Sample { at, counts: counts.swap_remove(0), pool }
}

/// What is told of two samples of all shards.
fn told(before: &[Option<Sample>], after: &[Option<Sample>]) -> Value {
    let mut shards = Vec::new();
    let (mut sum, mut rates) = (None::<Counts>, BTreeMap::<&str, f64>::new());
    let (mut longest, mut silent, mut pools) = (Duration::ZERO, Vec::new(), Vec::new());
    for (shard, samples) in before.iter().zip(after).enumerate() {
        let (Some(before), Some(after)) = samples else {
            silent.push(shard);
            continue;
        };
        let over = after.at.since(before.at);
        longest = longest.max(over);
        let of_shard = rates_of(&before.counts, &after.counts, over);
        for (name, rate) in &of_shard {
            *rates.entry(name).or_default() += rate;
        }
        shards.push(json!({
            "shard": shard,
            "levels": levels(&after.counts),
            "per_second": of_shard.into_iter().collect::<BTreeMap<_, _>>(),
        }));
        pools.push(after.pool);
        match &mut sum {
            Some(sum) => sum.merge(&after.counts),
            None => sum = Some(after.counts.clone()),
        }
    }
    let sum = sum.as_ref();
    json!({
        "seconds": longest.as_secs_f64(),
        "levels": sum.map(levels),
        "per_second": rates,
        "counters": sum.map(totals),
        "meanings": sum.map(meanings),
        "pool": pool(&pools),
        "shards": shards,
        "silent_shards": silent,
    })
}

/// The rates of all counters but those that are levels.
fn rates_of(before: &Counts, after: &Counts, over: Duration) -> Vec<(&'static str, f64)> {
    let counters = after.counters.iter().filter(|counter| !counter.is_level);
    let known = |name: &str| {
        let known = before.counters.iter().find(|counter| counter.name == name);
        known.map_or(0, |counter| counter.value)
    };
    counters.map(|it| (it.name, per_second(known(it.name), it.value, over))).collect()
}

fn levels(counts: &Counts) -> Map<String, Value> {
    let of = |(name, held, limit): &(&str, u64, u64)| {
        ((*name).to_owned(), json!({ "held": held, "limit": limit }))
    };
    counts.levels.iter().map(of).collect()
}

fn totals(counts: &Counts) -> Map<String, Value> {
    counts.counters.iter().map(|it| (it.name.to_owned(), json!(it.value))).collect()
}

fn meanings(counts: &Counts) -> Map<String, Value> {
    counts.counters.iter().map(|it| (it.name.to_owned(), json!(plain(it.meaning)))).collect()
}

/// The pages of all shards.
fn pool(pools: &[PoolInfo]) -> Value {
    let sum = |of: fn(&PoolInfo) -> usize| pools.iter().map(of).sum::<usize>();
    json!({
        "page_bytes": pools.first().map(|pool| pool.page_bytes),
        "share_pages": pools.first().and_then(|pool| pool.share),
        "pages": sum(|pool| pool.in_use),
        "limit": sum(|pool| pool.limit),
        "newcomers": sum(|pool| pool.newcomers),
        "waiting": sum(|pool| pool.waiting),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::{Capabilities, Config, Host, Medium};

    fn sample(at_ms: u64, frames: u64) -> Option<Sample> {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let host = Host::new(Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32])).unwrap();
        let mut counts = Counts::of("TAP lw0", &host);
        (counts.counters[0].value, counts.levels[0].1) = (frames, 3);
        Some(Sample { at: Instant::from_millis(at_ms), counts, pool: host.pool_info() })
    }

    #[test]
    fn rates_of_shards_are_by_their_own_clocks_and_add_up() {
        let before = [sample(1000, 10), sample(1000, 0), sample(1000, 0)];
        let after = [sample(3000, 30), sample(2000, 5), None];
        let told = told(&before, &after);
        assert_eq!(told["per_second"]["frames_in"], json!(15.0));
        assert_eq!(told["shards"][0]["per_second"]["frames_in"], json!(10.0));
        assert_eq!(told["shards"][1]["per_second"]["frames_in"], json!(5.0));
        assert_eq!(told["seconds"], json!(2.0));
        assert_eq!(told["counters"]["frames_in"], json!(35));
        assert_eq!(told["levels"]["connections"]["held"], json!(6));
        assert_eq!(told["silent_shards"], json!([2]));
        assert!(told["meanings"]["frames_in"].as_str().unwrap().len() > 5);
        let one = before[0].as_ref().unwrap().pool.limit;
        assert_eq!(told["pool"]["limit"], json!(2 * one));
    }

    #[test]
    fn the_time_between_samples_has_bounds() {
        let of = |query: &str| seconds(query).map(|time| time.as_millis());
        assert_eq!((of(""), of("seconds=0.1"), of("seconds=60")), (Ok(1000), Ok(100), Ok(60_000)));
        for query in ["seconds=0.09", "seconds=60.1", "seconds=-1", "seconds=NaN", "seconds"] {
            assert!(of(query).unwrap_err().contains("give 0.1 to 60"), "{query}");
        }
        assert_eq!(of("second=1").unwrap_err(), "second: give seconds");
    }
}
