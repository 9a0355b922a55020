//! Logs of connections in the simulator, where it is known what was lost.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lightwait::local::{TcpListener, TcpStream};
use lightwait::observe::{
    Again, ConnectionLog, Detector, Direction, Log, Segment, TimerChange, Watching, What,
};
use lightwait_core::Host;
use lightwait_core::capture::pcapng::Direction::{Inbound, Outbound};
use lightwait_core::tcp::State;
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::timers::Timer;
use lightwait_netem::{LinkConfig, Loss, Rate};
use lightwait_sim::{Side, World};
use lightwait_trace::graph::{self, Side as DataSide};
use lightwait_trace::{qlog, timeline};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(120);

fn watching(connections: usize, events: usize) -> Watching {
    let wanted = Arc::new(|_, _| true);
    Watching { wanted, connections, events, time: lightwait_core::time::Duration::from_secs(600) }
}

/// Sends `bytes` from A to B, and closes.
async fn transfer(server: (std::net::IpAddr, u16), bytes: usize) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(&vec![7; bytes]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

/// What A saw of transfers, `times` one after the other, and the world behind them.
fn observed(link: &LinkConfig, watching: Watching, times: usize, bytes: usize) -> (Log, World) {
    let mut world = World::two_hosts(link, 7);
    let server = (world.address(Side::B), 80);
    let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
    world.spawn(Side::B, async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut chunk = vec![0; 65_536];
            while stream.read(&mut chunk).await.unwrap() > 0 {}
        }
    });
    let handle = world.handle(Side::A);
    handle.observe(watching);
    let done = world.run(Side::A, LIMIT, async move {
        for _ in 0..times {
            transfer(server, bytes).await;
        }
    });
    done.unwrap();
    world.run_for(Duration::from_secs(1)).unwrap();
    (handle.observed().unwrap(), world)
}

fn lossy() -> LinkConfig {
    LinkConfig {
        rate: Rate::BitsPerSecond(20_000_000),
        delay: Duration::from_millis(10),
        loss: Loss::Uniform(0.02),
        ..LinkConfig::default()
    }
}

fn segments(log: &ConnectionLog, direction: Direction) -> Vec<Segment> {
    let segment = |what| if let What::Segment(it) = what { Some(it) } else { None };
    let all = log.events.iter().filter_map(|event| segment(event.what));
    all.filter(|it| it.direction == direction).collect()
}

#[test]
fn a_lossy_transfer_tells_what_was_lost_and_how_it_was_mended() {
    let (log, world) = observed(&lossy(), watching(4, 1 << 20), 1, 600_000);
    let [log] = &log.connections[..] else { panic!("{} connections", log.connections.len()) };
    assert_eq!(log.dropped, 0);
    let counters = world.host(Side::A, |host: &Host| *host.counters());
    let (sent, received) = (segments(log, Outbound), segments(log, Inbound));
    assert_eq!(sent.len() as u64, counters.segments_out);
    assert_eq!(received.len() as u64, counters.segments_in);
    let again: Vec<_> = sent.iter().filter_map(|it| it.again).collect();
    assert_eq!(again.len() as u64, counters.retransmits, "{again:?}");
    assert!(again.contains(&Again::FastRecovery), "{again:?}");
    let once: u64 = sent.iter().filter(|it| it.again.is_none()).map(|it| u64::from(it.len)).sum();
    assert_eq!(once, 600_000);

    let count = |test: &dyn Fn(&What) -> bool| {
        log.events.iter().filter(|event| test(&event.what)).count() as u64
    };
    let begun = count(&|it| matches!(it, What::Recovery { old: Mode::Open, new: Mode::Fast, .. }));
    assert_eq!(begun, counters.fast_recoveries);
    let by_rack =
        |it: &What| matches!(it, What::Lost { by: Detector::Rack | Detector::RackTimer, .. });
    assert!(count(&by_rack) > 0);
    let timeouts = count(&|it| matches!(it, What::Recovery { new: Mode::Timeout, .. }));
    assert!(timeouts <= counters.timeouts);
    let fired = |it: &What| {
        let change = TimerChange::Fired;
        *it == What::Timer { timer: Timer::Retransmit, change }
    };
    assert!(count(&fired) >= counters.timeouts + counters.loss_probes);
    let states: Vec<_> = log.events.iter().filter_map(|event| state(&event.what)).collect();
    let opened = [State::SynSent, State::Established, State::FinWait1];
    assert_eq!((&states[..3], states.last()), (&opened[..], Some(&State::TimeWait)));
}

fn state(what: &What) -> Option<State> {
    match what {
        What::Opened { state, .. } => Some(*state),
        What::State { new, .. } => Some(*new),
        _ => None,
    }
}

/// The same frames leave whether somebody looks or not.
#[test]
fn an_observed_world_does_what_another_does() {
    let digest = |watching: Option<Watching>| {
        let mut world = World::two_hosts(&lossy(), 3);
        let server = (world.address(Side::B), 80);
        let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
        world.spawn(Side::B, async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
        });
        if let Some(watching) = watching {
            world.handle(Side::A).observe(watching.clone());
            world.handle(Side::B).observe(watching);
        }
        let echoed = world.run(Side::A, LIMIT, async move {
            let mut stream = TcpStream::connect(server).await.unwrap();
            let bytes = vec![7; 200_000];
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            back.len()
        });
        assert_eq!(echoed, Ok(200_000));
        world.cable().digest()
    };
    assert_eq!(digest(None), digest(Some(watching(8, 1 << 16))));
    assert_eq!(digest(None), digest(Some(watching(0, 1))));
}

