//! The calls into C, which only the owner of an [`Instance`] can make.
#![allow(unsafe_code, reason = "functions in C are unsafe to call")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{End, Purpose};

mod c {
    unsafe extern "C" {
        pub(super) fn bench_begin();
        pub(super) fn bench_mode(what: u32);
        pub(super) fn bench_open();
        pub(super) fn bench_deliver(end: u32);
        pub(super) fn bench_tick();
        pub(super) fn bench_keep(count: u32);
        pub(super) fn bench_set_aside();
        pub(super) fn bench_bring_back();
        pub(super) fn bench_end();
        pub(super) fn bench_time_waits() -> u32;
        pub(super) fn bench_packets() -> u64;
        pub(super) fn bench_done() -> u64;
        pub(super) fn bench_opened() -> u64;
        pub(super) fn bench_faults() -> u64;
        pub(super) fn bench_heap() -> u64;
    }
}

/// lwIP uses global variables: there is one instance, with one user at a time.
static INSTANCE: Mutex<()> = Mutex::new(());

/// The right to call lwIP. Dropping it ends all connections.
#[derive(Debug)]
pub struct Instance(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Instance {
    /// Waits until the instance is free.
    pub fn begin() -> Instance {
        // A failed test left the instance clean: dropping it ended its connections.
        let guard = INSTANCE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held, as it is whenever there is an `Instance`, so that no two
        // threads are in lwIP; `Instance` is not `Send`, so that none takes over on the way. This
        // first call initialises lwIP before anything else is asked of it. The same holds for all
        // calls below; none has an argument that could be wrong: numbers of an enum, or any number
        // at all.
        unsafe { c::bench_begin() };
        Instance(guard)
    }

    /// Sets the purpose of connections opened from now on.
    pub fn set_purpose(&mut self, purpose: Purpose) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_mode(purpose as u32) }
    }

    /// Opens a connection.
    pub fn open(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_open() }
    }

    /// Hands the waiting packets to an end, which answers.
    pub fn deliver(&mut self, end: End) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_deliver(end as u32) }
    }

    /// Reports that 250 ms have passed.
    pub fn tick(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_tick() }
    }

    /// Ends TIME-WAIT of all but the newest `count` connections.
    pub fn keep(&mut self, count: u32) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_keep(count) }
    }

    /// Hides connections in TIME-WAIT from lwIP, so that its walks are short.
    pub fn set_aside(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_set_aside() }
    }

    /// Undoes [`Instance::set_aside`].
    pub fn bring_back(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_bring_back() }
    }

    /// Connections in TIME-WAIT.
    pub fn time_waits(&self) -> u32 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_time_waits() }
    }

    /// Packets sent by either end.
    pub fn packets(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_packets() }
    }

    /// The work done: conversations, answers, bytes received or connections opened, by purpose.
    pub fn done(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_done() }
    }

    /// Connections that the client has open.
    pub fn opened(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_opened() }
    }

    /// The number of errors.
    pub fn faults(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_faults() }
    }

    /// Bytes of the C library's heap in use, ours included, in the main thread.
    pub fn heap_bytes(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { c::bench_heap() }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { c::bench_end() }
    }
}
