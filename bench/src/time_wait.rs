//! The table of TIME-WAIT records alone: the costs to enter, look up and expire a record.
//!
//! ```text
//!   fill ─ look up, each alone ─ look up in batches ─ look up in vain ─ turn over ─ expire all
//! ```
//!
//! Tuples and their hashes are made beforehand: a host hashes each segment's tuple anyway, to find
//! its connection. Records are looked up in random order. "Alone": each look-up begins when the one
//! before it is done, as with a segment's work in between. "In batches": 32 one after the other,
//! which the processor may overlap. While records turn over, as many enter as expire, so that both
//! are measured at the full number of records. A batch of 32 may be prefetched before it enters, as
//! the host does with a burst of frames; that counts towards the cost.
//!
//! A look-up waits for memory: a line of the index, and then a record that only the line names. For
//! comparison the bench measures two bare reads: of a word among as many lines, and of a word among
//! as many records, where the first read gives the place of the second. No table of that size is
//! faster.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use lightwait_core::flow::TupleHasher;
use lightwait_core::flow::{Seq, Tuple};
use lightwait_core::tcp::connection::FinalState;
use lightwait_core::tcp::time_wait::{Distance, Holding, TimeWait};
use lightwait_core::time::Instant;
use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted, section};
use crate::sample::{Samples, tenths};

/// The operations, and their descriptions.
pub const OPERATIONS: [(&str, &str); 10] = [
    ("hash", "hash a tuple, by the key"),
    ("fill", "enter, while the table grows"),
    ("enter", "enter, while as many expire"),
    ("enter_ahead", "enter, in batches of 32 read ahead"),
    ("find", "look up, in batches of 32"),
    ("find_alone", "look up, each alone"),
    ("miss", "look up what is not there, in batches of 32"),
    ("expire", "expire, while as many enter"),
    ("read", "read two words so far apart, in batches of 32"),
    ("read_alone", "read two words so far apart, each alone"),
];

/// Records that enter, or expire, in a batch.
const BATCH: usize = 1000;
/// Records that are looked up, or prefetched, in a batch.
const TOGETHER: usize = 32;
/// Measured look-ups.
const LOOK_UPS: usize = 1 << 20;
/// 2·MSL.
const TERM: Duration = Duration::from_secs(60);

/// Memory of a table's size.
struct Memory {
    /// Each line has the number of a row.
    lines: Vec<[u32; 16]>,
    /// Each row has the size of a record.
    rows: Vec<[u32; 6]>,
}

/// The costs of operations.
#[derive(Debug)]
pub struct Costs {
    /// Records in the table.
    pub count: usize,
    /// `ns` or `instructions`.
    unit: &'static str,
    values: Vec<(&'static str, f64)>,
    /// The longest time for a single record to enter, in ns.
    pub worst_ns: f64,
}

/// The table, and the tuples that will enter it.
struct Bench {
    table: TimeWait,
    hasher: TupleHasher,
    evicted: u64,
    now: Instant,
    /// Tuples that have entered.
    entered: usize,
    between: Duration,
    samples: Samples,
    worst: Duration,
}

/// Measures with `count` records.
pub fn in_ns(count: usize) -> Costs {
    let mut bench = Bench::run(count);
    let value = |name: &'static str| (name, bench.samples.whole(name).unwrap_or(f64::NAN));
    let values = OPERATIONS.map(|(name, _)| value(name)).to_vec();
    let worst = std::mem::take(&mut bench.worst);
    Costs { count, unit: "ns", values, worst_ns: worst.as_nanos() as f64 }
}

/// Counts instructions with `count` records.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn in_instructions(count: usize) -> Result<Costs, Uncounted> {
    let mut values = Vec::new();
    for (name, _) in OPERATIONS {
        let arguments =
            ["time-wait".to_owned(), format!("--count={count}"), format!("--section={name}")];
        if let Some(value) = instructions::count(&arguments)? {
            values.push((name, value));
        }
    }
    Ok(Costs { count, unit: "instructions", values, worst_ns: 0.0 })
}

/// Runs everything once, for callgrind to count the chosen section.
pub fn sections(count: usize) {
    Bench::run(count);
}

/// A tuple for each number.
fn tuple(number: usize) -> Tuple {
    let bits = 0x0b00_0000 + (number >> 15) as u32;
    let port = 1024 + (number & 0x7fff) as u16;
    Tuple::new(([10, 0, 0, 1].into(), 80), (std::net::Ipv4Addr::from_bits(bits).into(), port))
}

const FINAL_STATE: FinalState = FinalState {
    snd_nxt: Seq(1),
    rcv_nxt: Seq(2),
    stamp: Some(3),
    stamp_offset: None,
    window: 512,
    holding: Holding::Closer,
    ack_due: false,
};

