//! The commands `today` and `tap-limit`: their arguments, and the output of their results.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use lightwait_bench::say_line;
use lightwait_bench::today::{self, Row, cores, limit};
use serde_json::json;

/// The arguments of `today`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Today {
    /// Seconds of each load
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Compare on so many cores, which server and clients share, with as many shards and workers of
    /// nginx: short files, new connections and a megabyte
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: u16,
    /// Repetitions of each load, with --cores
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Where the files are written, 1.1 GB; they are removed
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
    /// Print one JSON object a measurement
    #[arg(long)]
    json: bool,
}

/// The arguments of `tap-limit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TapLimit {
    /// The TAP's name
    #[arg(long)]
    tap: String,
    /// The address and port that it answers on
    #[arg(long)]
    address: SocketAddrV4,
    /// Bytes of an answer
    #[arg(long)]
    bytes: usize,
}

impl Today {
    /// Measures and prints. False if something could not be measured.
    pub(crate) fn run(&self) -> bool {
        match self.measure() {
            Ok(()) => true,
            Err(why) => {
                eprintln!("today: {why}");
                false
            }
        }
    }

    fn measure(&self) -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir_in(&self.directory)?;
        if self.cores > 1 {
            return self.measure_cores(directory.path());
        }
        if !self.json {
            let [file, clients, server] = ["file", "clients", ""];
            say_line!("{file:<8} {clients:>7}  {server:<28} requests/s  us: processor 0, both");
        }
        let rows = today::run(directory.path(), self.seconds, |row| self.print(row))?;
        let in_turn = today::run_in_turn(directory.path(), self.seconds, |row| self.print(row))?;
        if !self.json {
            verdicts(&rows);
            let [ours, nginx] = [&in_turn[0], &in_turn[1]];
            say_line!("in turn: {:.2} of nginx (goal 1.6)", ours.first_us / nginx.first_us);
        }
        Ok(())
    }

    fn measure_cores(&self, directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
        if !self.json {
            let cores = self.cores;
            say_line!("{cores} cores for both ends; processor time of all of them for a request");
            say_line!("{:<22} {:<28} requests/s  us", "load", "server");
        }
        let rows = cores::run(directory, self.cores, self.seconds, self.runs, |row| {
            let cores::Row { server, load, rate, us } = row;
            if self.json {
                let row = json!({
                    "server": server, "load": load, "requests_per_s": rate, "us": us,
                });
                say_line!("{row}");
            } else {
                say_line!("{load:<22} {server:<28} {rate:>10.0}  {us:.2}");
            }
        })?;
        if !self.json {
            for ratio in cores::ratios(&rows) {
                let cores::Ratio { load, median, least, most, goal } = ratio;
                say_line!("{load:<22} {median:.2} of nginx ({least:.2} to {most:.2}; goal {goal})");
            }
        }
        Ok(())
    }

    fn print(&self, row: &Row) {
        let Row { server, file, clients, rate, first_us, both_us, resident_bytes } = row;
        if self.json {
            say_line!(
                "{}",
                json!({
                    "server": server, "file": file, "clients": clients, "requests_per_s": rate,
                    "processor_0_us": first_us, "both_us": both_us,
                    "resident_bytes": resident_bytes,
                })
            );
        } else {
            let what = format!("{file:<8} {clients:>7}  {server:<28} {rate:>10.0}");
            let mib = resident_bytes >> 20;
            say_line!("{what}  {first_us:>8.1} {both_us:>8.1}  {mib} MiB");
        }
    }
}

/// Prints what each load costs beside the limit and beside nginx.
fn verdicts(rows: &[Row]) {
    let of = |file: &str, clients: u32, server: &str| {
        let is_it = |row: &&Row| {
            row.file == file && row.clients == clients && row.server.starts_with(server)
        };
        rows.iter().find(is_it).map_or(f64::NAN, |row| row.first_us)
    };
    for (file, _) in today::FILES {
        for clients in today::CLIENTS {
            let [limit, ours, nginx] =
                ["the TAP", "lightwait", "nginx"].map(|server| of(file, clients, server));
            say_line!(
                "{file:<8} {clients:>7}  {:.2} of the limit (goal 1.15), {:.2} of nginx (goal 1.3)",
                ours / limit,
                ours / nginx
            );
        }
        let [few, many] = [8, 256].map(|clients| of(file, clients, "lightwait"));
        say_line!("{file:<8} 8 → 256  {:.2} times (goal 1.1)", many / few);
    }
}

impl TapLimit {
    /// Serves until it is ended.
    pub(crate) fn run(&self) -> bool {
        let served = limit::serve(&self.tap, *self.address.ip(), self.address.port(), self.bytes);
        served.inspect_err(|why| eprintln!("tap-limit: {why}")).is_ok()
    }
}
