//! A turn of a whole host with nothing due: time passes, nothing is sent, and the host returns the
//! time of its next work. A shard asks no more of the engine in such a turn. The shard's clock and
//! device are not part of the bench.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use lightwait_core::config::Scheme;
use lightwait_core::tcp::{Keepalive, SocketOptions};
use lightwait_core::{Event, Host, Instant, Outbox, Readiness};

use crate::instructions::section;
use crate::sample::Samples;
use crate::stacks::raw::{
    Application, Ends, OPENED_AT_ONCE, QUIET, SERVER, Sources, configs, room_for,
};

/// The name of the operation.
pub(super) const NAME: &str = "host_turn";
/// Turns measured together, a microsecond apart.
const TURNS: usize = 10_000;

/// Opens connections that are then inactive, each with its timer set.
struct Opening {
    sources: Sources,
    options: SocketOptions,
    left: usize,
    opening: usize,
}

impl Application for Opening {
    fn on_client(&mut self, _host: &mut Host, _now: Instant, event: Event) {
        if matches!(event, Event::Ready(_, readiness) if readiness.contains(Readiness::WRITABLE)) {
            self.opening -= 1;
        }
    }

    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        if let Event::Acceptable(listener) = event {
            while host.accept(now, listener).is_ok() {}
        }
    }

    fn before_client(&mut self, host: &mut Host, now: Instant) {
        while self.left > 0 && self.opening < OPENED_AT_ONCE {
            let source = self.sources.take();
            host.connect_with(now, source, SERVER, self.options).expect("a free port");
            self.left -= 1;
            self.opening += 1;
        }
    }
}

/// A host with `connections` idle connections, each with its keepalive timer set, and the time from
/// which they are quiet. Their peer is gone.
pub fn idle_host(scheme: Scheme, connections: usize) -> (Host, Instant) {
    let mut ends = Ends::new(configs(1500).map(|config| {
        let mut config = room_for(config, connections + OPENED_AT_ONCE);
        config.tcp.timers = scheme;
        config
    }));
    ends.server.host.listen(SERVER, 4096).expect("a free port");
    let tcp = &ends.client.host.config().tcp;
    let keepalive = Some(Keepalive::by_default(tcp));
    let mut opening = Opening {
        sources: Sources::new(0, connections),
        options: SocketOptions { keepalive, ..SocketOptions::new(tcp) },
        left: connections,
        opening: 0,
    };
    while opening.left + opening.opening > 0 {
        let now = ends.now;
        ends.turn(&mut opening, now);
    }
    ends.pass(&mut opening, QUIET);
    assert_eq!(ends.client.host.connections(), connections);
    (ends.client.host, ends.now)
}

/// Runs turns of the host.
fn turns(host: &mut Host, outbox: &mut Outbox, begin: Instant) {
    for us in 0..TURNS as u64 {
        let now = black_box(begin + Duration::from_micros(us));
        host.on_time(now);
        host.emit(now, outbox);
        black_box((host.wants_emit(), host.deadline()));
    }
    assert!(outbox.is_empty(), "nothing is due");
}

/// Adds the cost of a turn.
pub(super) fn time(scheme: Scheme, connections: usize, repetitions: usize, samples: &mut Samples) {
    let (mut host, begin) = idle_host(scheme, connections);
    let mut outbox = Outbox::new(1);
    for _ in 0..repetitions {
        let clock = Clock::now();
        turns(&mut host, &mut outbox, begin);
        samples.add(NAME, clock.elapsed().as_nanos() as f64 / TURNS as f64);
    }
}

/// Runs a repetition, for callgrind to count.
pub(super) fn instructions(scheme: Scheme, connections: usize) {
    let (mut host, begin) = idle_host(scheme, connections);
    let mut outbox = Outbox::new(1);
    section(NAME, TURNS, || turns(&mut host, &mut outbox, begin));
}
