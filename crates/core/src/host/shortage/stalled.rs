//! Connections on which nothing moves, in three lists beside the slots. The first has the
//! connections whose memory is not needed yet, in the order in which they were seen to stall. The
//! second has the connections that are to make room, and the third those of them that hold next to
//! nothing. A connection is added and taken out by a few stores, wherever it stands.

use alloc::vec::Vec;

use crate::flow::Seq;
use crate::time::Instant;

/// No link.
const NONE: u32 = u32::MAX;

/// A slot's place in its list.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// `None`: it is in no list.
    mark: Option<Mark>,
}

const UNLISTED: Link = Link { previous: NONE, next: NONE, mark: None };

/// The beginning from which progress is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) struct Mark {
    /// Since when.
    pub(in crate::host) since: Instant,
    /// SND.UNA then.
    pub(in crate::host) una: Seq,
    /// Bytes that were not acknowledged then.
    pub(in crate::host) held: usize,
    /// Memory that they took then, in units of the pool.
    pub(in crate::host) units: usize,
    pub(in crate::host) stage: Stage,
}

/// How far a connection that stalls has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum Stage {
    /// No other connection has needed what it holds.
    Listed,
    /// Others have: it was asked to take back what was never sent.
    Asked,
    /// It has answered, or has nothing that could be taken back: it is reset if that was not
    /// enough.
    Last,
    /// It holds so little that only those who hold nothing are helped by its reset.
    Spent,
}

impl Stage {
    /// Which list it is in.
    fn list(self) -> usize {
        match self {
            Stage::Listed => 0,
            Stage::Asked | Stage::Last => 1,
            Stage::Spent => 2,
        }
    }

    fn can_give_no_more(self) -> bool {
        matches!(self, Stage::Last | Stage::Spent)
    }
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// Slots in three lists. It grows to the highest slot that was ever in one.
#[derive(Debug)]
pub(in crate::host) struct Stalled {
    links: Vec<Link>,
    lists: [Ends; 3],
    /// How many there are in all.
    listed: usize,
    /// How many were asked, and have not answered.
    asked: usize,
    /// How many are in the last stages, and the memory that they took when they were marked, in
    /// units of the pool.
    to_go: (usize, usize),
}

impl Default for Stalled {
    fn default() -> Self {
        Stalled {
            links: Vec::new(),
            lists: [Ends { first: NONE, last: NONE }; 3],
            listed: 0,
            asked: 0,
            to_go: (0, 0),
        }
    }
}

impl Stalled {
    /// True if none is listed.
    pub(in crate::host) fn is_empty(&self) -> bool {
        self.listed == 0
    }

    /// How many can give back no more, and the memory that they took when they were marked, in
    /// units of the pool.
    pub(in crate::host) fn to_go(&self) -> (usize, usize) {
        self.to_go
    }

    /// The slot that was added first, and its mark, of those that others have had no need of yet.
    pub(in crate::host) fn first(&self) -> Option<(u32, Mark)> {
        self.first_of(Stage::Listed.list())
    }

    /// The slot that was added first, and its mark, of those that are to make room; of those that
    /// hold next to nothing if there is no other.
    pub(in crate::host) fn first_to_go(&self) -> Option<(u32, Mark)> {
        self.first_of(Stage::Last.list()).or_else(|| self.first_of(Stage::Spent.list()))
    }

    /// True if none was asked that has not answered.
    pub(in crate::host) fn all_have_answered(&self) -> bool {
        self.asked == 0
    }

    fn first_of(&self, list: usize) -> Option<(u32, Mark)> {
        let first = self.lists[list].first;
        Some((first, self.mark(first)?))
    }

    /// The slot that was added to the same list after that one, and its mark.
    pub(in crate::host) fn after(&self, index: u32) -> Option<(u32, Mark)> {
        let next = self.links.get(index as usize)?.next;
        Some((next, self.mark(next)?))
    }

    /// The mark of that slot, if it is in a list.
    pub(in crate::host) fn mark(&self, index: u32) -> Option<Mark> {
        self.links.get(index as usize)?.mark
    }

    /// Adds a slot at the end of the list of its stage, or moves it there.
    pub(in crate::host) fn push(&mut self, index: u32, mark: Mark) {
        self.remove(index);
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, UNLISTED);
        }
        let list = &mut self.lists[mark.stage.list()];
        self.links[index as usize] = Link { previous: list.last, next: NONE, mark: Some(mark) };
        match self.links.get_mut(list.last as usize) {
            Some(before) => before.next = index,
            None => list.first = index,
        }
        list.last = index;
        self.listed += 1;
        self.asked += usize::from(mark.stage == Stage::Asked);
        if mark.stage.can_give_no_more() {
            self.to_go = (self.to_go.0 + 1, self.to_go.1 + mark.units);
        }
    }

    /// Takes a slot out, if it is there.
    pub(in crate::host) fn remove(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index as usize) else { return };
        let Link { previous, next, mark } = core::mem::replace(link, UNLISTED);
        let Some(mark) = mark else { return };
        self.listed -= 1;
        self.asked -= usize::from(mark.stage == Stage::Asked);
        if mark.stage.can_give_no_more() {
            self.to_go = (self.to_go.0 - 1, self.to_go.1 - mark.units);
        }
        let list = &mut self.lists[mark.stage.list()];
        match self.links.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => list.first = next,
        }
        match self.links.get_mut(next as usize) {
            Some(behind) => behind.previous = previous,
            None => list.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_is_a_queue_out_of_which_any_may_go(
            ops in prop::collection::vec((0u8..5, 0u32..9), 0..200),
        ) {
            let mut list = Stalled::default();
            let mut models: [Vec<(u32, Mark)>; 3] = Default::default();
            for (at, (to, index)) in ops.into_iter().enumerate() {
                let since = Instant::from_millis(at as u64);
                let stages = [Stage::Listed, Stage::Asked, Stage::Last, Stage::Spent];
                models.iter_mut().for_each(|model| model.retain(|(listed, _)| *listed != index));
                match stages.get(usize::from(to)) {
                    Some(stage) => {
                        let (una, stage) = (Seq(at as u32), *stage);
                        let mark = Mark { since, una, held: at, units: at, stage };
                        list.push(index, mark);
                        models[stage.list()].push((index, mark));
                    }
                    None => list.remove(index),
                }
                let firsts = [list.first(), list.first_to_go()];
                let first_to_go = models[1].first().or(models[2].first());
                prop_assert_eq!(firsts, [models[0].first().copied(), first_to_go.copied()]);
                let is_asked = |(_, mark): &&(u32, Mark)| mark.stage == Stage::Asked;
                let to_go = models[1].iter().chain(&models[2]);
                let (asked, last): (Vec<_>, Vec<_>) = to_go.partition(is_asked);
                prop_assert_eq!(list.all_have_answered(), asked.is_empty());
                let units = last.iter().map(|(_, mark)| mark.units).sum::<usize>();
                prop_assert_eq!(list.to_go(), (last.len(), units));
                for index in 0..9 {
                    let mut all = models.iter().flatten();
                    let listed = all.find(|(listed, _)| *listed == index);
                    prop_assert_eq!(list.mark(index), listed.map(|(_, mark)| *mark));
                }
            }
            while let Some((index, _)) = list.first().or(list.first_to_go()) {
                let model = models.iter_mut().find(|model| !model.is_empty());
                prop_assert_eq!(model.unwrap().remove(0).0, index);
                list.remove(index);
            }
            prop_assert!(models.iter().all(Vec::is_empty));
        }
    }
}
