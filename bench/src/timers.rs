//! Timers of connections: our schemes and others, with one timer for each of N connections in
//! random order.

mod connection;
mod crates;
mod host_turn;
mod ours;
mod passes;
mod queues;
mod scheme;

use std::collections::BTreeMap;

pub use host_turn::idle_host;

use clap::ValueEnum;
use lightwait_core::config::Scheme;
use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::Samples;

/// A scheme to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Which {
    /// Ours: checked inline, with one lazily re-armed entry a connection.
    Inline,
    /// Ours: the eager hierarchical wheel.
    Wheel,
    /// 4.4BSD's: two ticks scan every connection.
    Scan,
    /// Aron and Druschel's: two ticks scan a list with TIME-WAIT at its end.
    OrderedList,
    /// tokio-util's DelayQueue.
    DelayQueue,
    /// hierarchical_hash_wheel_timer's cancellable wheel.
    HierarchicalHashWheelTimer,
    /// Its plain wheel, cancelled lazily.
    HierarchicalHashWheelTimerLazy,
    /// std's BinaryHeap, cancelled lazily.
    BinaryHeap,
    /// std's B-tree.
    Btree,
}

impl Which {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The host's own scheme, if it is one.
    fn of_host(self) -> Option<Scheme> {
        match self {
            Which::Inline => Some(Scheme::Inline),
            Which::Wheel => Some(Scheme::Wheel),
            Which::Scan => Some(Scheme::Scan),
            Which::OrderedList => Some(Scheme::OrderedList),
            _ => None,
        }
    }

    fn times(self, count: usize, repetitions: usize) -> Samples {
        let mut samples = self.times_alone(count, repetitions);
        if let Some(scheme) = self.of_host() {
            host_turn::time(scheme, count, repetitions, &mut samples);
        }
        samples
    }

    /// Times the scheme without a host.
    fn times_alone(self, count: usize, repetitions: usize) -> Samples {
        match self {
            Which::Inline => passes::times::<ours::Ours<0>>(count, repetitions),
            Which::Wheel => passes::times::<ours::Ours<1>>(count, repetitions),
            Which::Scan => passes::times::<ours::Ours<2>>(count, repetitions),
            Which::OrderedList => passes::times::<ours::Ours<3>>(count, repetitions),
            Which::DelayQueue => passes::times::<crates::Delays>(count, repetitions),
            Which::HierarchicalHashWheelTimer => {
                passes::times::<crates::HashWheel>(count, repetitions)
            }
            Which::HierarchicalHashWheelTimerLazy => {
                passes::times::<crates::LazyWheel>(count, repetitions)
            }
            Which::BinaryHeap => passes::times::<queues::Heap>(count, repetitions),
            Which::Btree => passes::times::<queues::Tree>(count, repetitions),
        }
    }

    /// Runs one repetition, for callgrind to count `section` in it.
    pub fn sections(self, section: &str, connections: usize) {
        instructions::choose(section);
        match self.of_host().filter(|_| section == host_turn::NAME) {
            Some(scheme) => host_turn::instructions(scheme, connections),
            None => self.sections_alone(connections),
        }
    }

    fn sections_alone(self, connections: usize) {
        match self {
            Which::Inline => passes::instructions::<ours::Ours<0>>(connections),
            Which::Wheel => passes::instructions::<ours::Ours<1>>(connections),
            Which::Scan => passes::instructions::<ours::Ours<2>>(connections),
            Which::OrderedList => passes::instructions::<ours::Ours<3>>(connections),
            Which::DelayQueue => passes::instructions::<crates::Delays>(connections),
            Which::HierarchicalHashWheelTimer => {
                passes::instructions::<crates::HashWheel>(connections);
            }
            Which::HierarchicalHashWheelTimerLazy => {
                passes::instructions::<crates::LazyWheel>(connections);
            }
            Which::BinaryHeap => passes::instructions::<queues::Heap>(connections),
            Which::Btree => passes::instructions::<queues::Tree>(connections),
        }
    }
}

