//! What a log says of one connection, whatever file it was read from.

use std::collections::BTreeMap;

/// One connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Its ends, ours first: `10.0.0.1:80-10.0.0.2:4000`.
    pub name: String,
    /// The oldest first.
    pub entries: Vec<Entry>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When, in milliseconds from the log's beginning.
    pub ms: f64,
    /// What.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A segment came or left.
    Segment(Segment),
    /// Anything else.
    Fact(Fact),
}

/// A segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// It left; else it came.
    pub is_sent: bool,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK, if it has one.
    pub ack: Option<u32>,
    /// Bytes of text.
    pub len: u32,
    /// The control bits, in tcpdump's letters.
    pub flags: String,
    /// The window in bytes.
    pub window: u32,
    /// Blocks that its sender holds out of order.
    pub sack: Vec<(u32, u32)>,
    /// Segments on the wire.
    pub segments: u32,
    /// Why it left again, if it did.
    pub again: Option<String>,
}

impl Segment {
    /// Numbers that it takes: its text, SYN and FIN. A file may claim any length.
    pub fn numbers(&self) -> u32 {
        let controls = self.flags.chars().filter(|flag| matches!(flag, 'S' | 'F')).count();
        self.len.saturating_add(controls as u32)
    }
}

/// An event that is no segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name, without the namespace.
    pub name: String,
    /// Its fields, as text.
    pub fields: BTreeMap<String, String>,
}

impl Trace {
    /// Its segments, and when.
    pub fn segments(&self) -> impl Iterator<Item = (f64, &Segment)> {
        self.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::Segment(segment) => Some((entry.ms, segment)),
            Kind::Fact(_) => None,
        })
    }

    /// Its other events, and when.
    pub fn facts(&self) -> impl Iterator<Item = (f64, &Fact)> {
        self.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::Fact(fact) => Some((entry.ms, fact)),
            Kind::Segment(_) => None,
        })
    }

    /// Bytes of text that left, and that came, each as often as it did.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |is_sent| {
            let one_way = self.segments().filter(|(_, it)| it.is_sent == is_sent);
            one_way.map(|(_, it)| u64::from(it.len)).sum()
        };
        (sum(true), sum(false))
    }

    /// The number from which those of one direction are counted: its SYN's, or the first seen.
    pub(crate) fn first(&self, is_sent: bool) -> Option<u32> {
        let own = self.segments().filter(|(_, it)| it.is_sent == is_sent).map(|(_, it)| it.seq);
        let acked = self.segments().filter(|(_, it)| it.is_sent != is_sent);
        let acked = acked.filter_map(|(_, it)| it.ack);
        own.chain(acked).reduce(
            |one, other| {
                if other.wrapping_sub(one) as i32 >= 0 { one } else { other }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_length_beyond_reason_are_counted() {
        let of = |len, flags: &str| {
            Segment { len, flags: flags.to_owned(), ..Segment::default() }.numbers()
        };
        assert_eq!((of(10, "FP."), of(0, "S"), of(0, ".")), (11, 1, 0));
        assert_eq!((of(u32::MAX, "S"), of(u32::MAX - 1, "SF")), (u32::MAX, u32::MAX));
    }
}
