//! The command `look`: its arguments, and the output of its result.

use lightwait_bench::look::{self, Kind};
use lightwait_bench::say_line;
use serde_json::json;

/// The arguments of `look`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Look {
    /// The number of connections, all at rest, 1000 to 10000000
    #[arg(long, default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    count: u32,
    /// Print a JSON object for each kind of walk
    #[arg(long)]
    json: bool,
}

impl Look {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let host = look::host(self.count as usize);
        for kind in Kind::ALL {
            let outcome = look::measure(&host, kind);
            let name = match kind {
                Kind::Search => "search",
                Kind::Detail => "detail",
            };
            let ms = outcome.whole.as_secs_f64() * 1e3;
            let [longest, usual] =
                [outcome.longest, outcome.usual].map(|it| it.as_secs_f64() * 1e6);
            if self.json {
                let object = json!({
                    "walk": name,
                    "connections": outcome.connections,
                    "pieces": outcome.pieces,
                    "whole_ms": ms,
                    "usual_us": usual,
                    "longest_us": longest,
                });
                say_line!("{object}");
            } else {
                let (connections, pieces) = (outcome.connections, outcome.pieces);
                say_line!(
                    "{name:<8} {connections} connections in {pieces} pieces: {ms:.1} ms; 99 in 100 \
                     take {usual:.0} us at most, the longest {longest:.0} us"
                );
            }
        }
        true
    }
}
