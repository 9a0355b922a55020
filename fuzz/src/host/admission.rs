//! Listening for every address and port, and verdicts on SYNs that are held.

use lightwait_core::host::Refusal;

use super::World;
use crate::source::Source;

/// Every way to refuse.
const REFUSALS: [Refusal; 5] = [
    Refusal::Reset,
    Refusal::Ignored,
    Refusal::NetworkUnreachable,
    Refusal::HostUnreachable,
    Refusal::Prohibited,
];

impl World {
    /// An end listens for all, with or without asking.
    pub(super) fn listen_to_all(&mut self, side: usize, source: &mut Source<'_>) {
        let (asks, backlog) = (source.flag(), source.pick(&[4, 1, 0]));
        let host = &mut self.ends[side].host;
        let options = host.default_options();
        let listener = match asks {
            true => host.listen_any_asking(options),
            false => host.listen_any(backlog, options),
        };
        self.say(format_args!("{side} listens for all, asks: {asks}: {listener:?}"));
        if let Ok(id) = listener {
            self.ends[side].listeners.push(id);
        }
    }

    /// An end judges some of the SYNs that wait for it.
    pub(super) fn judge_syns(&mut self, side: usize, source: &mut Source<'_>) {
        for _ in 0..source.below(4) + 1 {
            let host = &mut self.ends[side].host;
            let held = host.held_syns();
            let Some(syn) = host.next_syn() else { return };
            assert!(held > 0 && host.is_held(syn.id), "{syn:?} of {held}");
            let verdict = source.below(2 + REFUSALS.len());
            let admitted = match verdict.checked_sub(2) {
                None => host.admit_syn(self.now, syn.id).ok(),
                Some(refusal) => {
                    host.refuse_syn(self.now, syn.id, REFUSALS[refusal]);
                    None
                }
            };
            assert!(!host.is_held(syn.id) && host.held_syns() == held - 1, "{syn:?} was judged");
            self.say(format_args!("{side} judges {syn:?}: {verdict}, {admitted:?}"));
            if let Some(id) = admitted {
                let ends = self.ends[side].host.local_address(id);
                assert_eq!(ends, Ok(syn.local));
                self.adopt(side, id);
            }
        }
    }
}
