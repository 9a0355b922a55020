//! What each flow got of a link: packets, bytes, losses, and how long its packets took.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lightwait_core::Instant;
use lightwait_netem::Flow;

/// Flows that are counted one by one, at most. Later ones are counted together.
const MOST: usize = 1024;

/// The longest delay that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// All flows of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows {
    by_name: HashMap<Flow, Record>,
    /// Those beyond [`MOST`], and frames without an IP packet.
    other: Record,
}

#[derive(Clone, Debug, Default)]
struct Record {
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
    lost: u64,
    /// When its first packet came in, and the last one left.
    began: Option<Instant>,
    ended: Option<Instant>,
    /// Delays in µs. Boxed: most flows of a load are short.
    delays: Option<Box<Histogram<u64>>>,
}

/// What one flow got of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSnapshot {
    /// Its name, as in `tcp 10.0.0.1:80 > 10.0.0.2:4000`; `other` for all that have none.
    pub flow: String,
    /// Packets that came in.
    pub packets_in: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Packets that left, duplicates included.
    pub packets_out: u64,
    /// Bytes that left.
    pub bytes_out: u64,
    /// Packets that the link dropped or lost.
    pub lost: u64,
    /// Bits that left a second, from its first packet in to its last one out; 0 for a moment.
    pub bits_per_second: f64,
    /// The median, the 99th percentile and the maximum of the time from a packet's coming in to the
    /// time at which it is due; `None` without packets.
    pub delay: Option<[Duration; 3]>,
}

impl Flows {
    pub(crate) fn on_in(&mut self, now: Instant, frame: &[u8]) {
        let record = self.of(frame);
        record.packets_in += 1;
        record.bytes_in += frame.len() as u64;
        record.began.get_or_insert(now);
    }

    pub(crate) fn on_out(&mut self, now: Instant, delay: Duration, frame: &[u8]) {
        let record = self.of(frame);
        record.packets_out += 1;
        record.bytes_out += frame.len() as u64;
        record.ended = Some(now);
        let delays = record.delays.get_or_insert_with(|| Box::new(delays()));
        delays.saturating_record(delay.as_micros() as u64);
    }

    pub(crate) fn on_lost(&mut self, frame: &[u8]) {
        self.of(frame).lost += 1;
    }

    fn of(&mut self, frame: &[u8]) -> &mut Record {
        let Flows { by_name, other } = self;
        match Flow::of(frame) {
            Some(flow) if by_name.len() < MOST || by_name.contains_key(&flow) => {
                by_name.entry(flow).or_default()
            }
            _ => other,
        }
    }

    /// All flows, those first that got most bytes.
    pub(crate) fn largest(&self) -> Vec<FlowSnapshot> {
        let named = self.by_name.iter().map(|(flow, record)| record.snapshot(flow.to_string()));
        let mut all: Vec<FlowSnapshot> = named.collect();
        all.sort_by(|a, b| (b.bytes_out, &a.flow).cmp(&(a.bytes_out, &b.flow)));
        if self.other.packets_in + self.other.packets_out > 0 {
            all.push(self.other.snapshot("other".to_owned()));
        }
        all
    }
}

impl Record {
    fn snapshot(&self, flow: String) -> FlowSnapshot {
        let lasted = self.began.zip(self.ended).map(|(began, ended)| ended.since(began));
        let seconds = lasted.unwrap_or_default().as_secs_f64();
        let is_known = seconds > 0.0;
        let at = |delays: &Histogram<u64>, percent| {
            Duration::from_micros(delays.value_at_percentile(percent))
        };
        FlowSnapshot {
            flow,
            packets_in: self.packets_in,
            bytes_in: self.bytes_in,
            packets_out: self.packets_out,
            bytes_out: self.bytes_out,
            lost: self.lost,
            bits_per_second: if is_known { self.bytes_out as f64 * 8.0 / seconds } else { 0.0 },
            delay: self.delays.as_ref().map(|all| [50.0, 99.0, 100.0].map(|part| at(all, part))),
        }
    }
}

fn delays() -> Histogram<u64> {
    let most = LONGEST.as_micros() as u64;
    Histogram::new_with_bounds(1, most, 2).expect("bounds and digits are among those allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 frame of UDP from that port.
    fn frame(port: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 28];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[14 + 9] = 17;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn each_flow_has_its_own_rate_loss_and_delay() {
        let mut flows = Flows::default();
        let ms = Duration::from_millis;
        for n in 0..100 {
            let now = Instant::from_millis(n * 10);
            flows.on_in(now, &frame(1));
            if n % 4 == 0 {
                flows.on_lost(&frame(1));
            } else {
                flows.on_out(now + ms(10), ms(n), &frame(1));
            }
        }
        flows.on_in(Instant::from_millis(5), &frame(2));
        flows.on_out(Instant::from_millis(5), ms(0), &frame(2));
        let all = flows.largest();
        let one = &all[0];
        assert_eq!(
            (&*one.flow, one.packets_in, one.packets_out, one.lost),
            ("udp 0.0.0.0:1 > 0.0.0.0:0", 100, 75, 25)
        );
        assert_eq!(one.bits_per_second, 75.0 * 42.0 * 8.0);
        let [median, p99, max] = one.delay.unwrap().map(|delay| delay.as_secs_f64() * 1e3);
        assert!(
            (median - 50.0).abs() < 1.0 && (p99 - 99.0).abs() < 1.0 && (max - 99.0).abs() < 1.0
        );
        assert_eq!((all[1].bits_per_second, all.len()), (0.0, 2), "a moment has no rate");
    }

    #[test]
    fn flows_beyond_the_bound_are_counted_together() {
        let mut flows = Flows::default();
        for port in 0..MOST as u16 + 5 {
            flows.on_in(Instant::ZERO, &frame(port));
        }
        flows.on_in(Instant::ZERO, b"no packet");
        let all = flows.largest();
        assert_eq!((all.len(), all[MOST].packets_in, &*all[MOST].flow), (MOST + 1, 6, "other"));
    }
}
