//! Runs a load on the kernel's stack, whose source addresses it checks first.

use std::io;
use std::net::{IpAddr, UdpSocket};

use lightwait_load::engine::{self, Outcome};
use lightwait_load::network::{Kernel, Network, Secured};
use lightwait_load::sources::Sources;
use lightwait_load::tuples::Tuples;
use tokio::runtime::{Builder, LocalOptions};

use super::plan::LoadPlan;
use super::refused;
use super::watch::Watcher;
use crate::failure::Failure;
use crate::serve::signals::Signals;

/// Runs the load to its end, or to a signal. `None` if a signal came before it began.
pub(super) fn run(
    plan: &LoadPlan,
    tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
) -> Result<Option<Outcome>, Failure> {
    check(&plan.sources)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(Failure::Stack)?.block_on(async {
        let is_single = plan.engine.requests_per_connection.is_some_and(|most| most.get() == 1);
        let kernel = Kernel::new(!is_single).map_err(Failure::Stack)?;
        match plan.tls.clone() {
            None => run_on(kernel, plan, tuples, signals, watcher).await,
            Some(tls) => run_on(Secured::new(kernel, tls), plan, tuples, signals, watcher).await,
        }
    })
}

async fn run_on<N: Network>(
    network: N,
    plan: &LoadPlan,
    mut tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
) -> Result<Option<Outcome>, Failure> {
    tokio::select! {
        () = signals.stop() => return Ok(None),
        probed = engine::probe(&network, &plan.engine, &mut tuples) => {
            probed.map_err(|error| refused(plan, &error))?;
        }
    }
    let watcher = watcher.clone();
    let on_progress = move |progress: &_| watcher.on_progress(progress);
    let load = engine::run(network, plan.engine.clone(), tuples, signals.stop(), on_progress);
    Ok(Some(load.await))
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
    fn addresses_that_are_not_ours_are_named_with_the_command_that_adds_them() {
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
