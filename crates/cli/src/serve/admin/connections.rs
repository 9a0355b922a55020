//! `/connections`: the sockets of every shard, with what the stack knows of each.

use std::net::SocketAddr;
use std::time::Duration;

use lightwait_core::host::{
    ConnectionDetail, HalfOpenInfo, ListenerInfo, LiveConnection, RecordInfo, Socket, SocketPlace,
};
use lightwait_core::tcp::State;
use lightwait_core::tcp::time_wait::negotiate::Holder;
use lightwait_core::tcp::timers::Timer;
use lightwait_core::{ConnectionId, Instant};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::questions::Shards;
use crate::filter::{Filter, States};
use crate::serve::Stacks;

/// Places that a shard looks at for one question, and sockets that it finds: that takes it less
/// than 0.1 ms, also with a million connections (`bench look`).
const PLACES: usize = 1024;
const FOUND: usize = 128;
/// Sockets in an answer, unless the request says how many.
const LIMIT: usize = 100;
/// Sockets in an answer at most.
pub(crate) const LIMIT_MOST: usize = 10_000;

/// Which sockets are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) filter: Filter,
    family: Family,
    limit: usize,
    from: Place,
}

/// The IP versions that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Family {
    #[default]
    Both,
    Ipv4,
    Ipv6,
}

impl Family {
    fn has(self, end: SocketAddr) -> bool {
        match self {
            Family::Both => true,
            Family::Ipv4 => end.is_ipv4(),
            Family::Ipv6 => end.is_ipv6(),
        }
    }
}

/// Where a walk over all shards begins, or goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    shard: usize,
    place: SocketPlace,
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        let (shard, bits) = text.split_once('-')?;
        let bits = u64::from_str_radix(bits, 16).ok()?;
        Some(Place { shard: shard.parse().ok()?, place: SocketPlace::from_bits(bits) })
    }

    fn text(self) -> String {
        format!("{}-{:x}", self.shard, self.place.to_bits())
    }
}

/// The parts of a request's query, decoded.
pub(super) fn parts(query: &str) -> impl Iterator<Item = (&str, String)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        // A form has `+` for a space; no word of ours has a plus.
        let value = value.replace('+', " ");
        (key, percent_decode_str(&value).decode_utf8_lossy().into_owned())
    })
}

impl Query {
    /// Reads the query of a request's target, or says which part of it is wrong.
    pub(super) fn parse(query: &str) -> Result<Query, String> {
        let (mut limit, mut from, mut family) = (LIMIT, Place::default(), Family::Both);
        let (mut state, mut peer, mut filter) = (None, None, None);
        for (key, value) in parts(query) {
            match key {
                "state" => state = Some(value),
                "peer" => peer = Some(value),
                "filter" => filter = Some(value),
                "family" => {
                    family = match &value[..] {
                        "inet" => Family::Ipv4,
                        "inet6" => Family::Ipv6,
                        _ => return Err(format!("family={value}: give inet or inet6")),
                    };
                }
                "limit" => {
                    let given = value.parse().ok().filter(|it| (1..=LIMIT_MOST).contains(it));
                    limit =
                        given.ok_or_else(|| format!("limit={value}: give 1 to {LIMIT_MOST}"))?;
                }
                "from" => {
                    let refuse = || format!("from={value}: give what `next` of an answer says");
                    from = Place::parse(&value).ok_or_else(refuse)?;
                }
                _ => {
                    return Err(format!("{key}: give state, peer, filter, family, limit or from"));
                }
            }
        }
        let usual = match &state {
            Some(name) => States::named(name).map_err(|error| format!("state={name}: {error}"))?,
            None => States::USUAL,
        };
        let text = filter.unwrap_or_default();
        let mut filter =
            Filter::parse(&text, usual).map_err(|error| format!("filter={text}: {error}"))?;
        if let Some(peer) = peer {
            let ends = Filter::parse(&format!("dst {peer}"), usual);
            let both = ends.and_then(|ends| filter.and(&ends));
            filter = both.map_err(|error| format!("peer={peer}: {error}"))?;
        }
        Ok(Query { filter, family, limit, from })
    }
}

