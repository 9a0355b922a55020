use super::*;
use core::net::IpAddr;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;

const PATIENCE: Duration = Duration::from_secs(10);
const LISTENER: ListenerId = ListenerId { index: 0, generation: 0 };

fn held(port: u16) -> Held {
    let [ours, theirs] = [[10, 0, 0, 2], [10, 0, 0, 1]].map(IpAddr::from);
    let syn = SynReceived {
        iss: Seq(0),
        irs: Seq(u32::from(port)),
        peer_mss: 536,
        mss: 536,
        offer: 0,
        peer_scale: None,
        sack: false,
        ecn: false,
        stamp: None,
        stamp_offset: 0,
        attempts: 0,
        names: None,
    };
    let tuple = Tuple::new((ours, 80), (theirs, port));
    // Two in four share a hash.
    Held { tuple, hash: u64::from(port / 2), syn, listener: LISTENER, is_ours: false }
}

/// The same, as a list.
#[derive(Default)]
struct Model {
    /// Ports, when each is given up, and whether the user was told.
    all: VecDeque<(u16, Instant, Option<SynId>)>,
}

proptest! {
    #[test]
    fn what_is_held_is_what_a_list_would_hold(
        steps in vec((0u8..10, 0u16..24), 1..200),
        limit in 1usize..6,
    ) {
        let mut table = HeldSyns::new(limit, PATIENCE);
        let (mut model, mut now) = (Model::default(), Instant::from_millis(1));
        for (what, port) in steps {
            now = now + Duration::from_millis(u64::from(port) * 100);
            let wanted = held(port);
            let place = model.all.iter().position(|it| it.0 == port);
            match what {
                0..=4 if place.is_none() => {
                    let oldest = model.all.iter().position(|it| it.2.is_none());
                    let expected = match (model.all.len() < limit, oldest) {
                        (true, _) => Keeping::Kept,
                        (false, Some(oldest)) => {
                            model.all.remove(oldest);
                            Keeping::KeptForAnother
                        }
                        (false, None) => Keeping::Dropped,
                    };
                    if expected != Keeping::Dropped {
                        model.all.push_back((port, now + PATIENCE, None));
                    }
                    prop_assert_eq!(table.insert(wanted, now), expected);
                }
                5 | 6 => {
                    let oldest = model.all.iter_mut().find(|it| it.2.is_none());
                    let told = table.tell();
                    let expected = oldest.as_ref().map(|it| it.0);
                    prop_assert_eq!(told.map(|it| it.1.remote_port()), expected);
                    if let Some((oldest, (id, _))) = oldest.zip(told) {
                        oldest.2 = Some(id);
                    }
                }
                7 => {
                    let told = place.and_then(|place| model.all[place].2);
                    if let Some(id) = told {
                        prop_assert!(table.is_held(id));
                        prop_assert_eq!(table.take(id).map(|it| it.tuple), Some(wanted.tuple));
                        prop_assert!(!table.is_held(id) && table.take(id).is_none());
                        model.all.retain(|it| it.0 != port);
                    }
                }
                8 => {
                    prop_assert!(!table.on_reset(wanted.hash, &wanted.tuple, wanted.syn.irs));
                    let is_gone = table.on_reset(wanted.hash, &wanted.tuple, wanted.syn.irs + 1);
                    prop_assert_eq!(is_gone, place.is_some());
                    model.all.retain(|it| it.0 != port);
                }
                _ => {
                    let before = model.all.len();
                    model.all.retain(|it| it.1 > now);
                    prop_assert_eq!(table.on_time(now) as usize, before - model.all.len());
                }
            }
            prop_assert_eq!(table.len(), model.all.len());
            prop_assert_eq!(table.deadline(), model.all.front().map(|it| it.1));
            for port in 0..24 {
                let it = held(port);
                let is_there = model.all.iter().any(|it| it.0 == port);
                prop_assert_eq!(table.has(it.hash, &it.tuple), is_there);
            }
        }
        table.forget(ListenerId { index: 1, generation: 0 });
        prop_assert_eq!(table.len(), model.all.len());
        table.forget(LISTENER);
        prop_assert!(table.is_empty() && table.deadline().is_none());
    }
}
