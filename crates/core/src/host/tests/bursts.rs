//! Frames that come in bursts do what they do one by one, and fast paths do what the steps do.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
use proptest::collection::vec;
use proptest::prelude::*;

use super::pair::{config, correct_checksum};
use crate::event::{ConnectionId, Event, ListenerId, Readiness};
use crate::frame::{BURST, Medium, Outbox, RxFrame};
use crate::host::Host;
use crate::host::prefetch::MANY;
use crate::tcp::SocketOptions;
use crate::tcp::syn_cache::{SynCache, SynLimits};
use crate::time::{Duration, Instant};
use crate::wire::ip;

/// What the client does before frames go over again.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens from one of few ports, so that tuples come again: out of TIME-WAIT too.
    Open(u16),
    /// Writes so much on one of its connections.
    Write(usize, usize),
    Close(usize),
    Abort(usize),
    /// Frames go over; the one of this number meets its fate.
    Cross(usize, Fate),
    /// So many milliseconds pass.
    Wait(u16),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Doubled,
    Short,
    /// This bit of it is wrong.
    Broken(usize),
    /// This bit of its TCP header is another, and the checksum is right.
    Changed(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        2 => Just(Fate::Lost),
        2 => Just(Fate::Doubled),
        1 => Just(Fate::Short),
        2 => (0usize..12_000).prop_map(Fate::Broken),
        4 => (0usize..8 * 40).prop_map(Fate::Changed),
    ];
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

/// What both hosts have in common.
#[derive(Clone, Copy, Debug)]
struct Setting {
    medium: Medium,
    ipv6: bool,
    timestamps: bool,
    /// Some handshakes are answered with a cookie.
    small_cache: bool,
    /// The hop limit of the server's packets, where it sets one.
    hop_limit: Option<u8>,
}

/// Nearly always what fast paths are for.
fn any_setting() -> impl Strategy<Value = Setting> {
    let rarely = || prop::bool::weighted(0.15);
    (any::<bool>(), rarely(), rarely(), any::<bool>(), rarely()).prop_map(
        |(ethernet, ipv6, unstamped, small_cache, is_marked)| {
            let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
            let hop_limit = is_marked.then_some(33);
            Setting { medium, ipv6, timestamps: !unstamped, small_cache, hop_limit }
        },
    )
}

/// The way that frames take through a host.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// That of the product.
    Usual,
    /// That of the product where it has many connections: bursts are read ahead.
    Crowded,
    /// Without fast paths by the words of the fast layout, in or out.
    Steps,
}

