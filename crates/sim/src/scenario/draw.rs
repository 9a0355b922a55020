//! Draws a scenario from a seed: its links, its hosts' configurations and its conversations.

use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::config::{
    AckConfig, AckDelay, Algorithm, BufferConfig, CongestionConfig, Disagreement, Ecn, Estimator,
    LossDetection, Scheme, SendRule, TcpConfig, TimeWaitConfig, TimeWaitState, Wish,
};
use lightwait_core::rng::Rng;
use lightwait_netem::{
    Bucket, CodelConfig, FairConfig, LinkConfig, Loss, MarkFrom, QueueLimit, Rate,
};

use super::{Conversation, Ending, Exchange, Scenario};
use crate::queues::Crew;

/// The sizing rules of send buffers.
const RULES: [SendRule; 4] = [SendRule::Round, SendRule::Los, SendRule::Fixed, SendRule::Linux];

/// The algorithms of congestion control.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Cubic, Algorithm::Reno, Algorithm::Bbr, Algorithm::Dctcp];

/// Bytes that a client sends in datagrams, at most but for its first call.
const EXCHANGE_BYTES: u64 = 500_000;

/// Draws everything, always in the same order.
pub(super) fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::from_seed(seed);
    let rng = &mut rng;
    let ipv6 = rng.chance(0.3);
    let mtu =
        if rng.chance(0.5) { 1500 } else { between(rng, if ipv6 { 1280 } else { 576 }, 9000) };
    let links = [link(rng), link(rng)];
    let tcp = [tcp(rng), tcp(rng)];
    let most = if rng.chance(0.1) { 20 } else { 4 };
    let count = 1 + rng.below(most) as usize;
    let mut scenario = Scenario {
        seed,
        // Any time: timestamps and other 32-bit clocks wrap in some worlds.
        begin: Instant::from_nanos(rng.next_u64() >> 12),
        ipv6,
        mtu: mtu as u16,
        client_ports: (1024, 65535),
        links,
        tcp,
        crews: [Crew::ONE; 2],
        pages: [None; 2],
        conversations: (0..count).map(|_| conversation(rng)).collect(),
        exchanges: Vec::new(),
        narrows: [None; 2],
    };
    scenario.tcp.iter_mut().for_each(|tcp| keep_time(rng, tcp));
    scenario.tcp.iter_mut().for_each(|tcp| place_time_wait(rng, tcp));
    scenario.links.iter_mut().for_each(|link| queue_otherwise(rng, link));
    if rng.chance(0.1) {
        let least = if ipv6 { 1280 } else { 552 };
        scenario.links[rng.below(2) as usize].mtu = Some(between(rng, least, mtu) as u16);
    }
    scenario.crews = [crew(rng), crew(rng)];
    scenario.pages = scenario.crews.map(|crew| pages(rng, crew));
    if rng.chance(0.3) {
        scenario.exchanges = (0..=rng.below(3)).map(|_| exchange(rng)).collect();
        let least = if ipv6 { 1280 } else { 552 };
        scenario.narrows = [(); 2].map(|()| {
            let narrow = (micros(rng, 1000, 5_000_000), between(rng, least, mtu) as u16);
            rng.chance(0.3).then_some(narrow)
        });
    }
    scenario
}

/// Draws one client's datagrams.
fn exchange(rng: &mut Rng) -> Exchange {
    let largest = [100, 1472, 9000, 65_507][rng.below(4) as usize];
    let least = spread(rng, 1, largest);
    let batch = if rng.chance(0.3) { between(rng, 2, 20) } else { 1 };
    // A queue without a bound and a slow link would hold all else up for minutes.
    let most = (EXCHANGE_BYTES / (batch * largest)).clamp(1, 60);
    Exchange {
        start: micros(rng, 1, 2_000_000),
        calls: spread(rng, 1, most) as u32,
        bytes: (least, between(rng, least, largest)),
        batch: batch as usize,
        pause: micros(rng, 1, 500_000),
        is_connected: rng.chance(0.5),
        dont_fragment: rng.chance(0.2),
        joined: rng.chance(0.3),
        receive_bytes: if rng.chance(0.3) { spread(rng, 200, 20_000) as u32 } else { 212_992 },
        is_unheard: rng.chance(0.1),
    }
}

