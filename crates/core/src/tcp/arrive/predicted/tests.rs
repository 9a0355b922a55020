//! What is predicted has the effect that the steps would have had: two connections live through the
//! same, one of them without prediction, and are compared to the last field.

use super::*;
use crate::flow::Tuple;
use crate::frame::{Capabilities, Medium, Outbox};
use crate::ip::path::IpFields;
use crate::ip::path::Path;
use crate::tcp::arrive::Facts;
use crate::tcp::connection::lone::Lone;
use crate::tcp::egress::Egress;
use crate::time::Instant;
use crate::wire::options::{Options, SackBlock, Timestamps};
use crate::wire::tcp::Segment;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

/// A connection that predicts, or does not.
struct End {
    lone: Lone,
    predicts: bool,
    predicted: u32,
}

impl End {
    fn new(predicts: bool, stamped: bool, sack: bool) -> End {
        let tuple = Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), 1));
        let lone = Lone::new(Instant::from_millis(5), tuple, |syn, options| {
            (syn.sack, syn.stamp) = (sack, stamped.then_some(u32::MAX - 20));
            options.nodelay = true;
        });
        End { lone, predicts, predicted: 0 }
    }

    fn take(&mut self, now: Instant, segment: &Segment<'_>) {
        let predicts = self.predicts;
        let predicted = self.lone.with(now, |connection, cx| {
            cx.counters.segments_in += 1;
            let plain = segment.plain().filter(|_| predicts);
            let predicted = plain.is_some_and(|plain| connection.take_predicted(cx, &plain, 0));
            if !predicted {
                connection.take_by_steps(cx, segment, Facts::default());
            }
            predicted
        });
        self.predicted += u32::from(predicted);
    }

    /// What is read in one go, or looked at first; and whether the peer should hear of it.
    fn read(&mut self, now: Instant, len: usize) -> Option<(Vec<u8>, bool)> {
        let (mut out, predicts) = (std::vec![0; len], self.predicts);
        self.lone.with(now, |connection, cx| {
            let (len, is_told) = if predicts {
                connection.read(&mut out, cx).ok()?
            } else {
                let len = connection.peek(&mut out).ok()?;
                (len, len > 0 && connection.consume(len, cx))
            };
            out.truncate(len);
            Some((out, is_told))
        })
    }

    /// What has been sent, as bytes.
    fn emit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut outbox = Outbox::new(64);
        let path = Path {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            link: None,
            mtu: 1500,
            dont_fragment: true,
            probe: 0,
            hop_limit: 64,
            device: Capabilities::plain(Medium::Ip, 1500),
        };
        let marked = path.marked(IpFields::default());
        let mut egress = Egress { outbox: &mut outbox, path: marked, budget: 64, frames: 0 };
        self.lone.with(now, |connection, cx| connection.emit(cx, &mut egress));
        outbox.frames().map(|frame| frame.head.clone()).collect()
    }

    fn state(&self) -> String {
        self.lone.all()
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A segment: how far from RCV.NXT, how long, how much it acknowledges (in 1/8 of what is
    /// out, 8 and more: all), how old its timestamp is, its flags, its window.
    Segment {
        ahead: i32,
        len: usize,
        acked: u32,
        age: i32,
        flags: u8,
        window: u16,
        sack: bool,
    },
    Write(usize),
    Read(usize),
    /// The user closes: he reads on; he reads no more; or he has left.
    Close(Reader),
    Emit,
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum Reader {
    Stays,
    Deaf,
    Gone,
}

fn any_act() -> impl Strategy<Value = Act> {
    let ahead = prop_oneof![9 => Just(0), 1 => -900..900];
    let age = prop_oneof![9 => 0..3, 1 => -3..0];
    let flags = prop_oneof![
        6 => Just(Flags::ACK.0),
        6 => Just((Flags::ACK | Flags::PSH).0),
        1 => Just((Flags::ACK | Flags::FIN).0),
        1 => any::<u8>().prop_map(|flags| flags & !Flags::RST.0),
    ];
    let window = prop_oneof![9 => 5000..u16::MAX, 1 => Just(0)];
    let segment = (ahead, 0usize..1001, 0u32..10, age, flags, window, 0u8..12).prop_map(
        |(ahead, len, acked, age, flags, window, sack)| {
            let len = if len > 700 { 0 } else { len };
            Act::Segment { ahead, len, acked, age, flags, window, sack: sack == 0 }
        },
    );
    prop_oneof![
        6 => segment,
        2 => (1usize..5000).prop_map(Act::Write),
        2 => (1usize..5000).prop_map(Act::Read),
        1 => prop_oneof![Just(Reader::Stays), Just(Reader::Deaf), Just(Reader::Gone)]
            .prop_map(Act::Close),
        3 => Just(Act::Emit),
        1 => (1u64..80_000).prop_map(Act::Wait),
    ]
}

fn run(acts: &[Act], stamped: bool, sack: bool) -> u32 {
    let mut ends = [true, false].map(|predicts| End::new(predicts, stamped, sack));
    let mut now = Instant::from_millis(6);
    let text: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    for act in acts {
        let Some(s) = ends[1].lone.connection.synchronized() else { break };
        let (una, nxt, rcv_nxt) = (s.send.una, s.send.nxt, s.recv.nxt);
        let recent = s.stamps.map(|stamps| stamps.recent);
        match act {
            Act::Segment { ahead, len, acked, age, flags, window, sack } => {
                let mut options = Options::NONE;
                options.timestamps = recent.map(|recent| Timestamps {
                    value: recent.wrapping_add_signed(*age),
                    echo: now.as_millis() as u32,
                });
                let out = nxt.since(una);
                if *sack && out > 10 {
                    options.sack.push(SackBlock { start: una + 5, end: una + 9 });
                }
                let segment = Segment {
                    source_port: 1,
                    destination_port: 80,
                    seq: rcv_nxt + *ahead as u32,
                    ack: una + if *acked < 8 { out / 8 * acked } else { out },
                    flags: Flags(*flags),
                    window: *window,
                    urgent: 0,
                    options,
                    payload: &text[..*len],
                };
                for end in &mut ends {
                    end.take(now, &segment);
                }
            }
            Act::Write(len) => {
                let data = std::vec![3; *len];
                for end in &mut ends {
                    if let Shape::Synchronized(s) = &mut end.lone.connection.shape {
                        s.send.buffer.write(&data, &mut end.lone.cx.pool);
                    }
                }
            }
            Act::Read(len) => {
                let [one, other] = ends.each_mut().map(|end| end.read(now, *len));
                assert_eq!(one, other);
            }
            Act::Close(reader) => {
                for end in &mut ends {
                    end.lone.connection.read_shut = matches!(reader, Reader::Deaf | Reader::Gone);
                    end.lone.connection.orphan |= matches!(reader, Reader::Gone);
                    end.lone.connection.queue_fin();
                }
            }
            Act::Emit => {
                let [one, other] = ends.each_mut().map(|end| end.emit(now));
                assert_eq!(one, other);
            }
            Act::Wait(us) => now = now.plus_nanos(us * 1000),
        }
        let [one, other] = ends.each_ref().map(End::state);
        assert_eq!(one, other, "after {act:?}");
    }
    ends[0].predicted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn prediction_has_the_effect_of_the_steps(
        acts in proptest::collection::vec(any_act(), 1..60), stamped: bool, sack: bool,
    ) {
        run(&acts, stamped, sack);
    }
}

#[test]
fn requests_and_responses_are_predicted_and_others_are_not() {
    let segment = |ahead, len, acked, flags: Flags| Act::Segment {
        ahead,
        len,
        acked,
        age: 1,
        flags: flags.0,
        window: 9000,
        sack: false,
    };
    let turn = [segment(0, 100, 8, Flags::ACK), Act::Read(100), Act::Write(500), Act::Emit];
    assert_eq!(run(&[&turn[..], &turn, &turn].concat(), true, true), 3);
    assert_eq!(run(&[segment(0, 0, 8, Flags::ACK)], true, true), 0, "it brings nothing");
    assert_eq!(run(&[segment(1, 100, 8, Flags::ACK)], true, true), 0, "it comes too early");
    let reset = Flags::ACK | Flags::RST;
    assert_eq!(run(&[segment(0, 100, 8, reset)], true, true), 0, "it is a reset");
    let unread = std::vec![segment(0, 1000, 8, Flags::ACK); 80];
    let predicted = run(&unread, true, true);
    assert!((20..80).contains(&predicted), "until the window is full: {predicted}");
    let after_a_hole = [segment(200, 100, 8, Flags::ACK), segment(0, 100, 8, Flags::ACK)];
    assert_eq!(run(&after_a_hole, true, true), 0);
}

#[test]
fn ends_are_predicted_in_either_order_of_closing() {
    let segment = |len, flags: Flags| Act::Segment {
        ahead: 0,
        len,
        acked: 8,
        age: 1,
        flags: flags.0,
        window: 9000,
        sack: false,
    };
    let (ack, fin, close) = (Flags::ACK, Flags::ACK | Flags::FIN, Act::Close(Reader::Stays));
    let answer = [Act::Write(500), Act::Emit];
    let peer = [&[segment(100, fin), Act::Read(100)], &answer[..], &[close.clone(), Act::Emit]];
    assert_eq!(run(&[&peer.concat()[..], &[segment(0, ack)]].concat(), true, true), 2);
    let ours = [&answer[..], &[close, Act::Emit, segment(0, ack), segment(100, fin)]];
    assert_eq!(run(&ours.concat(), true, true), 2);
    let both = [&answer[..], &[Act::Close(Reader::Gone), Act::Emit, segment(0, fin)]];
    assert_eq!(run(&both.concat(), true, true), 1);
    let unheard = [&answer[..], &[Act::Close(Reader::Gone), Act::Emit, segment(100, fin)]];
    assert_eq!(run(&unheard.concat(), true, true), 0, "nobody wants the text");
}
