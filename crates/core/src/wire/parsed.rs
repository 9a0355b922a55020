//! A sound segment, as the parser that knows its layout has left it: words of the fast layout, or
//! fields of any other.

use super::fast::FastSegment;
use super::tcp::{PlainSegment, Segment};

/// A segment that was parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParsedSegment<'a> {
    /// A segment of the fast layout.
    Fast(FastSegment<'a>),
    /// A segment of any layout.
    Fields(&'a Segment<'a>),
}

impl<'a> ParsedSegment<'a> {
    /// All of it.
    pub(crate) fn segment(&self) -> Segment<'a> {
        match self {
            ParsedSegment::Fast(fast) => fast.segment(),
            ParsedSegment::Fields(segment) => **segment,
        }
    }

    /// All but the options other than timestamps, and urgent data.
    pub(crate) fn head(&self) -> PlainSegment<'a> {
        match self {
            ParsedSegment::Fast(fast) => fast.head(),
            ParsedSegment::Fields(segment) => segment.head(),
        }
    }

    /// What it says, if [`ParsedSegment::head`] is all that matters beside a SYN.
    pub(crate) fn plain(&self) -> Option<PlainSegment<'a>> {
        match self {
            ParsedSegment::Fast(fast) => fast.plain(),
            ParsedSegment::Fields(segment) => segment.plain(),
        }
    }

    /// True if it has options of kinds 253 and 254.
    pub(crate) fn has_experiments(&self) -> bool {
        matches!(self, ParsedSegment::Fields(it) if !it.options.experimental.is_empty())
    }
}
