//! A log as lines of text.

use std::fmt::{self, Write as _};

use crate::trace::{Fact, Kind, Segment, Trace};

/// A line for each event: its time, and what happened. Sequence numbers count from the first.
///
/// ```text
///      0.000 ms  > S seq 0 win 65535
///     12.031 ms  < S. seq 0 ack 1 win 65535
///     80.512 ms  * loss_detected bytes=1448 detector=rack
/// ```
pub fn timeline(trace: &Trace) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = lines(trace, &mut out);
    out
}

fn lines(trace: &Trace, out: &mut String) -> fmt::Result {
    writeln!(out, "{}", trace.name)?;
    let firsts = [false, true].map(|is_sent| trace.first(is_sent).unwrap_or_default());
    for entry in &trace.entries {
        write!(out, "{:>12.3} ms  ", entry.ms)?;
        match &entry.kind {
            Kind::Segment(segment) => self::segment(segment, firsts, out)?,
            Kind::Fact(fact) => self::fact(fact, out)?,
        }
        out.push('\n');
    }
    Ok(())
}

fn segment(it: &Segment, firsts: [u32; 2], out: &mut String) -> fmt::Result {
    let own = firsts[usize::from(it.is_sent)];
    let other = firsts[usize::from(!it.is_sent)];
    let seq = it.seq.wrapping_sub(own);
    write!(out, "{} {} seq {seq}", if it.is_sent { '>' } else { '<' }, it.flags)?;
    if it.len > 0 {
        write!(out, ":{} ({} bytes", u64::from(seq) + u64::from(it.len), it.len)?;
        if it.segments > 1 {
            write!(out, ", {} segments", it.segments)?;
        }
        out.push(')');
    }
    if let Some(ack) = it.ack {
        write!(out, " ack {}", ack.wrapping_sub(other))?;
    }
    write!(out, " win {}", it.window)?;
    for (start, end) in &it.sack {
        write!(out, " sack {}:{}", start.wrapping_sub(other), end.wrapping_sub(other))?;
    }
    if let Some(again) = &it.again {
        write!(out, " again: {again}")?;
    }
    Ok(())
}

fn fact(it: &Fact, out: &mut String) -> fmt::Result {
    write!(out, "* {}", it.name)?;
    it.fields.iter().try_for_each(|(key, value)| write!(out, " {key}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Entry;

    #[test]
    fn numbers_count_from_the_first_even_where_they_wrap() {
        let segment = |is_sent, seq, ack, len| {
            let (flags, segments) = ("P.".to_owned(), 1);
            let it = Segment { is_sent, seq, ack, len, flags, segments, ..Segment::default() };
            Entry { ms: 1.0, kind: Kind::Segment(it) }
        };
        let entries =
            vec![segment(true, u32::MAX - 9, Some(5), 100), segment(false, 5, Some(90), 0)];
        let text = timeline(&Trace { name: "a-b".to_owned(), entries });
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[1], "1.000 ms  > P. seq 0:100 (100 bytes) ack 0 win 0");
        assert_eq!(lines[2], "1.000 ms  < P. seq 0 ack 100 win 0");
    }
}
