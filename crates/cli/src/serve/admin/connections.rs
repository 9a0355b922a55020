//! `/connections`: the connections of every shard, with what the stack knows of each.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::address::Cidr;
use lightwait_core::host::LiveConnection;
use lightwait_core::tcp::State;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::questions::Shards;

/// Connections that a shard looks at for one question: it takes them some 0.05 ms.
const SLICE: usize = 256;
/// Connections in an answer, unless the request says how many.
const LIMIT: usize = 100;
/// Connections in an answer at most.
const LIMIT_MOST: usize = 10_000;

/// Which connections are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    state: Option<State>,
    peer: Option<Peer>,
    limit: usize,
}

/// A peer, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    End(SocketAddr),
    Network(Cidr),
}

impl FromStr for Peer {
    type Err = ();

    fn from_str(text: &str) -> Result<Peer, ()> {
        let one = |address: IpAddr| Cidr::new(address, if address.is_ipv4() { 32 } else { 128 });
        (text.parse().map(Peer::End).ok())
            .or_else(|| text.parse().map(Peer::Network).ok())
            .or_else(|| text.parse().ok().and_then(one).map(Peer::Network))
            .ok_or(())
    }
}

impl Filter {
    /// Reads the query of a request's target, or says which part of it is wrong.
    pub(super) fn parse(query: &str) -> Result<Filter, String> {
        let mut filter = Filter { state: None, peer: None, limit: LIMIT };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            match key {
                "state" => filter.state = Some(state(&value)?),
                "peer" => {
                    filter.peer = Some(value.parse().map_err(|()| {
                        format!(
                            "peer={value}: give an address, a network such as 10.0.0.0/8, or \
                                 an address with its port"
                        )
                    })?);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MOST).contains(limit));
                    filter.limit =
                        limit.ok_or_else(|| format!("limit={value}: give 1 to {LIMIT_MOST}"))?;
                }
                _ => return Err(format!("{key}: give state, peer or limit")),
            }
        }
        Ok(filter)
    }

    fn has(&self, connection: &LiveConnection<'_>) -> bool {
        let remote = connection.remote();
        self.state.is_none_or(|state| state == connection.state())
            && match self.peer {
                None => true,
                Some(Peer::End(end)) => end == remote,
                Some(Peer::Network(network)) => network.contains(remote.ip()),
            }
    }
}

fn state(name: &str) -> Result<State, String> {
    let found = State::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names = State::ALL.map(State::name).join(", ");
        format!("state={name}: give one of {names}")
    })
}

/// The connections that `filter` asks for, shard by shard. The walk sees each connection that stays
/// once. A shard that does not answer has none.
pub(super) async fn list(shards: &Shards, filter: Filter) -> Value {
    let mut rows = Vec::new();
    let mut is_cut = false;
    let mut silent = Vec::new();
    for shard in 0..shards.count() {
        let mut first = 0;
        loop {
            let left = filter.limit - rows.len();
            let slice = shards.ask(shard, move |stacks| {
                stacks.with_server(|host, now| {
                    let seen = host.connections_from(first).take(SLICE);
                    slice(shard, seen, now, &filter, left)
                })
            });
            let Some(Slice { found, next, is_full }) = slice.await else {
                silent.push(shard);
                break;
            };
            rows.extend(found);
            is_cut |= is_full;
            match next {
                Some(next) if !is_full => first = next,
                _ => break,
            }
        }
        if is_cut {
            break;
        }
    }
    json!({ "connections": rows, "truncated": is_cut, "silent_shards": silent })
}

/// A part of a walk.
struct Slice {
    found: Vec<Value>,
    /// Where the walk goes on, if it is not over.
    next: Option<u32>,
    /// There are more than were asked for.
    is_full: bool,
}

fn slice<'a>(
    shard: usize,
    seen: impl Iterator<Item = LiveConnection<'a>>,
    now: Instant,
    filter: &Filter,
    left: usize,
) -> Slice {
    let mut part = Slice { found: Vec::new(), next: None, is_full: false };
    let mut count = 0;
    for connection in seen {
        count += 1;
        part.next = connection.place().checked_add(1);
        if filter.has(&connection) {
            if part.found.len() == left {
                part.is_full = true;
                break;
            }
            part.found.push(row(shard, &connection, now));
        }
    }
    if count < SLICE {
        part.next = None;
    }
    part
}

/// A connection, with times in microseconds.
fn row(shard: usize, connection: &LiveConnection<'_>, now: Instant) -> Value {
    let info = connection.info();
    let us = |time: Duration| time.as_micros() as u64;
    let ago = |then| us(now.since(then));
    json!({
        "shard": shard,
        "local": connection.local().to_string(),
        "peer": connection.remote().to_string(),
        "state": connection.state().name(),
        "orphan": connection.is_orphan(),
        "srtt_us": us(info.srtt),
        "rttvar_us": us(info.rttvar),
        "min_rtt_us": us(info.min_rtt),
        "rto_us": us(info.rto),
        "backoff": info.backoff,
        "cwnd_bytes": info.cwnd_bytes,
        "ssthresh_bytes": info.ssthresh_bytes,
        "in_flight_bytes": info.in_flight_bytes,
        "lost_bytes": info.lost_bytes,
        "sacked_bytes": info.sacked_bytes,
        "recovery": format!("{:?}", info.recovery),
        "retransmits": info.retransmits,
        "retransmitted_bytes": info.retransmitted_bytes,
        "timeouts": info.timeouts,
        "recoveries_undone": info.recoveries_undone,
        "out_of_order": info.out_of_order,
        "sent_bytes": info.sent_bytes,
        "acknowledged_bytes": info.acknowledged_bytes,
        "received_bytes": info.received_bytes,
        "send_buffered_bytes": info.send_buffered_bytes,
        "receive_buffered_bytes": info.receive_buffered_bytes,
        "pacing_bytes_per_second": info.pacing_bytes_per_second,
        "delivery_bytes_per_second": info.delivery.map(|rate| rate.bytes_per_second),
        "path_mtu_bytes": info.path_mtu_bytes,
        "last_sent_us_ago": ago(info.last_sent),
        "last_heard_us_ago": ago(info.last_heard),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_which_connections() {
        let none = Filter { state: None, peer: None, limit: LIMIT };
        let peer = |text: &str| Some(text.parse().unwrap());
        for (query, filter) in [
            ("", none),
            ("limit=10000", Filter { limit: LIMIT_MOST, ..none }),
            ("state=fin-wait-1", Filter { state: Some(State::FinWait1), ..none }),
            ("peer=10.0.0.1", Filter { peer: peer("10.0.0.1/32"), ..none }),
            ("peer=%5Bfd00%3A%3A1%5D%3A80", Filter { peer: peer("[fd00::1]:80"), ..none }),
            (
                "peer=10.0.0.0/8&limit=1&state=LISTEN",
                Filter { state: Some(State::Listen), peer: peer("10.0.0.0/8"), limit: 1 },
            ),
        ] {
            assert_eq!(Filter::parse(query), Ok(filter), "{query}");
        }
        for (query, part) in [
            ("limit=0", "limit=0: give 1 to 10000"),
            ("limit=10001", "limit=10001:"),
            ("limit", "limit=:"),
            ("state=open", "state=open: give one of CLOSED, LISTEN,"),
            ("peer=here", "peer=here: give an address"),
            ("port=80", "port: give state, peer or limit"),
        ] {
            let error = Filter::parse(query).unwrap_err();
            assert!(error.starts_with(part), "{query}: {error}");
        }
    }
}