impl Bench {
    fn run(count: usize) -> Bench {
        let hasher = TupleHasher::new(&[9; 32]);
        let mut bench = Bench {
            table: TimeWait::new([TERM; 3], count + 2 * BATCH, hasher.clone()),
            hasher,
            evicted: 0,
            now: Instant::from_millis(1000),
            entered: 0,
            between: TERM / u32::try_from(count).unwrap_or(u32::MAX),
            samples: Samples::default(),
            worst: Duration::ZERO,
        };
        while bench.entered < count {
            let batch = BATCH.min(count - bench.entered);
            bench.enter("fill", batch);
        }
        bench.hash();
        bench.time_each(count);
        bench.look_up("find", 0, count, false);
        bench.look_up("find_alone", 0, count, true);
        bench.look_up("miss", 4 * count, count, false);
        bench.table.on_time(bench.now);
        let rounds = (count / BATCH).clamp(8, 400);
        for round in 0..rounds {
            bench.enter(if round % 2 == 0 { "enter" } else { "enter_ahead" }, BATCH);
            bench.expire();
        }
        assert!(bench.table.len().abs_diff(count) < BATCH, "as many enter as expire");
        assert_eq!(bench.evicted, 0);
        bench.table = TimeWait::new([TERM; 3], count, bench.hasher.clone());
        bench.read(count);
        bench
    }

    /// The hashes of tuples from `first` on.
    fn hashed(&self, first: usize, count: usize) -> Vec<(u64, Tuple)> {
        (first..first + count).map(tuple).map(|tuple| (self.hasher.hash(&tuple), tuple)).collect()
    }

    /// Hashes once, as a host does for each segment; the other operations use the result.
    fn hash(&mut self) {
        let tuples: Vec<Tuple> = (0..BATCH).map(tuple).collect();
        let clock = Clock::now();
        section("hash", BATCH, || {
            for tuple in &tuples {
                black_box(self.hasher.hash(tuple));
            }
        });
        self.samples.add("hash", clock.elapsed().as_nanos() as f64 / BATCH as f64);
    }

    fn enter(&mut self, name: &'static str, count: usize) {
        let tuples = self.hashed(self.entered, count);
        let Bench { table, evicted, now, between, samples, .. } = self;
        let times = (0..count as u32).map(|place| *now + *between * place);
        let entering: Vec<_> = tuples.into_iter().zip(times).collect();
        *now = *now + *between * count as u32;
        let ahead = if name == "enter_ahead" { TOGETHER } else { 0 };
        let clock = Clock::now();
        section(name, count, || {
            for batch in entering.chunks(TOGETHER) {
                for ((hash, tuple), _) in &batch[..ahead.min(batch.len())] {
                    table.prefetch(*hash, tuple);
                }
                for ((hash, tuple), now) in batch {
                    *evicted += table.enter(*hash, tuple, &FINAL_STATE, Distance::Far, *now);
                }
            }
        });
        samples.add(name, clock.elapsed().as_nanos() as f64 / count as f64);
        self.entered += count;
    }

    /// Finds the longest time to enter a record on the way to `count`, in a separate table. It must
    /// occur again at the same record, since the machine's interrupts are random.
    fn time_each(&mut self, count: usize) {
        let mut times = vec![u32::MAX; count];
        for _ in 0..2 {
            let mut table = TimeWait::new([TERM; 3], count, self.hasher.clone());
            let mut now = Instant::from_millis(1000);
            for (number, least) in times.iter_mut().enumerate() {
                let tuple = tuple(number);
                let hash = self.hasher.hash(&tuple);
                let clock = Clock::now();
                self.evicted += table.enter(hash, &tuple, &FINAL_STATE, Distance::Far, now);
                *least = (*least).min(clock.elapsed().as_nanos() as u32);
                now = now + self.between;
            }
        }
        let worst = times.iter().max().copied().unwrap_or_default();
        self.worst = Duration::from_nanos(worst.into());
    }

    /// Looks up tuples among `count` from `first` on, in random order.
    fn look_up(&mut self, name: &'static str, first: usize, count: usize, alone: bool) {
        let mut draw = drawn();
        let mut draw = || first + draw() % count;
        let looked_up = LOOK_UPS.min(4 * count);
        for _ in 0..looked_up / BATCH {
            let tuples: Vec<(u64, Tuple)> = (0..BATCH.next_multiple_of(TOGETHER))
                .map(|_| tuple(draw()))
                .map(|tuple| (self.hasher.hash(&tuple), tuple))
                .collect();
            let (table, now) = (&self.table, self.now - TERM / 2);
            let clock = Clock::now();
            let found = section(name, tuples.len(), || {
                if alone { find_alone(table, &tuples, now) } else { find(table, &tuples, now) }
            });
            self.samples.add(name, clock.elapsed().as_nanos() as f64 / tuples.len() as f64);
            assert_eq!(found, if name == "miss" { 0 } else { tuples.len() });
        }
    }

