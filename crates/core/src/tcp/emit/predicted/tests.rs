//! What is predicted has the effect that the steps would have had: two connections live through the
//! same, one of them without prediction, and are compared to the last field and byte.

use super::*;
use crate::flow::{Seq, Tuple};
use crate::frame::{Capabilities, Medium, Outbox};
use crate::ip::path::IpFields;
use crate::ip::path::Path;
use crate::tcp::connection::lone::Lone;
use crate::tcp::connection::{Identity, Reset, SynSent};
use crate::tcp::egress::Egress;
use crate::tcp::emit::Flushed;
use crate::time::Instant;
use crate::wire::ethernet;
use crate::wire::options::{Options, SackBlock};
use crate::wire::parsed::ParsedSegment;
use crate::wire::tcp::Segment;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

const START: Instant = Instant::from_millis(5);

/// How both connections begin, and where they send.
#[derive(Clone, Copy, Debug)]
struct Setting {
    stamped: bool,
    sack: bool,
    ecn: bool,
    nodelay: bool,
    cork: bool,
    path: Path,
}

/// A connection that predicts, or does not.
struct End {
    lone: Lone,
    path: Path,
    predicts: bool,
    predicted: u32,
}

impl End {
    fn new(predicts: bool, setting: Setting) -> End {
        let Setting { stamped, sack, ecn, nodelay, cork, path } = setting;
        let tuple = Tuple::new((path.source, 80), (path.destination, 1));
        let lone = Lone::new(START, tuple, |syn, options| {
            (syn.sack, syn.ecn) = (sack, ecn);
            (syn.stamp, syn.stamp_offset) = (stamped.then_some(u32::MAX - 20), 77);
            (options.nodelay, options.cork) = (nodelay, cork);
        });
        End { lone, path, predicts, predicted: 0 }
    }

    /// What has been sent, as bytes, and whether that was all; `room`: frames that may leave.
    fn emit(&mut self, now: Instant, room: usize) -> (Vec<Vec<u8>>, Flushed) {
        let mut outbox = Outbox::new(64);
        let (path, predicts) = (self.path, self.predicts && room > 0);
        let marked = path.marked(MARKS);
        let fast = marked.fast().filter(|_| predicts);
        let (flushed, predicted) = self.lone.with(now, |connection, cx| {
            if let Some(fast) = &fast
                && connection.emit_predicted(now, &cx.config, fast, &mut outbox)
            {
                cx.counters.segments_out += 1;
                return (Flushed::Done, true);
            }
            let mut egress = Egress { outbox: &mut outbox, path: marked, budget: room, frames: 0 };
            (connection.emit(cx, &mut egress), false)
        });
        self.predicted += u32::from(predicted);
        let mut frames = Vec::new();
        for frame in outbox.frames() {
            let mut bytes = Vec::new();
            frame.complete_to(&mut bytes);
            frames.push(bytes);
        }
        (frames, flushed)
    }

    fn state(&self) -> String {
        self.lone.all()
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A segment: how far from RCV.NXT, how long, how much it acknowledges (in 1/8 of what is
    /// out, 8 and more: all), its flags, its window.
    Segment {
        ahead: i32,
        len: usize,
        acked: u32,
        flags: u8,
        window: u16,
        sack: bool,
    },
    Write(usize),
    Urgent(usize),
    Record(usize),
    Read(usize),
    Close,
    /// With room for so many frames.
    Emit(usize),
    /// So many µs pass, and whatever timer is due fires.
    Wait(u64),
    /// The path carries so much from now on.
    Narrow(u16),
}

fn any_act() -> impl Strategy<Value = Act> {
    let ahead = prop_oneof![9 => Just(0), 1 => -900..900];
    let flags = prop_oneof![
        6 => Just(Flags::ACK.0),
        6 => Just((Flags::ACK | Flags::PSH).0),
        1 => Just((Flags::ACK | Flags::FIN).0),
        1 => Just((Flags::ACK | Flags::ECE).0),
    ];
    let window = prop_oneof![12 => 5000..u16::MAX, 2 => 0u16..600, 1 => Just(0)];
    let segment = (ahead, 0usize..1001, 0u32..12, flags, window, 0u8..14).prop_map(
        |(ahead, len, acked, flags, window, sack)| {
            let len = if len > 700 { 0 } else { len };
            Act::Segment { ahead, len, acked, flags, window, sack: sack == 0 }
        },
    );
    prop_oneof![
        30 => segment,
        20 => prop_oneof![1usize..1100, 1usize..5000, Just(988)].prop_map(Act::Write),
        1 => (1usize..2000).prop_map(Act::Urgent),
        1 => (1usize..2000).prop_map(Act::Record),
        10 => (1usize..5000).prop_map(Act::Read),
        1 => Just(Act::Close),
        30 => prop_oneof![9 => Just(64usize), 1 => 0usize..3].prop_map(Act::Emit),
        9 => prop_oneof![1u64..80_000, 1u64..3_000_000].prop_map(Act::Wait),
        1 => (600u16..1500).prop_map(Act::Narrow),
    ]
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let link = prop_oneof![
        Just(None),
        Just(Some(ethernet::Header {
            destination: [2; 6],
            source: [3; 6],
            ethertype: ethernet::ethertype::IPV4,
        }))
    ];
    let mostly = || prop::bool::weighted(0.9);
    let rarely = || prop::bool::weighted(0.1);
    (link, (mostly(), any::<bool>(), rarely()), (any::<bool>(), rarely()), (rarely(), mostly()))
        .prop_map(|(link, (stamped, sack, ecn), (nodelay, cork), (checksum, dont_fragment))| {
            let device = Capabilities { checksum, ..Capabilities::plain(Medium::Ip, 1500) };
            let path = Path { link, dont_fragment, device, ..PATH };
            Setting { stamped, sack, ecn, nodelay, cork, path }
        })
}

const PATH: Path = Path {
    source: core::net::IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1)),
    destination: core::net::IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2)),
    link: None,
    mtu: 1500,
    dont_fragment: true,
    probe: 0,
    hop_limit: 64,
    device: Capabilities::plain(Medium::Ip, 1500),
};

