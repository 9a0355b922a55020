//! `lightwait ss`: the sockets of running servers, in the columns of `ss`.

mod table;

use std::process::ExitCode;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::doors::{self, Door, DoorArgs};
use crate::failure::{self, Failure};
use crate::filter::{Filter, States};
use table::{Columns, Table};

/// List the sockets of running servers, in the columns of `ss`: states, queues, both ends, timers,
/// memory, and what TCP knows of each connection.
///
/// It asks the admin doors of servers (`lightwait serve --admin`). Without -a and -l it lists
/// connections; TIME-WAIT, half-open handshakes and listeners are listed with -a, or by naming
/// their states. A record of TIME-WAIT shows the time left and which end holds it: the one that
/// closed first (closer), or this one by agreement (ourselves).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The filter is that of ss: states, then tests of both ends.
  lightwait ss -tinoem state established
  lightwait ss -t state time-wait dst 10.0.0.0/8
  lightwait ss '( sport = :80 or sport = :443 ) and not dst 127.0.0.1'
States: established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait,
last-ack, listening, closing; or all, connected, synchronized, bucket, big.")]
pub(crate) struct SsArgs {
    #[command(flatten)]
    doors: DoorArgs,

    /// TCP sockets; there are no others
    #[arg(short, long)]
    tcp: bool,

    /// Sockets of every state
    #[arg(short, long, conflicts_with = "listening")]
    all: bool,

    /// Listeners alone
    #[arg(short, long)]
    listening: bool,

    /// Numbers for addresses and ports, as always
    #[arg(short, long)]
    numeric: bool,

    /// IPv4 sockets alone
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// IPv6 sockets alone
    #[arg(short = '6', long)]
    ipv6: bool,

    /// What TCP knows of each connection
    #[arg(short, long)]
    info: bool,

    /// The next timer of each socket
    #[arg(short, long)]
    options: bool,

    /// The door, shard and name of each connection
    #[arg(short, long)]
    extended: bool,

    /// The buffers of each connection: bytes held and their limits
    #[arg(short, long)]
    memory: bool,

    /// No line of headings
    #[arg(short = 'H', long)]
    no_header: bool,

    /// JSON instead: an object a line
    #[arg(long)]
    json: bool,

    /// Sockets at most, of each door
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true,
        value_parser = at_least_one)]
    limit: usize,

    /// Which sockets: states, then tests of both ends
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or_else(|| "give 1 or more".to_owned())
}

/// Asks every door and prints what they have. A door that gives no answer is told of, and the
/// others are asked all the same.
pub(crate) fn ss(args: &SsArgs) -> Result<ExitCode, Failure> {
    let query = query(args)?;
    let runtime = doors::runtime()?;
    let doors = Door::all(&args.doors);
    let columns = Columns {
        info: args.info,
        timers: args.options,
        extended: args.extended,
        memory: args.memory,
    };
    let mut table = Table::new(columns, !args.no_header);
    let (mut failed, mut cut) = (None, Vec::new());
    for door in &doors {
        // A server may have millions: each page is printed before the next is asked for.
        let print = |page: Vec<Value>| {
            let rows: Vec<Value> = page.into_iter().map(|row| named(row, door)).collect();
            failure::print_part(&if args.json {
                rows.iter().map(|row| format!("{row}\n")).collect()
            } else {
                table.page(&rows)
            })
        };
        match runtime.block_on(door.pages(&query, args.limit, print)) {
            Ok(ending) => {
                if let Some(complaint) = ending.complaint() {
                    eprintln!("lightwait: {}: {complaint}", door.name());
                    failed = Some(ExitCode::FAILURE);
                }
                if ending.is_cut {
                    cut.push(door.name());
                }
            }
            // The others would say the same of the question.
            Err(failure) if doors.len() == 1 => return Err(failure),
            Err(failure) => {
                eprintln!("lightwait: {failure}");
                failed = Some(failure.exit_code());
            }
        }
    }
    if !args.json {
        failure::print(&table.end())?;
    }
    for door in cut {
        eprintln!("lightwait: {door} has more: raise --limit, or filter");
    }
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
}

/// The query of a request for what the command line asks for. The filter is checked here, too: so
/// what is wrong is known where no door answers.
fn query(args: &SsArgs) -> Result<String, Failure> {
    let filter = args.filter.join(" ");
    let checked = Filter::parse(&filter, States::USUAL);
    checked.map_err(|error| Failure::Usage(format!("the filter {filter:?}: {error}")))?;
    let filter = utf8_percent_encode(&filter, NON_ALPHANUMERIC);
    let state = match (args.all, args.listening) {
        (true, _) => "&state=all",
        (_, true) => "&state=listening",
        _ => "",
    };
    let family = match (args.ipv4, args.ipv6) {
        (true, _) => "&family=inet",
        (_, true) => "&family=inet6",
        _ => "",
    };
    Ok(format!("{state}{family}&filter={filter}"))
}

/// A row with the door that it came from.
fn named(mut row: Value, door: &Door) -> Value {
    row["door"] = json!(door.name());
    row
}