    /// Reads bare memory of the size of a table with `count` records, at another place each time.
    fn read(&mut self, count: usize) {
        let memory = Memory::new(count);
        let mut draw = drawn();
        for _ in 0..LOOK_UPS.min(4 * count) / BATCH {
            self.read_with("read", Memory::read, &memory, &mut draw);
            self.read_with("read_alone", Memory::read_alone, &memory, &mut draw);
        }
    }

    fn read_with(
        &mut self,
        name: &'static str,
        read: fn(&Memory, &[usize]) -> usize,
        memory: &Memory,
        draw: &mut impl FnMut() -> usize,
    ) {
        let count = BATCH.next_multiple_of(TOGETHER);
        let places: Vec<usize> = (0..count).map(|_| draw() % memory.lines.len()).collect();
        let clock = Clock::now();
        let read = section(name, count, || read(memory, &places));
        self.samples.add(name, clock.elapsed().as_nanos() as f64 / count as f64);
        assert_eq!(read, count);
    }

    /// Lets records expire whose time is over: about as many as have entered since.
    fn expire(&mut self) {
        let Bench { table, samples, now, .. } = self;
        let len = table.len();
        let clock = Clock::now();
        section("expire", BATCH, || {
            table.on_time(*now);
        });
        let ns = clock.elapsed().as_nanos() as f64;
        let expired = len - table.len();
        assert!(expired.abs_diff(BATCH) < BATCH / 2, "{expired} have expired");
        samples.add("expire", ns / expired as f64);
    }
}

impl Memory {
    /// Memory of the size of an index and its records, all of it written.
    fn new(count: usize) -> Memory {
        let mut draw = drawn();
        let line = |_| [u32::try_from(draw() % count).unwrap_or(u32::MAX); 16];
        Memory { lines: (0..count.div_ceil(16)).map(line).collect(), rows: vec![[1; 6]; count] }
    }

    /// The number of rows read, batch by batch.
    #[inline(never)]
    fn read(&self, places: &[usize]) -> usize {
        let mut read = 0;
        for batch in places.chunks(TOGETHER) {
            let rows = batch.iter().map(|place| self.rows[self.lines[*place][0] as usize][0]);
            read += rows.map(|row| row as usize).sum::<usize>();
            black_box(read);
        }
        read
    }

    /// The number of rows read, one after the other: the next line depends on the row.
    #[inline(never)]
    fn read_alone(&self, places: &[usize]) -> usize {
        let (mut read, mut next) = (0, 0);
        while let Some(place) = places.get(next) {
            let row = self.rows[self.lines[*place][0] as usize][0] as usize;
            read += row;
            next += black_box(row).max(1);
        }
        read
    }
}

/// Random numbers, from a fixed seed.
fn drawn() -> impl FnMut() -> usize {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    }
}

/// The number of records found, batch by batch.
#[inline(never)]
fn find(table: &TimeWait, tuples: &[(u64, Tuple)], now: Instant) -> usize {
    let mut found = 0;
    for batch in tuples.chunks(TOGETHER) {
        table.find_batch(batch, now, |record| found += usize::from(record.is_some()));
        black_box(found);
    }
    found
}

/// The number of records found, one after the other: the next one depends on the last.
#[inline(never)]
fn find_alone(table: &TimeWait, tuples: &[(u64, Tuple)], now: Instant) -> usize {
    let (mut found, mut next) = (0, 0);
    while let Some((hash, tuple)) = tuples.get(next) {
        let is_there = usize::from(table.find(*hash, tuple, now).is_some());
        found += is_there;
        next += black_box(is_there).max(1);
    }
    found
}

impl Costs {
    /// The cost of an operation.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == name).map(|(_, value)| *value)
    }

    /// `ns` or `instructions`.
    pub fn unit(&self) -> &'static str {
        self.unit
    }

    /// The costs as entries of a JSON object.
    pub fn json(&self) -> Map<String, Value> {
        let entry = |(name, value): &(&str, f64)| {
            (format!("{}_per_{name}", self.unit), json!(tenths(*value)))
        };
        let mut object: Map<String, Value> = self.values.iter().map(entry).collect();
        object.insert("count".to_owned(), json!(self.count));
        if self.worst_ns > 0.0 {
            object.insert("worst_ns_to_enter".to_owned(), json!(self.worst_ns));
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_measured() {
        let costs = in_ns(20_000);
        for (name, _) in OPERATIONS {
            assert!(costs.value(name).is_some_and(|ns| ns > 0.0), "{name}: {costs:?}");
        }
        assert_eq!(costs.json().len(), OPERATIONS.len() + 2);
    }
}
