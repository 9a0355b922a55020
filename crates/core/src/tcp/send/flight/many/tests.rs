//! What the tests of [`Flight`](super::super::Flight) ask of its queue.

use super::*;

impl Many {
    /// What holds of every queue of records.
    pub(in super::super) fn check(&self) {
        let mut start = self.start;
        let [mut sacked, mut lost, mut twice] = [0; 3];
        let mut first_lost = None;
        for (i, record) in self.records.iter().enumerate() {
            assert!(start.before(record.end), "record {i} is empty");
            let bytes = record.end.since(start);
            match record.fate {
                Fate::InFlight => {}
                Fate::Twice => twice += bytes,
                Fate::Sacked => sacked += bytes,
                Fate::Lost => {
                    lost += bytes;
                    first_lost = first_lost.or(Some(start));
                }
            }
            assert!(i == 0 || !self.records[i - 1].agrees(record), "{i} agrees with its neighbour");
            start = record.end;
        }
        assert_eq!((sacked, lost, twice), (self.sacked, self.lost, self.twice));
        assert_eq!(first_lost, (lost > 0).then_some(self.lost_from));
    }

    pub(in super::super) fn len(&self) -> usize {
        self.records.len()
    }
}
