//! What a graph shows, in milliseconds and in bytes from the first sequence number.

use super::Side;
use crate::trace::Trace;

/// A segment of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) ms: f64,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) has_text: bool,
    /// It has SYN or FIN.
    pub(super) is_control: bool,
    pub(super) again: bool,
}

/// A segment of the other end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ack {
    pub(super) ms: f64,
    pub(super) acked: i64,
    /// One past the last number that its window allows.
    pub(super) edge: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    pub(super) first_ms: f64,
    pub(super) last_ms: f64,
    /// One past the highest number sent.
    pub(super) highest: i64,
    pub(super) segments: Vec<Bar>,
    pub(super) acks: Vec<Ack>,
    pub(super) sacks: Vec<(f64, i64, i64)>,
    /// From when to when, and why.
    pub(super) recoveries: Vec<(f64, f64, String)>,
    pub(super) losses: Vec<(f64, String)>,
}

/// Counts from the first sequence number, beyond 4 GiB as well.
struct Offsets {
    last: i64,
    at: u32,
}

impl Offsets {
    fn of(&mut self, seq: u32) -> i64 {
        let offset = self.last + i64::from(seq.wrapping_sub(self.at) as i32);
        if offset > self.last {
            (self.last, self.at) = (offset, seq);
        }
        offset
    }
}

impl Points {
    /// `None` if nothing went in that direction.
    pub(super) fn of(trace: &Trace, side: Side) -> Option<Points> {
        let is_sent = side == Side::Sent;
        let mut offsets = Offsets { last: 0, at: trace.first(is_sent)? };
        let mut points = Points { first_ms: f64::INFINITY, ..Points::default() };
        let mut seen_to = None;
        for (ms, it) in trace.segments() {
            points.first_ms = points.first_ms.min(ms);
            points.last_ms = points.last_ms.max(ms);
            if it.is_sent == is_sent {
                let start = offsets.of(it.seq);
                let end = start + i64::from(it.numbers());
                if it.numbers() == 0 {
                    continue;
                }
                // What came twice is not marked in the log: it tells of what left.
                let again = it.again.is_some() || seen_to.is_some_and(|to| end <= to);
                seen_to = Some(seen_to.map_or(end, |to: i64| to.max(end)));
                let is_control = it.flags.contains(['S', 'F']);
                let has_text = it.len > 0;
                points.segments.push(Bar { ms, start, end, has_text, is_control, again });
                points.highest = points.highest.max(end);
            } else if let Some(ack) = it.ack {
                let acked = offsets.of(ack);
                points.acks.push(Ack { ms, acked, edge: acked + i64::from(it.window) });
                let blocks = it.sack.iter();
                let blocks = blocks.map(|(start, end)| (ms, offsets.of(*start), offsets.of(*end)));
                points.sacks.extend(blocks);
            }
        }
        let acked = points.acks.iter().map(|it| it.acked).max().unwrap_or_default();
        points.highest = points.highest.max(acked);
        if is_sent {
            points.take_facts(trace);
        }
        (!points.segments.is_empty()).then_some(points)
    }

    fn take_facts(&mut self, trace: &Trace) {
        let mut began: Option<(f64, String)> = None;
        for (ms, fact) in trace.facts() {
            let field = |key: &str| fact.fields.get(key).cloned().unwrap_or_default();
            match fact.name.as_str() {
                "recovery_state_updated" => {
                    if let Some((begin, why)) = began.take() {
                        self.recoveries.push((begin, ms, why));
                    }
                    let new = field("new");
                    began = (new != "open").then_some((ms, new));
                }
                "loss_detected" => {
                    let (bytes, detector) = (field("bytes"), field("detector"));
                    self.losses.push((ms, format!("{bytes} bytes held lost, by {detector}")));
                }
                _ => {}
            }
        }
        if let Some((begin, why)) = began {
            self.recoveries.push((begin, self.last_ms, why));
        }
    }

    /// The highest number that the graph shows: all that was sent, and the window if it is not much
    /// larger.
    pub(super) fn top(&self) -> i64 {
        let edge = self.acks.iter().map(|it| it.edge).max().unwrap_or_default();
        let above = self.highest + self.highest / 3;
        edge.clamp(self.highest + self.highest / 20, above.max(1))
    }
}
