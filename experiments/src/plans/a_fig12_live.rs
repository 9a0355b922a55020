//! Fig. 12 with real segments: the RTO of each estimator over a delay router with a round trip of
//! 60 ms, and the time until a tail segment that the router has lost is sent again.
//!
//! A stack of ours sends a segment of 100 bytes to the kernel's TCP, which echoes it, 200 times on
//! one connection. The router loses a tenth of the segments to the kernel and none of those back. A
//! lost segment is the last one in flight, so that only the timer can send it again. The result is
//! the exchange's time minus the round trip. It is the median of many exchanges: a tenth of the
//! retransmissions is lost as well, and then waits for a timeout that was backed off.
//!
//! Linux sends the same data the other way for comparison. It has a tail loss probe (RFC 8985), and
//! ours has none. With a lone segment in flight that probe waits for a delayed ACK as well (§7.2).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lightwait::device::AfPacket;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::{Cidr, Stack};
use lightwait_core::config::{Estimator, Scheme, TcpConfig};
use lightwait_core::time;
use lightwait_wan::Release;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::routed::{self, Kind, ip, lay_cables, routed, run_before_others};
use crate::statistics::quantile;

const ROUND_TRIP_MS: f64 = 60.0;
pub(crate) const SEED: u64 = 12;
const PLAIN: &str = "delay=30ms";
const EXCHANGES: usize = 200;
/// Exchanges before the estimators are settled: the paper's table has twelve rows.
const WARM_UP: usize = 12;
const MESSAGE: usize = 100;
/// An exchange that takes this much longer than the round trip was lost; the router and this
/// machine are never that late.
const LOST_MS: f64 = 30.0;
const OURS: &str = "10.9.0.1:80";

/// A sender: its estimator, and the paper's RTO and timeout for it in ms.
struct Sender {
    name: &'static str,
    change: fn(&mut TcpConfig),
    paper: &'static str,
}

const BSD: usize = 0;
const FIXED: usize = 1;
const FRAMEWORK: usize = 2;
const DEFAULT: usize = 4;

const SENDERS: [Sender; 5] = [
    Sender {
        name: "4.4BSD",
        change: |tcp| (tcp.timers, tcp.rto.estimator) = (Scheme::Scan, Estimator::Bsd),
        paper: "1500 to 2500; 1012 to 2254",
    },
    Sender {
        name: "4.4BSD, fixes of Brakmo and Peterson",
        change: |tcp| {
            (tcp.timers, tcp.rto.estimator) = (Scheme::Scan, Estimator::BsdBrakmoPeterson);
        },
        paper: "1000 to 1500; 769 to 1452",
    },
    Sender {
        name: "the paper's: fine clock, ticks of 500 ms, no floor",
        change: |tcp| {
            (tcp.rto.estimator, tcp.rto.floor) = (Estimator::Fine, time::Duration::ZERO);
            tcp.clock.tick = time::Duration::from_millis(500);
        },
        paper: "93 to 253; 145 to 633",
    },
    Sender {
        name: "fine clock, ticks of 1 ms, floor 200 ms",
        change: |tcp| tcp.rto.estimator = Estimator::Fine,
        paper: "–",
    },
    Sender { name: "ours by default: RFC 6298, floor 200 ms", change: |_| (), paper: "–" },
];
const LINUX: &str = "Linux, with its tail loss probe";

const AS_OURS: Ablation = Ablation { name: "ours", instead: "each sender is ours by default" };
const AS_BSD: Ablation = Ablation { name: "4.4bsd", instead: "each sender is 4.4BSD's" };

/// A sender's measurements.
#[derive(Default)]
struct Seen {
    /// RTO after each exchange in which nothing was lost.
    rto_ms: Vec<f64>,
    exchange_ms: Vec<f64>,
}

impl Seen {
    fn value(&self) -> Value {
        json!({ "rto_ms": self.rto_ms, "exchange_ms": self.exchange_ms })
    }
}

/// Measures, in a namespace.
pub(crate) fn measure() -> Result<Value, Failure> {
    run_before_others();
    lay_cables()?;
    ip("addr add 10.9.0.2/24 dev lw3")?;
    let echo = echo_of_the_kernel()?;
    let losing = &*format!("{PLAIN},loss=10%,seed={SEED}");
    let mut found = Vec::new();
    for sender in &SENDERS {
        let seen = routed(Kind::Sockets, [losing, PLAIN], Release::Polling, || {
            ours_sends(echo, sender.change)
        })?;
        found.push(seen.found.value());
    }
    let seen = routed(Kind::Sockets, [PLAIN, losing], Release::Polling, linux_sends)?;
    found.push(seen.found.value());
    Ok(json!(found))
}