/// Of every packet.
const MARKS: IpFields = IpFields { traffic_class: 0x28, hop_limit: None };

const SETTING: Setting =
    Setting { stamped: true, sack: true, ecn: false, nodelay: true, cork: false, path: PATH };

/// The segment that `act` describes to a connection with these numbers.
fn segment<'a>(s: &Synchronized, now: Instant, act: &Act, text: &'a [u8]) -> Option<Segment<'a>> {
    let &Act::Segment { ahead, len, acked, flags, window, sack } = act else { return None };
    let mut options = Options::NONE;
    let stamp = |own: Stamps| Timestamps {
        value: own.recent.wrapping_add(1),
        echo: now.as_millis() as u32,
    };
    options.timestamps = s.stamps.map(stamp);
    let out = s.send.flight();
    if sack && out > 10 {
        options.sack.push(SackBlock { start: s.send.una + 5, end: s.send.una + 9 });
    }
    Some(Segment {
        source_port: 1,
        destination_port: 80,
        seq: s.recv.nxt + ahead as u32,
        ack: s.send.una + if acked < 8 { out / 8 * acked } else { out },
        flags: Flags(flags),
        window,
        urgent: 0,
        options,
        payload: &text[..len],
    })
}

fn run(acts: &[Act], setting: Setting) -> u32 {
    let mut ends = [true, false].map(|predicts| End::new(predicts, setting));
    let mut now = START;
    let text: Vec<u8> = (0..5000).map(|i| i as u8).collect();
    for act in acts {
        now = now.plus_nanos(if let Act::Wait(us) = act { us * 1000 } else { 0 });
        let Some(s) = ends[1].lone.connection.synchronized() else { break };
        let segment = segment(s, now, act, &text);
        let room = if let Act::Emit(room) = act { *room } else { 0 };
        let [one, other] = ends.each_mut().map(|end| {
            match act {
                Act::Segment { .. } => {}
                Act::Write(len) | Act::Urgent(len) | Act::Record(len) => {
                    let Shape::Synchronized(s) = &mut end.lone.connection.shape else {
                        return None;
                    };
                    if !s.send.fin_queued {
                        s.send.buffer.write(&text[..*len], &mut end.lone.cx.pool);
                    }
                    if let Act::Urgent(_) = act {
                        s.send.set_urgent(s.send.data_end());
                    }
                    if let Act::Record(_) = act {
                        s.send.end_record();
                    }
                }
                Act::Read(len) => {
                    let read = end.lone.connection.peek(&mut std::vec![0; *len]).unwrap_or(0);
                    end.lone.with(now, |connection, cx| connection.consume(read, cx));
                }
                Act::Close => end.lone.connection.queue_fin(),
                Act::Emit(_) => return Some(end.emit(now, room)),
                Act::Wait(_) => end.lone.with(now, |connection, cx| connection.on_time(cx, now)),
                Act::Narrow(mtu) => end.path.mtu = end.path.mtu.min(*mtu),
            }
            if let Some(segment) = &segment {
                end.lone.with(now, |connection, cx| {
                    connection.on_segment(cx, ParsedSegment::Fields(segment), Default::default());
                });
            }
            None
        });
        assert_eq!(one, other, "{act:?}");
        let [one, other] = ends.each_ref().map(End::state);
        assert_eq!(one, other, "after {act:?}");
    }
    ends[0].predicted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn prediction_has_the_effect_of_the_steps(
        acts in proptest::collection::vec(any_act(), 1..60), setting in any_setting(),
    ) {
        run(&acts, setting);
    }
}