/// Two hosts, and all that they have said.
struct World {
    way: Way,
    addresses: [&'static str; 2],
    now: Instant,
    client: Host,
    server: Host,
    listener: ListenerId,
    open: Vec<ConnectionId>,
    events: Vec<Event>,
    frames: Vec<Vec<u8>>,
}

impl World {
    fn new(setting: Setting) -> World {
        let Setting { medium, ipv6, timestamps, small_cache, hop_limit } = setting;
        let addresses =
            if ipv6 { ["fd00::1", "fd00::2"] } else { [super::pair::CLIENT, super::pair::SERVER] };
        let [mut client, mut server] = addresses.map(config);
        for (config, last) in [(&mut client, 1), (&mut server, 2)] {
            config.device.medium = medium;
            config.hardware = [2, 0, 0, 0, 0, last];
            config.tcp.timestamps = timestamps;
        }
        server.tcp.time_wait.length = Duration::from_secs(2);
        let mut server = Host::new(server).unwrap();
        let options = SocketOptions { hop_limit, ..server.default_options() };
        let listener = server.listen_with(at(addresses[1], 80), 64, options).unwrap();
        if small_cache {
            let (ticks, rto) = (server.live.ticks, server.config.tcp.rto.initial);
            server.opening.syn_cache =
                SynCache::new(SynLimits { unproven: 2, proven: 1 }, rto, ticks);
        }
        World {
            way: Way::Usual,
            addresses,
            now: Instant::from_millis(1000),
            client: Host::new(client).unwrap(),
            server,
            listener,
            open: Vec::new(),
            events: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn by(self, way: Way) -> World {
        World { way, ..self }
    }

    /// All that there is, to be compared, but for what a burst has left, the times of the last
    /// input, and freed pages that are kept. (Where a fast path finds a checksum wrong as
    /// it copies, it has taken a page and gives it back.)
    fn all(&mut self) -> [String; 2] {
        [&mut self.client, &mut self.server].map(|host| {
            host.live.guesses = None;
            (host.shared.now, host.shared.arrived) = (self.now, self.now);
            without_kept_pages(&format!("{host:?}"))
        })
    }

    /// `sizes`: how long the bursts are in which the frames come, in turn.
    fn take(&mut self, step: Step, sizes: &mut impl Iterator<Item = usize>) {
        let (now, count) = (self.now, self.open.len().max(1));
        let nth = |open: &[ConnectionId], which| open.get(which % count).copied();
        match step {
            Step::Open(port) => {
                let [client, server] = self.addresses;
                let opened = self.client.connect(now, at(client, 5000 + port), at(server, 80));
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
        let World { way, now, client, server, frames, .. } = self;
        hand_over((*way, *now), client, server, fate, sizes, frames);
        self.serve();
        let World { way, now, client, server, events, frames, .. } = self;
        hand_over((*way, *now), server, client, fate, sizes, frames);
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

/// `text`, the debug form of a host, without the pages that its pool keeps.
fn without_kept_pages(text: &str) -> String {
    let behind = |part: &str| part.split_once("len: ")?.1.split_once(" }").map(|all| all.1.into());
    let mut parts = text.split("Freed { places: [");
    let first = parts.next().unwrap_or_default().to_string();
    parts.map(|part| behind(part).unwrap_or_else(|| part.to_string())).fold(first, |a, b| a + &b)
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn hand_over(
    (way, now): (Way, Instant),
    from: &mut Host,
    to: &mut Host,
    fate: Option<(usize, Fate)>,
    sizes: &mut impl Iterator<Item = usize>,
    said: &mut Vec<Vec<u8>>,
) {
    from.on_time(now);
    let mut outbox = Outbox::new(100);
    match way {
        Way::Steps => from.emit_all::<false>(now, &mut outbox),
        Way::Usual | Way::Crowded => from.emit(now, &mut outbox),
    }
    let mut frames: Vec<Vec<u8>> = outbox.frames().map(|frame| frame.head.clone()).collect();
    said.extend(frames.iter().cloned());
    match fate {
        Some((number, fate)) if number < frames.len() => match fate {
            Fate::Lost => drop(frames.remove(number)),
            Fate::Doubled => frames.push(frames[number].clone()),
            Fate::Short => frames[number].truncate(33),
            Fate::Broken(bit) => flip(&mut frames[number], bit),
            Fate::Changed(bit) => change(&mut frames[number][to.link_bytes()..], bit),
        },
        _ => {}
    }
    let mut left: &[Vec<u8>] = &frames;
    while !left.is_empty() {
        let size = sizes.next().map_or(1, |size| size.min(left.len()));
        let burst: Vec<RxFrame<'_>> = left[..size].iter().map(|f| RxFrame::plain(f)).collect();
        match way {
            Way::Usual => to.on_frames(now, &burst),
            Way::Crowded => {
                burst.chunks(BURST).for_each(|burst| to.take_prefetched::<true>(now, burst));
            }
            Way::Steps => to.take_frames::<false>(now, &burst),
        }
        left = &left[size..];
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    let at = bit / 8 % bytes.len();
    bytes[at] ^= 1 << (bit % 8);
}

/// Flips a bit of the TCP header, if `packet` has one, and makes the checksum right again.
fn change(packet: &mut [u8], bit: usize) {
    let payload = match ip::Packet::parse(packet) {
        Ok(parsed) if parsed.protocol == ip::protocol::TCP => parsed.payload.len(),
        _ => return,
    };
    let header = packet.len() - payload;
    flip(&mut packet[header..][..payload.min(40)], bit);
    correct_checksum(packet);
}

proptest! {
    /// A frame may open, close or take the place of what a later one of its burst is for.
    #[test]
    fn however_frames_are_divided_they_do_the_same(
        steps in vec(step(), 1..120), sizes in vec(1usize..70, 1..20), setting in any_setting(),
    ) {
        let mut worlds = [World::new(setting), World::new(setting).by(Way::Crowded)];
        live_alike(&mut worlds, &steps, [&[1], &sizes])?;
    }
}

proptest! {
    /// What reads and writes the words of the fast layout does what the general parser, the one
    /// dispatch, the steps of sending and the general writer do: `take_fast_segment`, `coalesce`,
    /// `emit_predicted` and replies by words. Other layouts go the general way in both worlds.
    #[test]
    fn fast_paths_do_what_the_steps_do(
        steps in vec(step(), 1..120), sizes in vec(1usize..70, 1..20), setting in any_setting(),
        is_short: bool, is_crowded: bool,
    ) {
        let way = if is_crowded { Way::Crowded } else { Way::Usual };
        let mut worlds = [World::new(setting).by(way), World::new(setting).by(Way::Steps)];
        let steps: Vec<Step> = steps.into_iter().map(|step| match step {
            // Few ports and short texts: the server closes first, and its records are met again.
            Step::Open(port) if is_short => Step::Open(port % 4),
            Step::Write(which, len) if is_short => Step::Write(which, 1 + len % 600),
            step => step,
        }).collect();
        live_alike(&mut worlds, &steps, [&sizes, &sizes])?;
    }
}

/// Takes both worlds, in bursts of these sizes, through `steps`: they do the same.
fn live_alike(
    worlds: &mut [World; 2],
    steps: &[Step],
    sizes: [&[usize]; 2],
) -> Result<(), TestCaseError> {
    let [one, other] = worlds;
    let mut sizes = sizes.map(|sizes| sizes.iter().copied().cycle());
    for step in steps {
        one.take(*step, &mut sizes[0]);
        other.take(*step, &mut sizes[1]);
        prop_assert_eq!(&one.events, &other.events);
        prop_assert_eq!(&one.frames, &other.frames);
    }
    for (one, other) in one.all().iter().zip(&other.all()) {
        let first = one.bytes().zip(other.bytes()).position(|(one, other)| one != other);
        let near = first.map(|at| [one, other].map(|all| &all[at.saturating_sub(200)..at + 20]));
        prop_assert!(one == other, "{near:#?}");
    }
    Ok(())
}

#[test]
fn texts_in_a_row_are_taken_together_and_broken_ones_are_not() {
    let mut world = World::new(Setting {
        medium: Medium::Ip,
        ipv6: false,
        timestamps: true,
        small_cache: false,
        hop_limit: None,
    });
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

/// Opens so many connections in the world, from ports that follow one another.
fn open_many(
    world: &mut World,
    ports: core::ops::Range<u16>,
    sizes: &mut impl Iterator<Item = usize>,
) {
    for port in ports {
        world.take(Step::Open(port), sizes);
        if port % 32 == 31 {
            world.take(Step::Wait(1), sizes);
        }
    }
    world.take(Step::Wait(1), sizes);
}

/// Prefetching begins at its threshold, and bursts do from there on what frames do one by one.
#[test]
fn bursts_are_read_ahead_of_many_connections_and_records() {
    let setting = Setting {
        medium: Medium::Ip,
        ipv6: false,
        timestamps: true,
        small_cache: false,
        hop_limit: None,
    };
    let mut worlds = [1, BURST].map(|size| (World::new(setting), core::iter::repeat(size)));
    for (world, sizes) in &mut worlds {
        open_many(world, 0..MANY as u16 - 1, sizes);
        assert!([&world.client, &world.server].iter().all(|host| !host.is_crowded()));
        open_many(world, MANY as u16 - 1..MANY as u16, sizes);
        assert!([&world.client, &world.server].iter().all(|host| host.is_crowded()));
        for which in 0..MANY {
            world.take(Step::Close(which), sizes);
            if which % 32 == 31 {
                world.take(Step::Wait(1), sizes);
            }
        }
        assert_eq!(world.client.connections(), 0);
        assert!(world.client.is_crowded(), "by its records");
    }
    let [(one, _), (other, _)] = &worlds;
    assert!(one.events == other.events && one.frames == other.frames);
}