fn stack(configure: impl FnOnce(&mut TcpConfig)) -> Result<Stack, Failure> {
    let device = AfPacket::open("lw0", false)?;
    let address: Cidr = "10.9.0.1/24".parse()?;
    Ok(Stack::on(Box::new(device), address, |config| {
        // The kernel remembers the hardware address of the earlier stack.
        config.hardware = [2, 0, 0, 0, 0, 1];
        configure(&mut config.tcp);
    })?)
}

fn echo_of_the_kernel() -> Result<SocketAddr, Failure> {
    let listener = KernelListener::bind("10.9.0.2:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut message = [0; MESSAGE];
                while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok()
                {
                }
            });
        }
    });
    Ok(address)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn message(number: usize) -> [u8; MESSAGE] {
    [number as u8; MESSAGE]
}

fn ours_sends(to: SocketAddr, configure: fn(&mut TcpConfig)) -> Result<Seen, Failure> {
    let sender = stack(configure)?;
    let seen = lightwait::run([sender], async move {
        let mut stream = TcpStream::connect(to).await?;
        let mut seen = Seen::default();
        for number in 0..EXCHANGES {
            let (begin, before) = (Instant::now(), stream.info()?.timeouts);
            stream.write_all(&message(number)).await?;
            let mut echo = [0; MESSAGE];
            stream.read_exact(&mut echo).await?;
            assert_eq!(echo, message(number), "an echo of another message");
            if number < WARM_UP {
                continue;
            }
            seen.exchange_ms.push(milliseconds(begin));
            let info = stream.info()?;
            if info.timeouts == before {
                seen.rto_ms.push(info.rto.as_secs_f64() * 1000.0);
            }
        }
        Ok::<_, std::io::Error>(seen)
    })??;
    Ok(seen)
}

fn linux_sends() -> Result<Seen, Failure> {
    let receiver = thread::spawn(|| echo_of_ours().map_err(|error| error.to_string()));
    let sent = exchange_of_linux();
    let ended = receiver.join().map_err(|_| "the receiver panicked")?;
    // A failure of the receiver is the better explanation.
    ended?;
    sent
}