proptest! {
    /// Again and again, with whatever is asked for beside it.
    #[test]
    fn a_syn_is_as_the_steps_would_send_it(
        numbers: (u32, u32), mss: u16, offer: u16, waits in proptest::collection::vec(
            prop_oneof![0u64..5_000, 0u64..100_000], 1..12,
        ),
        setting in any_setting(), room in 0usize..9, reset in prop::bool::weighted(0.1),
    ) {
        let mut ends = [true, false].map(|predicts| End::new(predicts, setting));
        let mut now = START;
        for end in &mut ends {
            let (iss, stamp_offset) = (Seq(numbers.0), numbers.1);
            let ipv6 = false;
            let (sent_at, attempts, predecessor, asks) = (now, 0, None, None);
            let syn = SynSent {
                iss,
                stamp_offset,
                sent_at,
                attempts,
                mss,
                offer,
                ipv6,
                asks_ecn: setting.ecn,
                predecessor,
                asks,
            };
            let options = end.lone.connection.options.clone();
            end.lone.connection.clear();
            end.lone.connection.open(Identity { hash: 9, ports: 7 }, &options, syn, now, now);
            if reset {
                let reset = Reset { seq: Seq(numbers.1), ack: None, stamps: None };
                end.lone.with(now, |connection, cx| connection.owe_reset(reset, cx));
            }
        }
        for wait in waits {
            now = now.plus_nanos(wait * 1_000_000);
            let [one, other] = ends.each_mut().map(|end| {
                end.lone.with(now, |connection, cx| connection.on_time(cx, now));
                (end.emit(now, room), end.state())
            });
            prop_assert_eq!(one, other);
        }
        let Setting { path, .. } = setting;
        let is_fast = path.dont_fragment && !path.device.checksum;
        prop_assert!(reset || (ends[0].predicted > 0) == (room > 0 && is_fast));
    }
}

#[test]
fn responses_acks_and_fins_are_predicted_and_others_are_not() {
    let request = |len| Act::Segment {
        ahead: 0,
        len,
        acked: 8,
        flags: Flags::ACK.0,
        window: 9000,
        sack: false,
    };
    let turn = [request(100), Act::Read(100), Act::Write(500), Act::Emit(9)];
    let turns = [&turn[..], &turn, &[Act::Close], &turn, &[Act::Close, Act::Emit(9)]].concat();
    assert_eq!(run(&turns, SETTING), 3, "the FIN once");
    assert_eq!(run(&[request(100), request(100), Act::Emit(9)], SETTING), 1, "an ACK");
    assert_eq!(run(&[Act::Close, Act::Emit(9)], SETTING), 1, "FIN alone");
    assert_eq!(run(&[Act::Emit(9), Act::Emit(9)], SETTING), 1, "a window update, and nothing");
    assert_eq!(run(&[Act::Write(988), Act::Emit(9)], SETTING), 1, "a full segment");
    assert_eq!(run(&[Act::Write(989), Act::Emit(9)], SETTING), 0, "more than that");
    assert_eq!(run(&[Act::Write(9), Act::Emit(0), Act::Emit(1)], SETTING), 1, "no room");
    let first = [Act::Write(9), Act::Emit(9)];
    let silence = Act::Wait(3_000_000);
    let later = [&first[..], &[request(0), silence, Act::Write(9), Act::Emit(9)]].concat();
    assert_eq!(run(&later, SETTING), 1, "after a silence the window begins anew");
    for other in [
        Setting { stamped: false, ..SETTING },
        Setting { ecn: true, ..SETTING },
        Setting {
            path: Path { device: Capabilities { checksum: true, ..PATH.device }, ..PATH },
            ..SETTING
        },
    ] {
        assert_eq!(run(&first, other), 0, "{other:?}");
    }
    let nagle = [Act::Write(9), Act::Emit(9), Act::Write(9), Act::Emit(9)];
    assert_eq!(run(&nagle, SETTING), 2);
    assert_eq!(run(&nagle, Setting { nodelay: false, ..SETTING }), 1);
}