/// The reported operations, each with the pass that measures its surrounding work.
pub const OPERATIONS: [(&str, Option<&str>); 10] = [
    ("set", Some(passes::TOUCH)),
    ("cancel", Some(passes::TOUCH)),
    ("rearm", Some(passes::TOUCH)),
    ("earlier", Some(passes::TOUCH)),
    ("birth", Some(passes::TOUCH)),
    ("death", Some(passes::TOUCH)),
    ("expiry", Some("touch_expired")),
    ("lone_expiry", None),
    ("idle_turn", None),
    (host_turn::NAME, None),
];

/// Operations of a kind in a run, at least, for steady medians.
const MEASURED: usize = 3_000_000;
/// Repetitions, at least: each with another phase of the clock against its ticks.
const REPETITIONS: usize = 5;

/// The costs of a scheme.
#[derive(Clone, Debug)]
pub struct Costs {
    /// The scheme.
    pub scheme: Which,
    /// The number of connections, each with its timer set.
    pub connections: usize,
    /// Values by name, reported under `ns_per_…` or `instructions_per_…`. With `_whole` they
    /// include the touching of the connection.
    pub values: Vec<(String, f64)>,
}

impl Costs {
    /// Measures ns.
    pub fn in_ns(scheme: Which, connections: usize) -> Costs {
        let repetitions = MEASURED.div_ceil(connections.max(1)).max(REPETITIONS);
        Costs::repeated(scheme, connections, repetitions)
    }

    fn repeated(scheme: Which, connections: usize, repetitions: usize) -> Costs {
        let samples = scheme.times(connections, repetitions);
        let net = |name: &str| samples.net(name);
        Costs::of(scheme, connections, "ns_per", |name| samples.whole(name), net)
    }

    /// Counts instructions, by running this program once more under callgrind.
    ///
    /// # Errors
    /// If callgrind is not there, or fails.
    pub fn in_instructions(scheme: Which, connections: usize) -> Result<Costs, Uncounted> {
        let arguments = [
            "timers".to_owned(),
            format!("--scheme={}", scheme.name()),
            format!("--connections={connections}"),
        ];
        let passes = OPERATIONS.map(|(name, surrounding)| [Some(name), surrounding]);
        let mut counts = BTreeMap::new();
        for pass in passes.into_iter().flatten().flatten() {
            if !counts.contains_key(pass) {
                let section = [arguments.as_slice(), &[format!("--section={pass}")]].concat();
                counts.insert(pass, instructions::count(&section)?);
            }
        }
        let value = |name: &str| counts.get(name).copied().flatten();
        Ok(Costs::of(scheme, connections, "instructions_per", value, |_| None))
    }

    /// Makes the values of whole measurements, and of pairs with the surrounding work if they
    /// exist.
    fn of(
        scheme: Which,
        connections: usize,
        unit: &str,
        whole: impl Fn(&str) -> Option<f64>,
        net: impl Fn(&str) -> Option<f64>,
    ) -> Costs {
        let mut values = Vec::new();
        for (name, surrounding) in OPERATIONS {
            let Some(value) = whole(name) else { continue };
            let Some(around) = surrounding.map_or(Some(0.0), &whole) else { continue };
            values.push((format!("{unit}_{name}"), net(name).unwrap_or(value - around)));
            if surrounding.is_some() {
                values.push((format!("{unit}_{name}_whole"), value));
            }
        }
        values.extend(whole(passes::TOUCH).map(|touch| (format!("{unit}_touch"), touch)));
        Costs { scheme, connections, values }
    }

    /// The value of that name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
    }

    /// As a JSON object; values to a tenth.
    pub fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("scheme".to_owned(), json!(self.scheme.name()));
        object.insert("connections".to_owned(), json!(self.connections));
        for (name, value) in &self.values {
            object.insert(name.clone(), json!((value * 10.0).round() / 10.0));
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_fires_every_timer_once_and_has_all_its_costs() {
        for scheme in Which::value_variants() {
            // The passes themselves check which timers fire.
            let costs = Costs::repeated(*scheme, 2000, 2);
            for (name, _) in OPERATIONS {
                let value = costs.value(&format!("ns_per_{name}"));
                let ticks = matches!(scheme, Which::Scan | Which::OrderedList);
                let expected = match name {
                    "lone_expiry" => !ticks,
                    host_turn::NAME => scheme.of_host().is_some(),
                    _ => true,
                };
                assert_eq!(value.is_some_and(f64::is_finite), expected, "{scheme:?}: {name}");
            }
        }
    }
}