/// A stack of ours that echoes one connection, to its end.
fn echo_of_ours() -> Outcome {
    let receiver = stack(|_| ())?;
    lightwait::run([receiver], async move {
        let listener = TcpListener::bind(OURS).await?;
        let one = async {
            let (mut stream, _) = listener.accept().await?;
            let mut message = [0; MESSAGE];
            while stream.read_exact(&mut message).await.is_ok() {
                stream.write_all(&message).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        // Perhaps no connection comes.
        let limit = Duration::from_secs(300);
        rt::timeout(limit, one).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    })??;
    Ok(())
}

fn exchange_of_linux() -> Result<Seen, Failure> {
    let mut stream = KernelStream::connect(OURS)?;
    stream.set_nodelay(true)?;
    let mut seen = Seen::default();
    for number in 0..EXCHANGES {
        let begin = Instant::now();
        stream.write_all(&message(number))?;
        let mut echo = [0; MESSAGE];
        stream.read_exact(&mut echo)?;
        assert_eq!(echo, message(number), "an echo of another message");
        if number < WARM_UP {
            continue;
        }
        let took = milliseconds(begin);
        seen.exchange_ms.push(took);
        if took < ROUND_TRIP_MS + LOST_MS && number % 10 == 0 {
            seen.rto_ms.extend(rto_of_linux()?);
        }
    }
    Ok(seen)
}

/// The kernel's RTO for its connection to us, in ms.
fn rto_of_linux() -> Result<Option<f64>, Failure> {
    let output = Command::new("ss").args(["-tinH", "dst", OURS]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    Ok(words.find_map(|word| word.strip_prefix("rto:")?.parse().ok()))
}

/// The results of a sender, in order.
struct Found {
    rto_ms: Vec<f64>,
    /// For exchanges with a lost segment: the time until it was sent again.
    recovery_ms: Vec<f64>,
}

impl Found {
    fn of(value: &Value) -> Found {
        let sorted = |key: &str| {
            let all = value[key].as_array().into_iter().flatten();
            let mut all: Vec<f64> = all.filter_map(Value::as_f64).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let exchanges = sorted("exchange_ms").into_iter();
        let waits = exchanges.map(|ms| ms - ROUND_TRIP_MS).filter(|ms| *ms > LOST_MS);
        Found { rto_ms: sorted("rto_ms"), recovery_ms: waits.collect() }
    }

    fn rto(&self, part: f64) -> f64 {
        quantile(&self.rto_ms, part)
    }

    fn recovery(&self, part: f64) -> f64 {
        quantile(&self.recovery_ms, part)
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let measured = routed::measured("a-fig12-live", None)?;
    let found: Vec<Found> = measured.as_array().into_iter().flatten().map(Found::of).collect();
    let names = SENDERS.iter().map(|sender| (sender.name, sender.paper));
    let names: Vec<_> = names.chain([(LINUX, "–")]).collect();
    let mut table = Table::new(&[
        "sender",
        "RTO ms, median",
        "RTO least",
        "RTO most",
        "tails lost",
        "sent again after ms, median",
        "after ms, least",
        "paper: RTO; timeout, ms",
    ]);
    let mut chart = Chart::new(
        "Until a lost tail is sent again, round trip of 60 ms",
        "share of the lost tails, %",
        "ms",
    );
    let whole = |value: f64| format!("{value:.0}");
    for ((name, paper), found) in names.iter().zip(&found) {
        table.row(&[
            name,
            &whole(found.rto(0.5)),
            &whole(found.rto(0.0)),
            &whole(found.rto(1.0)),
            &found.recovery_ms.len(),
            &whole(found.recovery(0.5)),
            &whole(found.recovery(0.0)),
            paper,
        ]);
        let share = |place: usize| place as f64 * 100.0 / found.recovery_ms.len() as f64;
        let points = found.recovery_ms.iter().enumerate();
        chart.draw(name, Mark::Steps, points.map(|(place, ms)| (share(place), *ms)).collect());
    }
    report.table("fig12", &table)?;
    claims(report, &found)?;
    report.picture("recovery", &chart)
}

fn claims(report: &mut Report, found: &[Found]) -> Outcome {
    let [.., linux] = found else { return Err("nothing was measured".into()) };
    if found.len() != SENDERS.len() + 1 {
        return Err("a sender is missing".into());
    }
    // Without the others, the measurement of one stands in.
    let (is_ours, is_old) = (report.is_ablated(&AS_OURS), report.is_ablated(&AS_BSD));
    let found: [&Found; SENDERS.len()] = std::array::from_fn(|place| match place {
        _ if is_ours => &found[DEFAULT],
        _ if is_old => &found[BSD],
        place => &found[place],
    });
    let enough = found.iter().map(|found| found.recovery_ms.len()).min().unwrap_or(0);
    report.check(
        "each sender lost ten tails and more",
        enough >= 10,
        format!("{enough} at the least"),
    );
    let range = |found: &Found| format!("{:.0} to {:.0} ms", found.rto(0.0), found.rto(1.0));
    report.claim(
        "4.4BSD's RTO is 3 ticks of 500 ms and more, for a round trip of 60 ms",
        &AS_OURS,
        found[BSD].rto(0.0) >= 1500.0,
        range(found[BSD]),
    );
    report.claim(
        "the fixes of Brakmo and Peterson bring it to 2 ticks",
        &AS_OURS,
        (found[FIXED].rto(0.5) - 1000.0).abs() < 1.0,
        format!("{:.0} ms at the median, {}", found[FIXED].rto(0.5), range(found[FIXED])),
    );
    report.claim(
        "on the fine clock, without a floor, it is that of the path, less than 253 ms",
        &AS_BSD,
        found[FRAMEWORK].rto(1.0) < 253.0,
        range(found[FRAMEWORK]),
    );
    let times = |place: usize| found[BSD].recovery(0.5) / found[place].recovery(0.5);
    // The medians of the paper's two columns of timeouts are 1322 and 352 ms.
    report.claim(
        "a lost tail is sent again in a third of 4.4BSD's time, by the paper's framework and by \
         ours",
        &AS_OURS,
        times(FRAMEWORK) > 3.0 && times(DEFAULT) > 3.0,
        format!(
            "{:.1} and {:.1} times sooner, at the median; the paper's table: 3.8",
            times(FRAMEWORK),
            times(DEFAULT)
        ),
    );
    report.observe(
        "ours sends a lone tail again as soon as Linux with its probe",
        found[DEFAULT].recovery(0.5) <= linux.recovery(0.5) * 1.05,
        format!(
            "{:.0} ms against {:.0} ms, at the median",
            found[DEFAULT].recovery(0.5),
            linux.recovery(0.5)
        ),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_was_lost_where_the_exchange_took_longer() {
        let value = json!({ "rto_ms": [210, 205.0], "exchange_ms": [61.0, 330.0, 60.2, 290.0] });
        let found = Found::of(&value);
        assert_eq!(found.recovery_ms, [230.0, 270.0]);
        assert_eq!((found.rto(0.0), found.rto(1.0)), (205.0, 210.0));
    }
}
