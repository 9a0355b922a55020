//! Reads a report from its JSON. Reports of older versions lack some keys.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::json::SCHEMA;
use super::{Report, Setup};
use crate::engine::{Close, IdleOutcome, Notes, Outcome};
use crate::recorder::{Ended, Fault, Faults, Latencies, Second, SecondLatencies, Totals};
use crate::share::Share;

impl Report {
    /// The report whose [`Report::json`] returned `json`.
    ///
    /// # Errors
    /// A line that names the key that is missing or wrong.
    pub fn from_json(json: &Value) -> Result<Report, String> {
        let object = Object(json);
        let schema = object.text("schema")?;
        if schema != SCHEMA {
            return Err(format!("its schema is {schema:?}, not {SCHEMA:?}"));
        }
        let (seconds, second_latencies) = seconds(&object)?;
        let outcome = Outcome {
            warm_up: object.seconds("warm_up_s")?,
            recorded: object.seconds("recorded_s")?,
            totals: totals(&object)?,
            seconds,
            second_latencies,
            notes: Notes {
                answered: object.later("answered_in_all")?,
                failed: object.later("failed_in_all")?,
                closed_by_server: object.count("closed_by_server")?,
                closed_by_client: object.count("closed_by_client")?,
                closed_by_reset: object.later("closed_by_reset")?,
                tuple_waits: object.count("tuple_waits")?,
                tuples_taken: object.count("tuples_taken")?,
                kernel_overflow: object.later("kernel_overflow")?,
                reopened: object.count("reopened")?,
                client_closes: object.later("client_closes")?,
                asked: object.later("asked")?,
                obeyed: object.later("obeyed")?,
                swapped: object.later("swapped")?,
                agreed: object.later("agreed")?,
                held: object.later("held")?,
            },
            idle: idle(&object)?,
        };
        Ok(Report {
            setup: setup(&object)?,
            outcome,
            cpu_share: object.number("cpu_share")?,
            // Older reports are of one.
            threads: object.later("threads")?.clamp(1, u16::MAX.into()) as u16,
            started_at: object.time("started_at")?,
            together: object.time("together_s")?,
        })
    }
}

fn setup(object: &Object<'_>) -> Result<Setup, String> {
    let sources = object.object("sources")?;
    let close = match object.text("close")? {
        "server" => Close::Server,
        "client" => Close::Client,
        "swap" => Close::Swap,
        "client-close" => Close::ClientClose,
        "negotiate" => Close::Negotiate,
        other => return Err(format!("close is {other:?}")),
    };
    Ok(Setup {
        url: object.text("url")?.to_owned(),
        method: object.text("method")?.to_owned(),
        mix: object.optional("mix", Object::text)?.map(str::to_owned),
        stack: object.text("stack")?.to_owned(),
        rate: object.optional("rate_asked", Object::number)?,
        connections: object.count("connections_most")?,
        requests_per_connection: object.optional("requests_per_connection", Object::small)?,
        pipeline: object.small("pipeline")?,
        http2_streams: match object.0.get("http2_streams") {
            None => None,
            Some(_) => object.optional("http2_streams", Object::small)?,
        },
        close,
        addresses: sources.count("addresses")?,
        ports: sources.small("ports")?,
        rest: sources.seconds("rest_s")?,
        steady_after: object.seconds("steady_after_s")?,
        shares: shares(object)?,
    })
}

/// Shares as `2/4`.
fn shares(object: &Object<'_>) -> Result<Vec<Share>, String> {
    let share = |value: &Value| {
        let (number, of) = value.as_str()?.split_once('/')?;
        Share::new(number.parse::<u32>().ok()?.checked_sub(1)?, of.parse().ok()?)
    };
    let shares = object.list("parts")?.iter();
    shares.map(|value| share(value).ok_or_else(|| wrong("parts"))).collect()
}

/// The idle connections; there are none in reports older than that key.
fn idle(object: &Object<'_>) -> Result<IdleOutcome, String> {
    if object.0.get("idle").is_none() {
        return Ok(IdleOutcome::default());
    }
    let object = object.object("idle")?;
    Ok(IdleOutcome {
        asked: object.count("asked")?,
        opened: object.count("opened")?,
        lost: object.count("lost")?,
        faults: faults(&object)?,
        opening: object.seconds("opening_s")?,
    })
}

fn faults(object: &Object<'_>) -> Result<Faults, String> {
    let mut faults = Faults::default();
    for (name, count) in object.counts("errors")? {
        let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name);
        faults.count(fault.ok_or_else(|| wrong("errors"))?, count);
    }
    Ok(faults)
}

