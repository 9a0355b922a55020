//! A shard reports the state of its addresses to the tasks that wait for it.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use lightwait::device::MemoryDevice;
use lightwait::shard::Shard;
use lightwait_core::ip::conflict::{Conflict, PROBE_LONGEST};
use lightwait_core::{Capabilities, Config, Instant, Medium};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const ADDRESSES: [&str; 2] = ["10.0.0.1/24", "fd00::1/64"];

/// Two shards on one Ethernet, each with its addresses and its time to probe them.
fn two(of_each: [(&[&str], Duration); 2]) -> [Shard; 2] {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let (one, other) = MemoryDevice::pair(plain, 64);
    let mut numbers = 0..;
    let mut make = |device, (addresses, address_probe): (&[&str], Duration)| {
        let number: usize = numbers.next().unwrap();
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let config = Config {
            hardware: MACS[number],
            address_probe,
            address_announce: true,
            addresses: addresses.clone(),
            ..Config::new(plain, addresses[0], [number as u8; 32])
        };
        Shard::in_made_time(config, Box::new(device)).unwrap()
    };
    let [first, second] = of_each;
    [make(one, first), make(other, second)]
}

/// Runs shards from one second to another.
fn run(shards: &mut [Shard], seconds: Range<u64>) {
    let end = Instant::from_millis(seconds.end * 1000);
    let mut now = Instant::from_millis(seconds.start * 1000);
    while now < end {
        for shard in &mut *shards {
            shard.turn(now);
        }
        let next = shards.iter().filter_map(|shard| shard.deadline(now)).min();
        now = next.unwrap_or(end).max(now).min(end);
    }
}

#[test]
fn who_waits_for_its_addresses_waits_as_long_as_they_are_probed() {
    let mut shards = two([(&ADDRESSES, PROBE_LONGEST), (&["10.0.0.2/24"], Duration::ZERO)]);
    let wait = |shard: &Shard| {
        let handle = shard.handle();
        shard.handle().spawn_local(async move { handle.claimed().await })
    };
    let tasks: Vec<_> = shards.iter().map(wait).collect();
    run(&mut shards, 0..1);
    assert_eq!([tasks[0].is_finished(), tasks[1].is_finished()], [false, true]);
    run(&mut shards, 1..8);
    assert!(tasks[0].is_finished());
}

#[test]
fn who_waits_is_told_of_an_address_that_is_somebody_elses() {
    for (address, claimed) in ADDRESSES.iter().zip(["10.0.0.1", "fd00::1"]) {
        let address: &[&str] = &[address];
        // The first shard owns the address long before the second probes for it.
        let mut shards = two([(address, Duration::ZERO), (address, PROBE_LONGEST)]);
        let outcome = Rc::new(RefCell::new(None));
        let (handle, told) = (shards[1].handle(), outcome.clone());
        shards[1].handle().spawn_local(async move {
            *told.borrow_mut() = Some(handle.claimed().await);
        });
        run(&mut shards[..1], 0..2);
        run(&mut shards, 2..11);
        let address = claimed.parse().unwrap();
        let conflict = Conflict { address, claimant: MACS[0], kept: false };
        assert_eq!(*outcome.borrow(), Some(Err(conflict)));
    }
}

#[test]
fn who_waits_is_told_of_every_claim_that_was_answered() {
    // Neither shard probes: each announces the address, and receives the other's announcement.
    let address: &[&str] = &ADDRESSES[..1];
    let mut shards = two([(address, Duration::ZERO), (address, Duration::ZERO)]);
    let told = Rc::new(RefCell::new(Vec::new()));
    for (number, shard) in shards.iter().enumerate() {
        let (handle, told) = (shard.handle(), told.clone());
        shard.handle().spawn_local(async move {
            loop {
                let conflict = handle.conflict().await;
                told.borrow_mut().push((number, conflict.claimant, conflict.kept));
            }
        });
    }
    run(&mut shards, 0..9);
    let mut told = told.take();
    told.sort_unstable();
    assert_eq!(told, [(0, MACS[1], true), (1, MACS[0], true)]);
}
