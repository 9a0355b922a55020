//! An access log as a load: its requests, at its times.
//!
//! Common Log Format is `host ident user [day/month/year:hour:minute:second zone] "request" status
//! bytes`; Combined adds `"referer" "user-agent"`. Apache and nginx write both. A log counts in
//! seconds: the requests of one second are spread evenly over it.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::time::Duration;

use crate::request::Request;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The method.
    pub method: String,
    /// The path and query.
    pub target: String,
    /// `Referer` and `User-Agent`, if the line has them.
    pub fields: Vec<(String, String)>,
}

/// The contents of a log.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Different requests.
    pub requests: Vec<Request>,
    /// The entries in order of time: each one's second since the first entry, and its request's
    /// number.
    entries: Vec<(i64, u32)>,
    /// Lines that are no requests.
    pub skipped: u64,
    /// The first skipped line, with the reason.
    pub first_skipped: Option<String>,
}

impl Trace {
    /// Reads a log. `make` makes a request of a line, or returns the reason why it cannot.
    ///
    /// # Errors
    /// The reader's own. A line that is no request is counted, and is no error.
    pub fn read(
        log: impl BufRead,
        mut make: impl FnMut(&Line) -> Result<Request, String>,
    ) -> io::Result<Trace> {
        let mut trace = Trace::default();
        let mut known: HashMap<Line, u32> = HashMap::new();
        for (index, bytes) in log.split(b'\n').enumerate() {
            let bytes = bytes?;
            let text = String::from_utf8_lossy(&bytes);
            if text.trim().is_empty() {
                continue;
            }
            let entry = parse(text.trim_end()).and_then(|(time, line)| {
                if let Some(number) = known.get(&line) {
                    return Ok((time, *number));
                }
                let number = trace.requests.len() as u32;
                trace.requests.push(make(&line)?);
                known.insert(line, number);
                Ok((time, number))
            });
            match entry {
                Ok(entry) => trace.entries.push(entry),
                Err(why) => {
                    trace.skipped += 1;
                    let first = || format!("line {}: {why}", index + 1);
                    trace.first_skipped.get_or_insert_with(first);
                }
            }
        }
        // A server writes a line when its request is over, so that lines may be out of order.
        trace.entries.sort_by_key(|(time, _)| *time);
        let first = trace.entries.first().map_or(0, |(time, _)| *time);
        trace.entries.iter_mut().for_each(|(time, _)| *time -= first);
        Ok(trace)
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The length of the log at that speed, its last second included.
    pub fn duration(&self, speed: f64) -> Duration {
        let last = self.entries.last().map_or(0, |(second, _)| second + 1);
        Duration::from_secs_f64(last as f64 / speed)
    }

    /// The time of each request at that speed, and its number.
    pub fn schedule(&self, speed: f64) -> impl Iterator<Item = (Duration, u32)> + '_ {
        let seconds = self.entries.chunk_by(|one, other| one.0 == other.0);
        seconds.flat_map(move |second| {
            let count = second.len() as f64;
            second.iter().enumerate().map(move |(place, (time, number))| {
                let at = *time as f64 + place as f64 / count;
                (Duration::from_secs_f64(at / speed), *number)
            })
        })
    }
}

/// The largest number of `times`, which are sorted, within any `window`.
pub fn most_within(times: &[Duration], window: Duration) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (place, time) in times.iter().enumerate() {
        while times[first] + window <= *time {
            first += 1;
        }
        most = most.max(place + 1 - first);
    }
    most
}

/// Parses a line: its time in seconds since 1970, and the rest.
fn parse(text: &str) -> Result<(i64, Line), String> {
    let (_, rest) = text.split_once('[').ok_or("there is no [time]")?;
    let (time, rest) = rest.split_once(']').ok_or("there is no [time]")?;
    let time = seconds(time).ok_or_else(|| format!("[{time}] is not a time"))?;
    let (request, rest) = quoted(rest.trim_start()).ok_or("there is no \"request\"")?;
    let mut words = request.split(' ');
    let (Some(method), Some(target), version) = (words.next(), words.next(), words.next()) else {
        return Err(format!("{request:?} is not a request"));
    };
    // A server writes `-` where it could not read a request.
    if method == "-"
        || words.next().is_some()
        || version.is_some_and(|version| !version.starts_with("HTTP/"))
    {
        return Err(format!("{request:?} is not a request"));
    }
    let fields = fields(rest);
    let target = origin(target).to_owned();
    Ok((time, Line { method: method.to_owned(), target, fields }))
}

/// The path of a target in absolute form, which a proxy logs.
fn origin(target: &str) -> &str {
    let Some((_, behind)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        return target;
    };
    behind.find('/').map_or("/", |slash| &behind[slash..])
}

/// The two fields that Combined adds.
fn fields(rest: &str) -> Vec<(String, String)> {
    let mut rest = rest;
    let mut fields = Vec::new();
    for name in ["Referer", "User-Agent"] {
        let Some(found) = rest.find('"').and_then(|at| quoted(&rest[at..])) else { break };
        if !found.0.is_empty() && found.0 != "-" {
            fields.push((name.to_owned(), found.0));
        }
        rest = found.1;
    }
    fields
}

/// The text between quotes at the front, with `\"`, `\\` and `\xHH` undone, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = Vec::new();
    let mut at = 0;
    let bytes = text.as_bytes();
    loop {
        match *bytes.get(at)? {
            b'"' => break,
            b'\\' if bytes.get(at + 1) == Some(&b'x') => {
                let hex = text.get(at + 2..at + 4)?;
                value.push(u8::from_str_radix(hex, 16).ok()?);
                at += 4;
            }
            b'\\' => {
                value.push(*bytes.get(at + 1)?);
                at += 2;
            }
            byte => {
                value.push(byte);
                at += 1;
            }
        }
    }
    Some((String::from_utf8_lossy(&value).into_owned(), &text[at + 1..]))
}

/// Seconds since 1970 of `10/Oct/2000:13:55:36 -0700`.
fn seconds(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (moment, zone) = text.split_once(' ')?;
    let mut parts = moment.split(['/', ':']);
    let mut next = || parts.next();
    let day: i64 = number(next()?, 1..=31)?;
    let month = next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let year = number(next()?, 1970..=9999)?;
    let (hour, minute) = (number(next()?, 0..=23)?, number(next()?, 0..=59)?);
    let second = number(next()?, 0..=60)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let zone = number(zone.strip_prefix(['+', '-'])?, 0..=9999)?;
    let offset = sign * (zone / 100 * 3600 + zone % 100 * 60);
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

fn number(text: &str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. Years count from March here, so that
/// the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let since_march = (month + 9) % 12;
    let day_of_year = (153 * since_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests;
