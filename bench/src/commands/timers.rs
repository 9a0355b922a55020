//! The command `timers`: its arguments, and the output of its results.

use clap::ValueEnum;
use lightwait_bench::timers::{Costs, OPERATIONS, Which};
use lightwait_bench::{say, say_line};
use serde_json::Value;

/// The arguments of `timers`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Timers {
    /// The scheme; all of them, one after the other, if none is named
    #[arg(long, value_enum)]
    scheme: Option<Which>,
    /// Connections, each with its timer set, 1000 to 20000000.
    #[arg(long, default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1000..=20_000_000))]
    connections: u32,
    /// Count instructions as well, by running once more under callgrind.
    #[arg(long)]
    instructions: bool,
    /// Print one JSON object a scheme.
    #[arg(long)]
    json: bool,
    /// Run every pass once and this one for callgrind, which --instructions uses
    #[arg(long, hide = true, requires = "scheme")]
    section: Option<String>,
}

impl Timers {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let connections = self.connections as usize;
        if let (Some(section), Some(scheme)) = (&self.section, self.scheme) {
            scheme.sections(section, connections);
            return true;
        }
        let all = || Which::value_variants().to_vec();
        let schemes = self.scheme.map_or_else(all, |one| vec![one]);
        let mut counted = true;
        for (number, scheme) in schemes.into_iter().enumerate() {
            counted &= run(scheme, connections, self, number == 0);
        }
        counted
    }
}

/// Measures one scheme and prints it. Returns false if instructions were requested and not counted.
fn run(scheme: Which, connections: usize, timers: &Timers, first: bool) -> bool {
    let mut costs = vec![Costs::in_ns(scheme, connections)];
    let mut counted = true;
    if timers.instructions {
        match Costs::in_instructions(scheme, connections) {
            Ok(instructions) => costs.push(instructions),
            Err(why) => {
                eprintln!("{why}");
                counted = false;
            }
        }
    }
    if timers.json {
        let mut object = costs[0].json();
        object.extend(costs.iter().skip(1).flat_map(Costs::json));
        say_line!("{}", Value::Object(object));
    } else {
        print(&costs, first);
    }
    counted
}

/// Prints a row for each unit, with the table's head before the first.
fn print(costs: &[Costs], first: bool) {
    if first {
        say_line!("On top of touching the connection, {} connections:", costs[0].connections);
        say!("{:<32} {:>12}", "", "");
        for (name, _) in OPERATIONS {
            say!(" {name:>11}");
        }
        say_line!(" {:>8}", "touch");
    }
    for costs in costs {
        for unit in ["ns_per", "instructions_per"] {
            let Some(touch) = costs.value(&format!("{unit}_touch")) else { continue };
            let word = unit.trim_end_matches("_per");
            say!("{:<32} {word:>12}", costs.scheme.name());
            for (name, _) in OPERATIONS {
                match costs.value(&format!("{unit}_{name}")) {
                    Some(value) => say!(" {value:>11.1}"),
                    None => say!(" {:>11}", "–"),
                }
            }
            say_line!(" {touch:>8.1}");
        }
    }
}