/// Draws how many shards a host has, and how often its device steers wrongly. Most hosts have one.
fn crew(rng: &mut Rng) -> Crew {
    let seed = rng.next_u64();
    if rng.chance(0.7) {
        return Crew::ONE;
    }
    let shards = between(rng, 2, 8) as u16;
    let strays = if rng.chance(0.3) { 1.0 } else { rng.unit() * 0.1 };
    Crew { shards, strays, seed }
}

/// Draws how many pages a host of several shards has, if they are so few that its part may be too
/// little for a shard.
fn pages(rng: &mut Rng, crew: Crew) -> Option<usize> {
    let each = between(rng, 16, 64) as usize;
    (crew.shards > 1 && rng.chance(0.5)).then_some(each * usize::from(crew.shards))
}

/// Draws a host's clocks and timers. Each keeps its default half of the time.
fn keep_time(rng: &mut Rng, tcp: &mut TcpConfig) {
    use Estimator::{Bsd, BsdBrakmoPeterson, Fine};
    use Scheme::{OrderedList, Scan, Wheel};
    if rng.chance(0.5) {
        tcp.timers = [Wheel, Scan, OrderedList][rng.below(3) as usize];
    }
    if rng.chance(0.5) {
        tcp.rto.estimator = [Bsd, BsdBrakmoPeterson, Fine][rng.below(3) as usize];
    }
    if rng.chance(0.5) {
        tcp.clock.tick = micros(rng, 1, 500_000);
    }
    if rng.chance(0.5) {
        tcp.clock.measure_hz = spread(rng, 10, 1_000_000_000);
    }
    if rng.chance(0.5) {
        tcp.rto.floor = micros(rng, 1, 1_000_000);
    }
    if rng.chance(0.5) {
        tcp.ack.bucket_min = micros(rng, 1, 200_000);
        tcp.ack.bucket_max = tcp.ack.bucket_min + micros(rng, 1, 200_000);
    }
    if rng.chance(0.2) {
        tcp.time_wait.state = TimeWaitState::Full;
    }
}

/// Draws a host's rule for the holder of TIME-WAIT.
fn place_time_wait(rng: &mut Rng, tcp: &mut TcpConfig) {
    use Wish::{Client, Off, Ourselves, Peer, Server};
    tcp.time_wait.close_swap = rng.chance(0.3);
    if rng.chance(0.5) {
        tcp.time_wait.negotiate = [Off, Client, Server, Ourselves, Peer][rng.below(5) as usize];
    }
    // Every conversation must take place: no end may refuse one.
    tcp.time_wait.disagreement = Disagreement::FallBack;
}

fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.next_u64() % (high - low + 1)
}

/// Draws a number between `low` and `high`; each order of magnitude is equally likely.
fn spread(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let (low, high) = (low as f64, high as f64);
    (low * (high / low).powf(rng.unit())) as u64
}

fn micros(rng: &mut Rng, low: u64, high: u64) -> Duration {
    Duration::from_micros(spread(rng, low, high))
}

fn link(rng: &mut Rng) -> LinkConfig {
    let mut link = LinkConfig { seed: rng.next_u64(), ..LinkConfig::default() };
    if rng.chance(0.8) {
        link.delay = micros(rng, 10, 100_000);
    }
    if rng.chance(0.3) {
        link.jitter = micros(rng, 10, 20_000);
    }
    if rng.chance(0.5) {
        link.rate = Rate::BitsPerSecond(spread(rng, 1_000_000, 10_000_000_000));
        link.queue = QueueLimit::Bytes(spread(rng, 20_000, 1_000_000) as usize);
    }
    // Half of the worlds have no random loss: a loss there comes from a full queue, or from a bug.
    if rng.chance(0.5) {
        link.loss = match rng.below(3) {
            0 => Loss::Uniform(rng.unit() * 0.05),
            1 => Loss::Bursty { first: rng.unit() * 0.02, after_loss: rng.unit() * 0.5 },
            _ => Loss::GilbertElliott {
                good_to_bad: rng.unit() * 0.02,
                bad_to_good: 0.2 + rng.unit() * 0.8,
                loss_in_bad: rng.unit() * 0.8,
                loss_in_good: 0.0,
            },
        };
    }
    if rng.chance(0.3) {
        link.reorder = rng.unit() * 0.1;
        link.reorder_delay = micros(rng, 10, 20_000);
    }
    if rng.chance(0.3) {
        link.duplicate = rng.unit() * 0.05;
    }
    if rng.chance(0.2) {
        link.corrupt = rng.unit() * 0.01;
    }
    link
}