/// The sockets that `query` asks for, shard by shard, and where the next answer goes on. The walk
/// sees each socket that stays. A shard that does not answer has none.
pub(super) async fn list(shards: &Shards, query: Query) -> Value {
    let Query { filter, family, limit, from } = query;
    let (mut rows, mut silent, mut next) = (Vec::new(), Vec::new(), None);
    let mut at = Some(from).filter(|from| from.shard < shards.count());
    while let Some(Place { shard, place }) = at {
        let left = limit - rows.len();
        let filter = filter.clone();
        // One more says whether that is all.
        let most = FOUND.min(left + 1);
        let look = move |stacks: &Stacks| look(stacks, (&filter, family), place, most);
        let following = match shards.ask(shard, look).await {
            Some(Slice { now, found, next: following }) => {
                rows.extend(found.iter().take(left).map(|(_, found)| row(shard, found, now)));
                if let Some((place, _)) = found.get(left) {
                    next = Some(Place { shard, place: *place }.text());
                    break;
                }
                following
            }
            None => {
                silent.push(shard);
                None
            }
        };
        let beyond = Place { shard: shard + 1, ..Place::default() };
        at = match following {
            Some(place) => Some(Place { shard, place }),
            None => Some(beyond).filter(|beyond| beyond.shard < shards.count()),
        };
    }
    json!({
        "connections": rows,
        "truncated": next.is_some(),
        "next": next,
        "silent_shards": silent,
    })
}

/// A part of a walk.
struct Slice {
    now: Instant,
    /// Each with its place.
    found: Vec<(SocketPlace, Found)>,
    /// Where the walk goes on, if it is not over.
    next: Option<SocketPlace>,
}

/// A socket, as it was when the shard was asked.
enum Found {
    Listener(ListenerInfo),
    HalfOpen(HalfOpenInfo),
    Connection(Box<Connection>),
    Record(RecordInfo),
}

/// A connection, as it was when it was looked at.
#[derive(Clone)]
pub(super) struct Connection {
    ends: [SocketAddr; 2],
    id: ConnectionId,
    is_orphan: bool,
    /// The client behind the bridge.
    client: Option<SocketAddr>,
    pub(super) detail: ConnectionDetail,
}

impl Connection {
    /// What there is to tell of a connection.
    pub(super) fn of(connection: LiveConnection<'_>, now: Instant) -> Connection {
        Connection {
            ends: [connection.local(), connection.remote()],
            id: connection.id(),
            is_orphan: connection.is_orphan(),
            client: None,
            detail: connection.detail(now),
        }
    }

    /// Looks for the client that a bridge stands for, while its connection is relayed.
    pub(super) fn find_client(&mut self, stacks: &Stacks) {
        self.client = self.client.or_else(|| stacks.client_behind(self.ends[1]));
    }
}