fn totals(object: &Object<'_>) -> Result<Totals, String> {
    let latencies = object.object("latency_ns")?;
    let of = |kind| latencies.object(kind)?.histogram().and_then(|bytes| Latencies::decode(&bytes));
    // Older reports lack them.
    let of_later = |kind| match latencies.0.get(kind) {
        None => Ok(Latencies::default()),
        Some(_) => of(kind),
    };
    let statuses = object.counts("statuses")?.into_iter();
    let statuses = statuses.map(|(status, count)| Ok((status.parse()?, count)));
    let statuses: Result<BTreeMap<u16, u64>, std::num::ParseIntError> = statuses.collect();
    Ok(Totals {
        ended: ended(object)?,
        answered: object.count("requests_answered")?,
        bytes: object.count("bytes")?,
        connections: object.count("connections_opened")?,
        statuses: statuses.map_err(|_| wrong("statuses"))?,
        faults: faults(object)?,
        connect: of("connect")?,
        handshake: of_later("handshake")?,
        resumed: of_later("resumed")?,
        first_byte: of("first_byte")?,
        total: of("total")?,
        delay: of("start_delay")?,
    })
}

/// The events of the recorded part. Older reports divided the counts of requests by its length.
fn ended(object: &Object<'_>) -> Result<Ended, String> {
    if object.0.get("ended").is_none() {
        return Ok(Ended {
            answered: object.count("requests_answered")?,
            failed: object.count("requests_failed")?,
            connections: object.count("connections_opened")?,
            bytes: object.count("bytes")?,
        });
    }
    let object = object.object("ended")?;
    Ok(Ended {
        answered: object.count("answered")?,
        failed: object.count("failed")?,
        connections: object.count("connections")?,
        bytes: object.count("bytes")?,
    })
}

fn seconds(object: &Object<'_>) -> Result<(Vec<Second>, Vec<SecondLatencies>), String> {
    let (mut seconds, mut all) = (Vec::new(), Vec::new());
    for value in object.list("seconds")? {
        let second = Object(value);
        let latencies = SecondLatencies::decode(&second.histogram()?)?;
        let counted = Second {
            answered: second.count("answered")?,
            failed: second.count("failed")?,
            connections: second.count("connections")?,
            bytes: second.count("bytes")?,
            in_flight: second.count("in_flight")?,
            time_wait: second.count("time_wait")?,
            ..Second::default()
        };
        seconds.push(latencies.complete(counted));
        all.push(latencies);
    }
    Ok((seconds, all))
}

fn wrong(key: &str) -> String {
    format!("{key} is missing or wrong")
}

/// A JSON object; its methods return an error that names a missing or wrong key.
#[derive(Clone, Copy)]
struct Object<'a>(&'a Value);

impl<'a> Object<'a> {
    fn object(&self, key: &str) -> Result<Object<'a>, String> {
        self.0.get(key).filter(|value| value.is_object()).map(Object).ok_or_else(|| wrong(key))
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.0.get(key).and_then(Value::as_str).ok_or_else(|| wrong(key))
    }

    fn number(&self, key: &str) -> Result<f64, String> {
        self.0.get(key).and_then(Value::as_f64).ok_or_else(|| wrong(key))
    }

    fn seconds(&self, key: &str) -> Result<Duration, String> {
        Duration::try_from_secs_f64(self.number(key)?).map_err(|_| wrong(key))
    }

    /// A time in seconds that is null, or missing in older reports.
    fn time(&self, key: &str) -> Result<Option<Duration>, String> {
        let is_missing = self.0.get(key).is_none();
        if is_missing { Ok(None) } else { self.optional(key, Object::seconds) }
    }

    fn count(&self, key: &str) -> Result<u64, String> {
        self.0.get(key).and_then(Value::as_u64).ok_or_else(|| wrong(key))
    }

    /// A count that older reports lack: zero there.
    fn later(&self, key: &str) -> Result<u64, String> {
        if self.0.get(key).is_none() { Ok(0) } else { self.count(key) }
    }

    fn small(&self, key: &str) -> Result<u32, String> {
        self.count(key)?.try_into().map_err(|_| wrong(key))
    }

    fn list(&self, key: &str) -> Result<&'a [Value], String> {
        self.0.get(key).and_then(Value::as_array).map(Vec::as_slice).ok_or_else(|| wrong(key))
    }

    fn optional<T>(
        &self,
        key: &str,
        of: impl FnOnce(&Self, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        match self.0.get(key) {
            Some(Value::Null) => Ok(None),
            _ => of(self, key).map(Some),
        }
    }

    fn counts(&self, key: &str) -> Result<Vec<(&'a str, u64)>, String> {
        let pairs = self.0.get(key).and_then(Value::as_object).ok_or_else(|| wrong(key))?;
        let pairs = pairs.iter().map(|(name, count)| Some((&**name, count.as_u64()?)));
        pairs.collect::<Option<_>>().ok_or_else(|| wrong(key))
    }

    fn histogram(&self) -> Result<Vec<u8>, String> {
        const KEY: &str = "histogram_v2";
        STANDARD.decode(self.text(KEY)?).map_err(|_| wrong(KEY))
    }
}
