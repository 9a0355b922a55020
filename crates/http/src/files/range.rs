//! Byte ranges (RFC 9110 §14): which parts of a representation a `Range` field asks for.

use std::ops::Range;

/// The parts of a representation of known length that a `Range` field asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All of it: the field is not understood, or asks for too much (§14.2 lets a server ignore
    /// it).
    Whole,
    /// No range lies in it: 416.
    Unsatisfiable,
    /// These parts, in the order asked for; at least one, none empty.
    Parts(Vec<Range<u64>>),
}

/// Evaluates a `Range` field's value for a representation of `len_bytes` bytes.
/// A suffix of some bytes of an empty representation is all of it (§14.1.2).
///
/// Ignored as a whole: units other than bytes, bad syntax, more than `max_ranges` ranges, and
/// overlapping ranges (§14.2 and §17.15: a request for many overlapping ranges is an attack, not a
/// need).
pub(crate) fn select(value: &str, len_bytes: u64, max_ranges: usize) -> Selection {
    let Some((unit, specs)) = value.split_once('=') else { return Selection::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Selection::Whole;
    }
    let mut parts = Vec::new();
    let specs: Vec<&str> = specs
        .split(',')
        .map(str::trim)
        .filter(|spec| !spec.is_empty())
        .take(max_ranges + 1)
        .collect();
    if specs.is_empty() || specs.len() > max_ranges {
        return Selection::Whole;
    }
    let mut is_suffix_of_nothing = false;
    for spec in specs {
        let suffix = spec.strip_prefix('-').map(|digits| number(digits.trim_start()));
        is_suffix_of_nothing |= len_bytes == 0 && matches!(suffix, Some(Ok(1..)));
        match parse(spec, len_bytes) {
            Ok(Some(part)) => parts.push(part),
            Ok(None) => {}
            Err(BadSyntax) => return Selection::Whole,
        }
    }
    if parts.is_empty() && is_suffix_of_nothing {
        Selection::Whole
    } else if parts.is_empty() {
        Selection::Unsatisfiable
    } else if overlap(&parts) {
        Selection::Whole
    } else {
        Selection::Parts(parts)
    }
}

/// The text is no range.
struct BadSyntax;

/// One range: `first-last`, `first-` or `-suffix`; `None` if it lies outside.
fn parse(spec: &str, len_bytes: u64) -> Result<Option<Range<u64>>, BadSyntax> {
    let (first, last) = spec.split_once('-').ok_or(BadSyntax)?;
    let (first, last) = (first.trim_end(), last.trim_start());
    let part = if first.is_empty() {
        let suffix = number(last)?;
        len_bytes.saturating_sub(suffix)..len_bytes
    } else {
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < first {
            return Err(BadSyntax);
        }
        first.min(len_bytes)..last.saturating_add(1).min(len_bytes)
    };
    Ok((!part.is_empty()).then_some(part))
}

/// Digits alone. A number too large for us is larger than any file.
fn number(digits: &str) -> Result<u64, BadSyntax> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadSyntax);
    }
    Ok(digits.parse().unwrap_or(u64::MAX))
}

/// True if any two parts share a byte.
fn overlap(parts: &[Range<u64>]) -> bool {
    let mut sorted: Vec<&Range<u64>> = parts.iter().collect();
    sorted.sort_by_key(|part| part.start);
    sorted.windows(2).any(|pair| pair[0].end > pair[1].start)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is what is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(value: &str) -> Vec<Range<u64>> {
        match select(value, 1000, 4) {
            Selection::Parts(parts) => parts,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 9110 §14.1.2, with a representation of 10 000 bytes.
        let one = |value| select(value, 10_000, 4);
        assert_eq!(one("bytes=0-499"), Selection::Parts([0..500].to_vec()));
        assert_eq!(one("bytes=500-999"), Selection::Parts([500..1000].to_vec()));
        assert_eq!(one("bytes=-500"), Selection::Parts([9500..10_000].to_vec()));
        assert_eq!(one("bytes=9500-"), Selection::Parts([9500..10_000].to_vec()));
        assert_eq!(one("bytes=0-0,-1"), Selection::Parts([0..1, 9999..10_000].to_vec()));
        assert_eq!(
            one("bytes= 0-999, 4500-5499, -1000"),
            Selection::Parts([0..1000, 4500..5500, 9000..10_000].to_vec())
        );
    }

    #[test]
    fn the_last_byte_is_in_reach_and_the_one_after_it_is_not() {
        assert_eq!(parts("bytes=999-999"), [999..1000]);
        assert_eq!(select("bytes=1000-1000", 1000, 4), Selection::Unsatisfiable);
        assert_eq!(parts("bytes=999-123456789012345678901234567890"), [999..1000]);
        assert_eq!(parts("bytes=-2000"), [0..1000]);
        assert_eq!(select("bytes=-0", 1000, 4), Selection::Unsatisfiable);
        assert_eq!(select("bytes=0-", 0, 4), Selection::Unsatisfiable);
        assert_eq!(select("bytes=-1", 0, 4), Selection::Whole, "all of nothing");
        assert_eq!(select("bytes=-0", 0, 4), Selection::Unsatisfiable);
        assert_eq!(parts("bytes=0-9,5000-"), [0..10], "what lies outside is left out");
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=--1",
            "bytes=+1-2",
            "lines=0-1",
            "bytes=0-1,x",
            "bytes=1",
            "bytes=-",
            "bytes=0x1-2",
        ] {
            assert_eq!(select(value, 1000, 4), Selection::Whole, "{value:?}");
        }
    }

    #[test]
    fn as_many_ranges_as_the_limit_are_served_and_one_more_is_not() {
        assert_eq!(parts("bytes=0-0,2-2,4-4,6-6").len(), 4);
        assert_eq!(select("bytes=0-0,2-2,4-4,6-6,8-8", 1000, 4), Selection::Whole);
    }

    #[test]
    fn ranges_that_touch_are_served_and_those_that_overlap_are_not() {
        assert_eq!(parts("bytes=10-19,0-9").len(), 2);
        assert_eq!(select("bytes=9-19,0-9", 1000, 4), Selection::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_within(value in "bytes=[-0-9, ]{0,20}", len in 0u64..50) {
            if let Selection::Parts(parts) = select(&value, len, 4) {
                prop_assert!(!parts.is_empty());
                for part in parts {
                    prop_assert!(part.start < part.end && part.end <= len);
                }
            }
        }

        #[test]
        fn a_proper_range_selects_exactly_its_bytes(
            first in 0u64..200,
            more in 0u64..200,
            len in 1u64..100,
        ) {
            let last = first + more;
            let expected = if first < len {
                Selection::Parts(Vec::from([first..(last + 1).min(len)]))
            } else {
                Selection::Unsatisfiable
            };
            prop_assert_eq!(select(&format!("bytes={first}-{last}"), len, 4), expected);
        }
    }
}