/// What a shard is asked for: its share of the walk.
fn look(
    stacks: &Stacks,
    (filter, family): (&Filter, Family),
    first: SocketPlace,
    most: usize,
) -> Slice {
    stacks.with_server(|host, now| {
        let mut slice = Slice { now, found: Vec::new(), next: None };
        let mut following = Some(first);
        for (next, socket) in host.sockets_from(first).take(PLACES) {
            let place = following.unwrap_or(first);
            (following, slice.next) = (next, next);
            let Some(socket) = socket else { continue };
            let is_asked = family.has(socket.remote().unwrap_or(socket.local()));
            if !is_asked || !filter.has(socket.state(), socket.local(), socket.remote()) {
                continue;
            }
            let found = match socket {
                Socket::Listener(info) => Found::Listener(info),
                Socket::HalfOpen(info) => Found::HalfOpen(info),
                Socket::Record(info) => Found::Record(info),
                Socket::Connection(it) => {
                    let mut connection = Connection::of(it, now);
                    connection.find_client(stacks);
                    Found::Connection(Box::new(connection))
                }
            };
            slice.found.push((place, found));
            if slice.found.len() == most {
                break;
            }
        }
        slice
    })
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// A socket, with times in microseconds.
fn row(shard: usize, found: &Found, now: Instant) -> Value {
    match found {
        Found::Listener(listener) => json!({
            "kind": "listener",
            "shard": shard,
            "local": listener.local.to_string(),
            "peer": null,
            "state": State::Listen.name(),
            "waiting": listener.waiting,
            "backlog": listener.backlog,
        }),
        Found::HalfOpen(half_open) => json!({
            "kind": "half-open",
            "shard": shard,
            "local": half_open.local.to_string(),
            "peer": half_open.remote.to_string(),
            "state": State::SynReceived.name(),
            "attempts": half_open.attempts,
            "timer": { "name": "syn-ack", "us_left": us(half_open.due.since(now)) },
        }),
        Found::Record(record) => json!({
            "kind": "record",
            "shard": shard,
            "local": record.local.to_string(),
            "peer": record.remote.to_string(),
            "state": record.state.name(),
            "us_since": us(now.since(record.entered)),
            "timer": {
                "name": record_timer(record.state),
                "us_left": us(record.expires.since(now)),
            },
            "holder": record_holder(record),
        }),
        Found::Connection(connection) => Value::Object(of_connection(shard, connection, now)),
    }
}

fn record_timer(state: State) -> &'static str {
    if state == State::TimeWait { "time-wait" } else { "fin-wait-2" }
}

/// Which end holds TIME-WAIT, or will.
fn record_holder(record: &RecordInfo) -> &'static str {
    match (record.state, record.is_agreed) {
        (_, false) => "closer",
        (State::TimeWait, true) => "ourselves",
        (_, true) => "peer",
    }
}

fn holder(holder: Holder) -> &'static str {
    match holder {
        Holder::Closer => "closer",
        Holder::Unproven => "unproven",
        Holder::Ourselves => "ourselves",
        Holder::Peer => "peer",
    }
}

fn timer(timer: Timer) -> &'static str {
    match timer {
        Timer::Retransmit => "retransmit",
        Timer::DelayedAck => "delayed-ack",
        Timer::Persist => "persist",
        Timer::KeepAlive => "keepalive",
        Timer::FinWait2 => "fin-wait-2",
        Timer::Lifetime => "lifetime",
        Timer::Rest => "rest",
    }
}

/// A connection as JSON.
pub(super) fn of_connection(
    shard: usize,
    connection: &Connection,
    now: Instant,
) -> Map<String, Value> {
    let ConnectionDetail { info, send_limit_bytes, send_pages, .. } = &connection.detail;
    let [local, peer] = connection.ends.map(|end| end.to_string());
    let ago = |then| us(now.since(then));
    let next = connection.detail.timer;
    let next = next.map(|(it, at)| json!({ "name": timer(it), "us_left": us(at.since(now)) }));
    let whose = json!({
        "kind": "connection",
        "shard": shard,
        // A number of the place, and one of those that were there.
        "id": format!("{:?}", connection.id).trim_start_matches('#'),
        "local": local,
        "peer": peer,
        "client": connection.client.map(|client| client.to_string()),
        "state": info.state.name(),
        "orphan": connection.is_orphan,
        "at_rest": connection.detail.is_at_rest,
        "holder": holder(info.holder),
        "timer": next,
    });
    let buffers = json!({
        "send_buffered_bytes": info.send_buffered_bytes,
        "send_limit_bytes": send_limit_bytes,
        "send_pages": send_pages,
        "unsent_bytes": info.unsent_bytes,
        "receive_buffered_bytes": info.receive_buffered_bytes,
        "receive_limit_bytes": info.receive_limit_bytes,
        "receive_window_bytes": info.receive_window_bytes,
        "peer_window_bytes": info.peer_window_bytes,
    });
    let path = json!({
        "srtt_us": us(info.srtt),
        "rttvar_us": us(info.rttvar),
        "min_rtt_us": us(info.min_rtt),
        "rto_us": us(info.rto),
        "receiver_rtt_us": us(info.receiver_rtt),
        "backoff": info.backoff,
        "mss_bytes": info.mss_bytes,
        "announced_mss_bytes": info.announced_mss_bytes,
        "peer_segment_bytes": info.peer_segment_bytes,
        "path_mtu_bytes": info.path_mtu_bytes,
        "timestamps": info.timestamps,
        "sack": info.sack,
        "ecn": info.ecn,
        "shifts": [info.shifts.0, info.shifts.1],
        "last_sent_us_ago": ago(info.last_sent),
        "last_heard_us_ago": ago(info.last_heard),
    });
    let mut all = Map::new();
    for part in [whose, buffers, path, congestion(&connection.detail)] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    all
}

