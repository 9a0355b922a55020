//! Claims our addresses: checks that the kernel does not have them and that no other host on the
//! link does. Later it logs conflicts over them.

use std::cell::Cell;
use std::rc::Rc;

use lightwait::device::{KernelAddress, kernel_address};
use lightwait::driver::{self, Stop};
use lightwait::shard::{Handle, Shard};
use lightwait_core::Host;
use lightwait_core::address::Cidr;
use lightwait_core::ip::conflict::Claimed;

use super::signals::Signals;
use crate::failure::Failure;
use crate::log::{Log, Record};

/// Refuses addresses that the kernel's own stack has: both stacks would answer for them.
pub(super) fn refuse_kernels(interface: &str, addresses: &[Cidr]) -> Result<(), Failure> {
    for cidr in addresses {
        let held = kernel_address(interface, cidr.address()).map_err(Failure::Stack)?;
        if let Some(held) = held {
            return Err(Failure::KernelAddress(held));
        }
    }
    Ok(())
}

/// Refuses addresses of the kernel's end of `tap` that another interface has already with a subnet
/// that one of `ours` is in: the kernel would send to it there, and nobody would reach the stack.
pub(super) fn refuse_others(
    tap: &str,
    host_addresses: &[Cidr],
    ours: &[Cidr],
) -> Result<(), Failure> {
    for cidr in host_addresses {
        let held = kernel_address(tap, cidr.address()).map_err(Failure::Stack)?;
        let is_in =
            |held: &KernelAddress| ours.iter().any(|ours| held.address.contains(ours.address()));
        if let Some(held) = held.filter(|held| held.interface != tap && is_in(held)) {
            return Err(Failure::HostAddress(held));
        }
    }
    Ok(())
}

/// Runs the stack until all its addresses are ours. Returns false if a signal asked for a stop
/// before that; fails if another host has one of them.
pub(crate) fn wait(
    shards: &mut [Shard],
    stack: &Handle,
    signals: &Signals,
    log: &Log,
) -> Result<bool, Failure> {
    if stack.with_host(Host::claimed) == Claimed::All {
        return Ok(true);
    }
    let (addresses, longest) = stack.with_host(|host| {
        let addresses = host.config().addresses.iter();
        (addresses.map(|cidr| cidr.address()).collect(), host.config().address_probe)
    });
    if !stack.with_host(|host| host.config().member.is_replica()) {
        log.write(Record::Asking { addresses, longest });
    }
    let (stop, outcome) = (Stop::new(), Rc::new(Cell::new(None)));
    let task = stack.spawn_local({
        let (stack, stop, outcome) = (stack.clone(), stop.clone(), outcome.clone());
        let signal = signals.stop();
        async move {
            outcome.set(tokio::select! {
                claimed = stack.claimed() => Some(claimed),
                () = signal => None,
            });
            stop.set();
        }
    });
    driver::run(shards, &stop, driver::SPIN).map_err(Failure::Stack)?;
    drop(task);
    match outcome.take() {
        Some(Ok(())) => Ok(true),
        Some(Err(conflict)) => Err(Failure::Conflict(conflict)),
        None => Ok(false),
    }
}

/// Logs every conflict over an address, until the task is aborted.
pub(super) async fn watch(stack: Handle, log: Log) {
    loop {
        log.write(Record::Conflict(stack.conflict().await));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_interface_is_not_the_taps() {
        let address: Cidr = "127.0.0.1/8".parse().unwrap();
        // In a new namespace the loopback interface is down and has no address.
        if kernel_address("lo", address.address()).unwrap().is_some() {
            let refusal = refuse_others("lw1", &[address], &[address]);
            assert!(matches!(refusal, Err(Failure::HostAddress(held)) if held.interface == "lo"));
        }
        let free = "192.0.2.77/24".parse().unwrap();
        let is_fine = |tap, host, ours| refuse_others(tap, &[host], &[ours]).is_ok();
        assert!(is_fine("lo", address, address) && is_fine("lw1", free, address));
        // Where it has the address alone, our subnet is the TAP's.
        let elsewhere: Cidr = "192.0.2.1/24".parse().unwrap();
        assert!(is_fine("lw1", address, elsewhere));
    }
}
