//! Frames that come in bursts do what they do one by one.

use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;
use proptest::collection::vec;
use proptest::prelude::*;

use super::pair::{CLIENT, SERVER, config};
use crate::event::{ConnectionId, Event, ListenerId, Readiness};
use crate::frame::{Medium, Outbox, RxFrame};
use crate::host::Host;
use crate::tcp::syn_cache::SynCache;
use crate::time::{Duration, Instant};

/// What the client does before frames go over again.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens from one of few ports, so that tuples come again: out of TIME-WAIT too.
    Open(u16),
    /// Writes so much on one of its connections.
    Write(usize, usize),
    Close(usize),
    Abort(usize),
    /// Frames go over; the one of this number is lost, or doubled, or cut short, or broken.
    Cross(usize, Fate),
    /// So many milliseconds pass.
    Wait(u16),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Doubled,
    Short,
    Broken,
}

fn step() -> impl Strategy<Value = Step> {
    let (lost, doubled) = (Just(Fate::Lost), Just(Fate::Doubled));
    let fate = prop_oneof![lost, doubled, Just(Fate::Short), Just(Fate::Broken)];
    let len = prop_oneof![3 => 1usize..3000, 1 => 1usize..40_000];
    prop_oneof![
        6 => (0u16..40).prop_map(Step::Open),
        6 => (0usize..40, len).prop_map(|(which, len)| Step::Write(which, len)),
        4 => (0usize..40).prop_map(Step::Close),
        1 => (0usize..40).prop_map(Step::Abort),
        5 => (0usize..60, fate).prop_map(|(number, fate)| Step::Cross(number, fate)),
        1 => (1u16..3000).prop_map(Step::Wait),
    ]
}

/// Two hosts, and all that they have said.
struct World {
    now: Instant,
    client: Host,
    server: Host,
    listener: ListenerId,
    open: Vec<ConnectionId>,
    events: Vec<Event>,
    frames: Vec<Vec<u8>>,
}