fn congestion(detail: &ConnectionDetail) -> Value {
    let info = &detail.info;
    json!({
        "congestion": detail.congestion.name(),
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
        "reorderings": info.reorderings,
        "out_of_order": info.out_of_order,
        "sent_bytes": info.sent_bytes,
        "acknowledged_bytes": info.acknowledged_bytes,
        "received_bytes": info.received_bytes,
        "pacing_bytes_per_second": info.pacing_bytes_per_second,
        "delivery_bytes_per_second": info.delivery.map(|rate| rate.bytes_per_second),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_which_sockets() {
        let of = |text: &str| Query {
            filter: Filter::parse(text, States::USUAL).unwrap(),
            family: Family::Both,
            limit: LIMIT,
            from: Place::default(),
        };
        for (query, expected) in [
            ("", of("")),
            ("limit=10000", Query { limit: LIMIT_MOST, ..of("") }),
            ("state=fin-wait-1", of("state fin-wait-1")),
            ("state=all", of("state all")),
            ("peer=10.0.0.1", of("dst 10.0.0.1")),
            ("peer=%5Bfd00%3A%3A1%5D%3A80", of("dst [fd00::1]:80")),
            ("filter=dport+%3D+:80", of("dport = :80")),
            ("filter=state%20listening", of("state listening")),
            (
                "peer=10.0.0.0/8&limit=1&state=LISTEN",
                Query { limit: 1, ..of("state listening dst 10.0.0.0/8") },
            ),
            ("family=inet6", Query { family: Family::Ipv6, ..of("") }),
            ("peer=10.0.0.1&filter=sport+80", of("sport 80 and dst 10.0.0.1")),
        ] {
            assert_eq!(Query::parse(query), Ok(expected), "{query}");
        }
        let from = Place { shard: 3, place: SocketPlace::from_bits(0x2_0000_0007) };
        let query = Query::parse(&format!("from={}", from.text())).unwrap();
        assert_eq!((query.from, from.text().as_str()), (from, "3-200000007"));
    }

    #[test]
    fn what_is_wrong_in_a_query_is_said() {
        for (query, part) in [
            ("limit=0", "limit=0: give 1 to 10000"),
            ("limit=10001", "limit=10001:"),
            ("limit", "limit=:"),
            ("state=open", "state=open: there is no state \"open\": give one of closed, listen,"),
            ("peer=here", "peer=here: \"here\": give an address"),
            ("filter=dport+x", "filter=dport x: \"x\" is no port"),
            ("from=1", "from=1: give what `next`"),
            ("from=x-1", "from=x-1: give"),
            ("family=4", "family=4: give inet or inet6"),
            ("port=80", "port: give state, peer, filter, family, limit or from"),
        ] {
            let error = Query::parse(query).unwrap_err();
            assert!(error.starts_with(part), "{query}: {error}");
        }
    }
}
