//! The command `compare`: its arguments, and the output of its table.

use clap::ValueEnum;
use lightwait_bench::compare::{COUNTS, MEMORY, RATES, Row};
use lightwait_bench::stacks::Which;
use lightwait_bench::{say, say_line};
use serde_json::Value;

/// The arguments of `compare`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Compare {
    /// The stacks, ours first; all of them if none is named
    #[arg(long, value_enum, value_delimiter = ',')]
    stacks: Vec<Which>,
    /// Count instructions as well, by callgrind.
    #[arg(long)]
    instructions: bool,
    /// Print one JSON object a row.
    #[arg(long)]
    json: bool,
}

impl Compare {
    /// Measures and prints, row by row.
    pub(crate) fn run(&self) -> bool {
        let all = || Which::value_variants().to_vec();
        let stacks = if self.stacks.is_empty() { all() } else { self.stacks.clone() };
        if !self.json {
            say!("{:<34}", "");
            stacks.iter().for_each(|stack| say!(" {:>18}", stack.name()));
            say_line!();
            if stacks.contains(&Which::LightwaitSkip) {
                say_line!("(lightwait-skip keeps nothing in TIME-WAIT, which is unsafe)");
            }
        }
        let counts = if self.instructions { COUNTS } else { &[] };
        let rows = RATES.iter().chain(MEMORY).chain(counts).map(|row| self.row(row, &stacks));
        rows.fold(true, |all, one| all & one)
    }

    fn row(&self, row: &Row, stacks: &[Which]) -> bool {
        let measured = stacks.iter().map(|stack| (*stack, row.measure(*stack)));
        let values: Vec<_> = measured.collect();
        if self.json {
            say_line!("{}", Value::Object(row.json(&values)));
        } else {
            print(row, &values);
        }
        values.first().is_some_and(|(_, ours)| ours.is_some())
    }
}

fn print(row: &Row, values: &[(Which, Option<f64>)]) {
    let ours = values.first().and_then(|(_, value)| *value);
    say!("{:<34}", row.words);
    for (number, (_, value)) in values.iter().enumerate() {
        let cell = match (value, ours) {
            (None, _) => "–".to_owned(),
            (Some(value), Some(ours)) if number > 0 => {
                format!("{} ({:.2}x)", row.in_words(*value), row.ratio(ours, *value))
            }
            (Some(value), _) => row.in_words(*value),
        };
        say!(" {cell:>18}");
    }
    say_line!();
}