impl World {
    fn new(medium: Medium) -> World {
        let [mut client, mut server] = [CLIENT, SERVER].map(config);
        for (config, last) in [(&mut client, 1), (&mut server, 2)] {
            config.device.medium = medium;
            config.hardware = [2, 0, 0, 0, 0, last];
        }
        server.tcp.time_wait.length = Duration::from_secs(2);
        let mut server = Host::new(server).unwrap();
        let listener = server.listen(at(SERVER, 80), 64).unwrap();
        World {
            now: Instant::from_millis(1000),
            client: Host::new(client).unwrap(),
            server,
            listener,
            open: Vec::new(),
            events: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// `sizes`: how long the bursts are in which the frames come, in turn.
    fn take(&mut self, step: Step, sizes: &mut impl Iterator<Item = usize>) {
        let (now, count) = (self.now, self.open.len().max(1));
        let nth = |open: &[ConnectionId], which| open.get(which % count).copied();
        match step {
            Step::Open(port) => {
                let opened = self.client.connect(now, at(CLIENT, 5000 + port), at(SERVER, 80));
                self.open.extend(opened);
            }
            Step::Write(which, len) => {
                if let Some(id) = nth(&self.open, which) {
                    let _ = self.client.write(now, id, &[b'x'; 40_000][..len]);
                }
            }
            Step::Close(which) | Step::Abort(which) => {
                let Some(id) = nth(&self.open, which) else { return };
                self.open.swap_remove(which % count);
                match step {
                    Step::Close(_) => self.client.close(now, id),
                    _ => self.client.abort(now, id),
                }
            }
            Step::Cross(number, fate) => {
                self.cross(Some((number, fate)), sizes);
                self.cross(None, sizes);
            }
            Step::Wait(ms) => {
                self.now = now + Duration::from_millis(ms.into());
                self.cross(None, sizes);
            }
        }
    }

    /// What each host has to say reaches the other.
    fn cross(&mut self, fate: Option<(usize, Fate)>, sizes: &mut impl Iterator<Item = usize>) {
        self.now = self.now + Duration::from_millis(1);
        let World { now, client, server, frames, .. } = self;
        hand_over(*now, client, server, (fate, sizes), frames);
        self.serve();
        let World { now, client, server, events, frames, .. } = self;
        hand_over(*now, server, client, (fate, sizes), frames);
        while let Some(event) = client.event() {
            events.push(event);
            if let Event::Ready(id, _) = event {
                // Or closing it would reset it.
                let _ = client.read(*now, id, &mut [0; 8192]);
            }
        }
    }

    /// The server reads what has come, answers, and closes now and then.
    fn serve(&mut self) {
        let now = self.now;
        while let Ok(id) = self.server.accept(now, self.listener) {
            let _ = self.server.write(now, id, b"welcome");
        }
        while let Some(event) = self.server.event() {
            self.events.push(event);
            let Event::Ready(id, readiness) = event else { continue };
            let mut buffer = [0; 4096];
            let len = self.server.read(now, id, &mut buffer);
            if readiness.contains(Readiness::CLOSED) || matches!(len, Ok(..300)) {
                self.server.close(now, id);
            } else {
                let _ = self.server.write(now, id, &buffer[..200]);
            }
        }
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn hand_over(
    now: Instant,
    from: &mut Host,
    to: &mut Host,
    (fate, sizes): (Option<(usize, Fate)>, &mut impl Iterator<Item = usize>),
    said: &mut Vec<Vec<u8>>,
) {
    from.on_time(now);
    let mut outbox = Outbox::new(100);
    from.emit(now, &mut outbox);
    let mut frames: Vec<Vec<u8>> = outbox.frames().map(|frame| frame.head.clone()).collect();
    said.extend(frames.iter().cloned());
    match fate {
        Some((number, fate)) if number < frames.len() => match fate {
            Fate::Lost => drop(frames.remove(number)),
            Fate::Doubled => frames.push(frames[number].clone()),
            Fate::Short => frames[number].truncate(33),
            Fate::Broken => frames[number].iter_mut().rev().take(1).for_each(|byte| *byte ^= 1),
        },
        _ => {}
    }
    let mut left: &[Vec<u8>] = &frames;
    while !left.is_empty() {
        let size = sizes.next().map_or(1, |size| size.min(left.len()));
        let burst: Vec<RxFrame<'_>> = left[..size].iter().map(|f| RxFrame::plain(f)).collect();
        to.on_frames(now, &burst);
        left = &left[size..];
    }
}

proptest! {
    /// A frame may open, close or take the place of what a later one of its burst is for.
    #[test]
    fn however_frames_are_divided_they_do_the_same(
        steps in vec(step(), 1..120), sizes in vec(1usize..70, 1..20), ethernet: bool,
    ) {
        let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
        let [mut one_by_one, mut in_bursts] = [(); 2].map(|()| World::new(medium));
        let (mut ones, mut sizes) = (core::iter::repeat(1), sizes.into_iter().cycle());
        for step in steps {
            one_by_one.take(step, &mut ones);
            in_bursts.take(step, &mut sizes);
            prop_assert_eq!(&one_by_one.events, &in_bursts.events);
            prop_assert_eq!(&one_by_one.frames, &in_bursts.frames);
        }
        for (one, other) in
            [(&one_by_one.client, &in_bursts.client), (&one_by_one.server, &in_bursts.server)]
        {
            prop_assert_eq!(one.counters(), other.counters());
            prop_assert_eq!(one.deadline(), other.deadline());
            let [one, other] = [one, other].map(|host| format!("{:?}", host.slots));
            prop_assert_eq!(one, other);
        }
    }
}

proptest! {
    /// The words of the usual layout, and the shortcuts behind them, do what the general parser and
    /// the one dispatch do.
    #[test]
    fn whichever_parser_takes_segments_they_do_the_same(
        steps in vec(step(), 1..120), sizes in vec(1usize..70, 1..20), small_cache: bool,
    ) {
        let [mut usual, mut any] = [(); 2].map(|()| World::new(Medium::Ip));
        for host in [&mut any.client, &mut any.server] {
            host.live.knows_no_usual = true;
        }
        for world in [&mut usual, &mut any] {
            if small_cache {
                // Some handshakes are answered with a cookie.
                let (ticks, rto) = (world.server.live.ticks, world.server.config.tcp.rto.initial);
                world.server.opening.syn_cache = SynCache::new(2, rto, ticks);
            }
        }
        let mut sizes = [(); 2].map(|()| sizes.clone().into_iter().cycle());
        for step in steps {
            // Few ports and short texts: the server closes first, and its records are met again.
            let step = match step {
                Step::Open(port) => Step::Open(port % 4),
                Step::Write(which, len) => Step::Write(which, 1 + len % 600),
                step => step,
            };
            usual.take(step, &mut sizes[0]);
            any.take(step, &mut sizes[1]);
            prop_assert_eq!(&usual.events, &any.events);
            prop_assert_eq!(&usual.frames, &any.frames);
        }
        for (one, other) in [(&usual.client, &any.client), (&usual.server, &any.server)] {
            prop_assert_eq!(one.counters(), other.counters());
            prop_assert_eq!(one.deadline(), other.deadline());
            let [one, other] = [one, other].map(|host| format!("{:?}", host.slots));
            prop_assert_eq!(one, other);
        }
    }
}

#[test]
fn texts_in_a_row_are_taken_together_and_broken_ones_are_not() {
    let mut world = World::new(Medium::Ip);
    let mut ones = core::iter::repeat(1);
    for step in [Step::Open(1), Step::Wait(1), Step::Wait(1)] {
        world.take(step, &mut ones);
    }
    let World { now, client, server, open, .. } = &mut world;
    let _ = client.write(*now, open[0], &[b'x'; 10_000]);
    let mut outbox = Outbox::new(100);
    client.emit(*now, &mut outbox);
    let mut frames: Vec<Vec<u8>> = outbox.frames().map(|frame| frame.head.clone()).collect();
    assert_eq!(frames.len(), 7);
    frames[4][1000] ^= 1;
    let burst: Vec<RxFrame<'_>> = frames.iter().map(|frame| RxFrame::plain(frame)).collect();
    assert_eq!(server.coalesce(*now, &burst), 0, "the first acknowledges the welcome");
    server.on_frame(*now, burst[0]);
    assert_eq!(server.coalesce(*now, &burst[1..]), 3);
    assert_eq!(server.coalesce(*now, &burst[4..]), 0, "its checksum is wrong");
    assert_eq!(server.coalesce(*now, &burst[5..]), 0, "it comes too early");
    assert_eq!(server.counters().checksum_errors, 0, "single frames count it");
}
