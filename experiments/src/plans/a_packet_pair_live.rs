//! Packet pair with real packets: a sender of ours on a packet socket, a delay router of a known
//! rate, the kernel's TCP behind it, and the sender's estimate of the rate.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use lightwait::device::AfPacket;
use lightwait::local::TcpStream;
use lightwait::{Stack, rt};
use lightwait_wan::Release;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::routed::{self, Kind, ip, lay_cables, routed, run_before_others};
use crate::statistics::quantile;

const RATES_MBIT: [u64; 10] = [1, 2, 4, 10, 20, 50, 100, 200, 500, 1000];
/// Up to this rate full packets are at least 1.2 ms apart. At higher rates packets merge while
/// other programs use the router's processor, and their acknowledgements then show nothing.
const SURE_MBIT: u64 = 10;
/// The number of estimates, and the time between them. A single one may fall into a moment at which
/// another program had the router's processor.
const ASKED: usize = 100;
const INTERVAL: Duration = Duration::from_millis(30);
/// Bytes on the link for a full segment with timestamps, over the payload in it.
const WIRE: f64 = 1514.0 / 1448.0;

/// A second's ticks of the measurement clock, and without a fine one.
const FINE_HZ: u64 = 1_000_000_000;
const COARSE_HZ: u64 = 10;

const COARSE: Ablation =
    Ablation { name: "coarse-clock", instead: "the clock ticks once in 100 ms" };

/// Reads everything on connection after connection, until the process ends.
fn listen() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("10.9.0.2:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || while stream.read(&mut [0; 65_536]).is_ok_and(|len| len > 0) {});
        }
    });
    Ok(address)
}

/// The sender's estimates, at intervals, in Mbit/s on the wire.
fn estimates(rate_mbit: u64, to: SocketAddr, measure_hz: u64) -> Result<Vec<f64>, Failure> {
    let link = format!("rate={rate_mbit}Mbit,delay=5ms,queue=1MiB");
    let routed = routed(Kind::Sockets, [&link, "delay=5ms"], Release::Polling, || {
        let device = AfPacket::open("lw0", false)?;
        let sender = Stack::on(Box::new(device), "10.9.0.1/24".parse()?, |config| {
            config.tcp.clock.measure_hz = measure_hz;
        })?;
        let infos = lightwait::run([sender], async move {
            let mut stream = TcpStream::connect(to).await?;
            let data = vec![b'd'; 1 << 16];
            let mut infos = Vec::new();
            for _ in 0..ASKED {
                let writing = async {
                    loop {
                        stream.write_all(&data).await?;
                    }
                };
                // It ends only with a failure.
                let ended: Result<std::io::Result<()>, _> = rt::timeout(INTERVAL, writing).await;
                if let Ok(failure) = ended {
                    failure?;
                }
                infos.push(stream.info()?);
            }
            Ok::<_, std::io::Error>(infos)
        })??;
        Ok(infos)
    })?;
    let rates = routed.found.iter().filter_map(|info| info.bottleneck_bytes_per_second);
    Ok(rates.map(|bytes| bytes as f64 * 8.0 * WIRE / 1e6).collect())
}

/// Measures, in a namespace.
pub(crate) fn measure(ablated: Option<&str>) -> Result<Value, Failure> {
    let measure_hz = if ablated == Some(COARSE.name) { COARSE_HZ } else { FINE_HZ };
    run_before_others();
    lay_cables()?;
    ip("addr add 10.9.0.2/24 dev lw3")?;
    let to = listen()?;
    let found: Result<Vec<Vec<f64>>, Failure> =
        RATES_MBIT.into_iter().map(|rate| estimates(rate, to, measure_hz)).collect();
    Ok(json!(found?))
}

/// The median, and the share of estimates that are off by less than a tenth.
fn summary(estimates: &Value, rate_mbit: u64) -> (Option<f64>, f64) {
    let all = estimates.as_array().into_iter().flatten();
    let mut all: Vec<f64> = all.filter_map(Value::as_f64).collect();
    all.sort_by(f64::total_cmp);
    let right = all.iter().filter(|value| is_right(**value, rate_mbit)).count();
    let median = (!all.is_empty()).then(|| quantile(&all, 0.5));
    (median, right as f64 / all.len().max(1) as f64)
}

/// True for an estimate that is off by less than a tenth.
fn is_right(value: f64, rate_mbit: u64) -> bool {
    (value / rate_mbit as f64 - 1.0).abs() < 0.1
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let measured =
        routed::measured("a-packet-pair-live", report.is_ablated(&COARSE).then_some(&COARSE))?;
    let mut table = Table::new(&["true Mbit/s", "estimate, median", "right to a tenth, % of time"]);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (number, rate) in RATES_MBIT.into_iter().enumerate() {
        let (median, share) = summary(&measured[number], rate);
        let cell = median.map_or_else(|| "none".to_owned(), |value| format!("{value:.2}"));
        table.row(&[&rate, &cell, &format!("{:.0}", share * 100.0)]);
        if !median.is_some_and(|value| is_right(value, rate)) {
            wrong.push(rate);
        }
        found.push(median);
    }
    report.say("What the sender believes, in Mbit/s on the wire, over some seconds:");
    report.table("estimates", &table)?;
    let (sure, rest): (Vec<u64>, Vec<u64>) = wrong.iter().partition(|rate| **rate <= SURE_MBIT);
    report.claim(
        "packet pair finds the rate from 1 to 10 Mbit/s to a tenth, at the median",
        &COARSE,
        sure.is_empty(),
        format!("wrong at {sure:?} Mbit/s"),
    );
    report.observe("… and to 1 Gbit/s", rest.is_empty(), format!("wrong at {rest:?} Mbit/s"));
    let mut chart = Chart::new("The bottleneck as the sender sees it", "true, Mbit/s", "estimate")
        .scales(Scale::Logarithmic, Scale::Logarithmic);
    let points = RATES_MBIT.into_iter().zip(&found);
    let points = points.filter_map(|(rate, value)| Some((rate as f64, (*value)?)));
    chart.draw("estimate", Mark::Points, points.collect());
    chart.draw("true", Mark::Dashed, RATES_MBIT.map(|rate| (rate as f64, rate as f64)).to_vec());
    report.picture("estimates", &chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_estimate_counts_and_how_many_are_right() {
        assert_eq!(summary(&json!([10.5, 9000.0, 9.95, 10.0]), 10), (Some(10.5), 0.75));
        assert_eq!(summary(&json!([]), 10), (None, 0.0));
        assert!(is_right(10.99, 10) && !is_right(11.01, 10) && !is_right(8.99, 10));
    }
}