#[test]
fn rings_and_connections_are_bounded_and_say_what_they_lack() {
    let (whole, _) = observed(&LinkConfig::default(), watching(8, 1 << 16), 3, 50_000);
    let (cut, _) = observed(&LinkConfig::default(), watching(2, 20), 3, 50_000);
    assert_eq!((whole.connections.len(), whole.left_out), (3, 0));
    assert_eq!(cut.connections.len(), 2);
    assert!(cut.left_out > 0, "the third was seen, and there was no room");
    for (whole, cut) in whole.connections.iter().zip(&cut.connections) {
        assert_eq!(cut.events.len(), 20);
        assert_eq!(cut.dropped as usize + cut.events.len(), whole.events.len());
        assert_eq!(cut.events.back(), whole.events.back(), "the oldest have gone");
    }
}

#[test]
fn what_nobody_ends_ends_by_itself() {
    let mut world = World::two_hosts(&LinkConfig::default(), 1);
    let handle = world.handle(Side::A);
    let time = lightwait_core::time::Duration::from_secs(2);
    handle.observe(Watching { time, ..watching(1, 1) });
    // Something must happen, for the shard to run at all.
    let sleeps = async {
        for _ in 0..2 {
            lightwait::rt::sleep(Duration::from_millis(1001)).await;
        }
    };
    world.run(Side::A, LIMIT, sleeps).unwrap();
    assert!(handle.observed().is_none());
}

#[test]
fn a_stalled_reader_closes_the_window_and_blocks_the_writer() {
    let mut world = World::two_hosts(&LinkConfig::default(), 7);
    let server = (world.address(Side::B), 80);
    let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
    world.spawn(Side::B, async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        lightwait::rt::sleep(Duration::from_secs(20)).await;
        let mut chunk = vec![0; 65_536];
        while stream.read(&mut chunk).await.unwrap() > 0 {}
    });
    let handle = world.handle(Side::A);
    handle.observe(watching(1, 1 << 20));
    world.run(Side::A, LIMIT, transfer(server, 20_000_000)).unwrap();
    let log = handle.observed().unwrap();
    let events: Vec<_> = log.connections[0].events.iter().map(|event| event.what).collect();
    let place = |test: &dyn Fn(&What) -> bool| events.iter().position(test).unwrap();
    let waits = place(&|it| matches!(it, What::Writer { waits: true, .. }));
    let closed = place(&|it| matches!(it, What::PeerWindow { bytes: 0 }));
    let opened = place(&|it| matches!(it, What::PeerWindow { bytes: 1.. }));
    assert!(waits < opened && closed < opened, "{waits} {closed} {opened}");
    let probe = What::Timer { timer: Timer::Persist, change: TimerChange::Fired };
    assert!(events[closed..opened].contains(&probe));
}

#[test]
fn what_is_written_is_read_again_and_drawn() {
    let (mut log, world) = observed(&lossy(), watching(4, 1 << 20), 1, 300_000);
    // A world's time has no date.
    log.zero = SystemTime::UNIX_EPOCH;
    let mut written = Vec::new();
    qlog::write(std::slice::from_ref(&log), "0", &mut written).unwrap();
    let traces = qlog::read(&written).unwrap();
    let [trace] = &traces[..] else { panic!("{} traces", traces.len()) };
    let events = &log.connections[0].events;
    assert_eq!(trace.entries.len(), events.len());
    let again = trace.segments().filter(|(_, it)| it.again.is_some()).count();
    let retransmits = world.host(Side::A, |host: &Host| host.counters().retransmits);
    assert_eq!(again as u64, retransmits);
    assert_eq!(DataSide::busier(trace), DataSide::Sent);
    let svg = graph::svg(trace, DataSide::Sent).unwrap();
    let text = timeline(trace);
    if let Some(directory) = std::env::var_os("LIGHTWAIT_PICTURES") {
        let directory = std::path::Path::new(&directory);
        std::fs::write(directory.join("lossy.svg"), &svg).unwrap();
        std::fs::write(directory.join("lossy.txt"), &text).unwrap();
    }
    assert!(svg.contains("<title>fast_recovery</title>") && svg.contains("held lost, by "));
    assert_eq!(text.lines().count(), events.len() + 1);
    assert!(text.contains("again: fast_recovery") && text.contains("loss_detected"));
}

#[test]
fn a_receiver_tells_its_sack_blocks_and_scaled_windows() {
    let mut world = World::two_hosts(&lossy(), 5);
    let server = (world.address(Side::B), 80);
    let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
    world.spawn(Side::B, async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut chunk = vec![0; 65_536];
        while stream.read(&mut chunk).await.unwrap() > 0 {}
    });
    let handle = world.handle(Side::B);
    handle.observe(watching(1, 1 << 20));
    world.run(Side::A, LIMIT, transfer(server, 200_000)).unwrap();
    world.run_for(Duration::from_secs(1)).unwrap();
    let log = handle.observed().unwrap();
    let host = world.host(Side::B, |host: &Host| *host.counters());
    let sacks = segments(&log.connections[0], Outbound);
    let came = segments(&log.connections[0], Inbound);
    assert_eq!((came.len() as u64, sacks.len() as u64), (host.segments_in, host.segments_out));
    assert!(sacks.iter().any(|it| !it.sack.is_empty()));
    let scaled = sacks.iter().filter(|it| it.window > 65_535).count();
    assert!(scaled > 0, "windows are told in bytes");
}
