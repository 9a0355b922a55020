//! Runs a load on the kernel's stack, whose source addresses it checks first.

use std::net::{IpAddr, UdpSocket};
use std::{fs, io};

use lightwait_load::engine::{self, Outcome};
use lightwait_load::network::{Kernel, Network, Secured};
use lightwait_load::sources::Sources;
use lightwait_load::tuples::Tuples;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Barrier;

use super::plan::LoadPlan;
use super::watch::Watcher;
use super::{refused, stop, together};
use crate::failure::Failure;
use crate::serve::signals::Signals;

/// Runs the load to its end, or to a signal. `None` if a signal came before it began.
pub(super) fn run(
    plan: &LoadPlan,
    tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
    start: Option<&Barrier>,
) -> Result<Option<Outcome>, Failure> {
    check(&plan.sources)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(Failure::Stack)?.block_on(async {
        let is_single = plan.engine.requests_per_connection.is_some_and(|most| most.get() == 1);
        let kernel = Kernel::new(!is_single).map_err(Failure::Stack)?;
        match plan.tls.clone() {
            None => run_on(kernel, plan, tuples, signals, watcher, start).await,
            Some(tls) => {
                run_on(Secured::new(kernel, tls), plan, tuples, signals, watcher, start).await
            }
        }
    })
}

async fn run_on<N: Network>(
    network: N,
    plan: &LoadPlan,
    mut tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
    start: Option<&Barrier>,
) -> Result<Option<Outcome>, Failure> {
    tokio::select! {
        () = signals.stop() => return Ok(None),
        probed = engine::probe(&network, &plan.engine, &mut tuples) => {
            probed.map_err(|error| refused(plan, &error))?;
        }
    }
    if !together(start, signals).await {
        return Ok(None);
    }
    watcher.begin();
    let before = overflow();
    let (engine, stop) = (plan.engine.clone(), stop(signals, &plan.engine, watcher));
    let watcher = watcher.clone();
    let on_progress = move |progress: &_| watcher.on_progress(progress);
    let load = engine::run(network, engine, tuples, stop, || signals.hurry(), on_progress);
    let mut outcome = load.await;
    outcome.notes.kernel_overflow = overflow().saturating_sub(before);
    Ok(Some(outcome))
}

/// TIME-WAITs that the kernel has ended at once so far, in this network namespace, since it had
/// `net.ipv4.tcp_max_tw_buckets` of them. 0 if it does not say.
fn overflow() -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    counter(&text, "TCPTimeWaitOverflow").unwrap_or(0)
}

/// A counter of a file that has lines of names, each with a line of values behind it.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let place = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(place)?.parse().ok()
    })
}

/// Fails if the kernel lacks a source address; the error has the command that adds it.
pub(super) fn check(sources: &Sources) -> Result<(), Failure> {
    let missing: Vec<IpAddr> = sources.iter().filter(|address| !has(*address)).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let prefix = sources.prefixes().find(|prefix| prefix.contains(*first));
    let prefix = prefix.map_or_else(|| first.to_string(), |prefix| prefix.to_string());
    Err(Failure::Load(format!(
        "--source: {} of {} addresses are not this machine's, {first} the first of them; `sudo ip \
         route add local {prefix} dev lo` makes {prefix} so (the server needs a way back to it)",
        missing.len(),
        sources.len(),
    )))
}

/// True if a socket can be bound to that address.
fn has(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stands_below_its_name() {
        let text = "TcpExt: A TCPTimeWaitOverflow B\nTcpExt: 1 54073 3\nIpExt: A C\nIpExt: 4 5\n";
        assert_eq!(counter(text, "TCPTimeWaitOverflow"), Some(54_073));
        assert_eq!((counter(text, "C"), counter(text, "D")), (Some(5), None));
    }

    #[test]
    fn a_foreign_address_is_named_with_the_command_that_adds_it() {
        let of = |texts: &[&str]| {
            let prefixes: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            check(&Sources::new(&prefixes).unwrap())
        };
        assert!(of(&["127.5.0.0/28"]).is_ok());
        let text = of(&["127.5.0.0/29", "198.51.100.0/30"]).unwrap_err().to_string();
        for part in ["2 of 8", "198.51.100.1", "`sudo ip route add local 198.51.100.0/30 dev lo`"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
