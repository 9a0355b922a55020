//! A sound segment, as the parser that knows its layout has left it: words of the fast layout, or
//! fields of any other.

use super::fast::FastSegment;
use super::tcp::{Plain, Segment};

/// A segment that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received<'a> {
    /// A segment of the fast layout.
    Fast(FastSegment<'a>),
    /// A segment of any layout, in a packet of this traffic class.
    Any(&'a Segment<'a>, u8),
}

impl<'a> Received<'a> {
    /// All of it.
    pub(crate) fn segment(&self) -> Segment<'a> {
        match self {
            Received::Fast(fast) => fast.segment(),
            Received::Any(segment, _) => **segment,
        }
    }

    /// All but the options other than timestamps, and urgent data.
    pub(crate) fn head(&self) -> Plain<'a> {
        match self {
            Received::Fast(fast) => fast.head(),
            Received::Any(segment, _) => segment.head(),
        }
    }

    /// What it says, if [`Received::head`] is all that matters beside a SYN.
    pub(crate) fn plain(&self) -> Option<Plain<'a>> {
        match self {
            Received::Fast(fast) => fast.plain(),
            Received::Any(segment, _) => segment.plain(),
        }
    }

    /// True if it has options of kinds 253 and 254.
    pub(crate) fn has_experiments(&self) -> bool {
        matches!(self, Received::Any(segment, _) if !segment.options.experimental.is_empty())
    }
}