/// Draws how packets wait, and how they overtake. Each keeps its default most of the time.
fn queue_otherwise(rng: &mut Rng, link: &mut LinkConfig) {
    if rng.chance(0.2) {
        let bits_per_second = spread(rng, 1_000_000, 1_000_000_000);
        let burst_bytes = spread(rng, 2_000, 200_000) as usize;
        link.bucket = Some(Bucket { bits_per_second, burst_bytes });
    }
    if rng.chance(0.2) {
        link.codel = Some(CodelConfig { ecn: rng.chance(0.7), ..CodelConfig::default() });
    }
    if rng.chance(0.2) {
        let queues = spread(rng, 1, 1024) as u32;
        link.fair = Some(FairConfig { queues, ..FairConfig::default() });
    }
    if rng.chance(0.2) {
        link.mark = Some(match rng.below(3) {
            0 => MarkFrom::Packets(spread(rng, 1, 100) as usize),
            1 => MarkFrom::Bytes(spread(rng, 1_000, 100_000) as usize),
            _ => MarkFrom::Wait(micros(rng, 10, 20_000)),
        });
    }
    if rng.chance(0.2) {
        link.reorder_distance = Some(spread(rng, 1, 30) as u32);
    }
}

fn tcp(rng: &mut Rng) -> TcpConfig {
    let initial = spread(rng, 2_000, 100_000) as u32;
    TcpConfig {
        window_scaling: rng.chance(0.9),
        timestamps: rng.chance(0.7),
        sack: rng.chance(0.8),
        ecn: [Ecn::Off, Ecn::Passive, Ecn::Active][rng.below(3) as usize],
        nagle: rng.chance(0.5),
        ack: AckConfig {
            delay: [AckDelay::Buckets, AckDelay::Timer, AckDelay::Tick][rng.below(3) as usize],
            timer: Duration::from_millis(rng.below(200).into()),
            quick: rng.below(20) as u8,
            ..AckConfig::default()
        },
        buffers: BufferConfig {
            send: spread(rng, 2_000, 1_000_000) as u32,
            receive: initial,
            receive_max: spread(rng, initial.into(), 4_000_000).max(initial.into()) as u32,
            send_size: RULES[rng.below(4) as usize],
            send_lowat: rng.chance(0.5).then(|| spread(rng, 2_000, 200_000) as u32),
            ..BufferConfig::default()
        },
        time_wait: TimeWaitConfig {
            length: Duration::from_secs(between(rng, 1, 120)),
            ..TimeWaitConfig::default()
        },
        congestion: CongestionConfig {
            algorithm: ALGORITHMS[rng.below(4) as usize],
            detection: [LossDetection::Rack, LossDetection::Count][rng.below(2) as usize],
            pacing: rng.below(4) == 0,
            ..CongestionConfig::default()
        },
        ..TcpConfig::default()
    }
}

fn bytes(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0 => 0,
        1..=5 => spread(rng, 1, 5_000),
        6..=8 => spread(rng, 1_000, 50_000),
        _ => spread(rng, 10_000, 2_000_000),
    }
}

fn conversation(rng: &mut Rng) -> Conversation {
    Conversation {
        start: if rng.chance(0.5) { Duration::ZERO } else { micros(rng, 1, 2_000_000) },
        up_bytes: bytes(rng),
        down_bytes: bytes(rng),
        write_bytes: spread(rng, 1, 100_000).max(16) as usize,
        read_bytes: spread(rng, 16, 100_000) as usize,
        pause: rng.chance(0.1).then(|| micros(rng, 10, 500_000)),
        ending: match rng.below(10) {
            0..=3 => Ending::EachShutsDown,
            4..=5 => Ending::ServerFirst,
            6..=7 => Ending::ClientFirst,
            8 => Ending::ClientDropsEarly,
            _ => Ending::ClientResets,
        },
    }
}
