use super::*;
use crate::trace::{Entry, Fact, Kind, Segment};

fn at(ms: f64, kind: Kind) -> Entry {
    Entry { ms, kind }
}

fn text(seq: u32, again: Option<&str>) -> Kind {
    Kind::Segment(Segment {
        is_sent: true,
        seq,
        len: 1000,
        flags: "P.".to_owned(),
        ack: Some(1),
        window: 5000,
        segments: 1,
        again: again.map(str::to_owned),
        ..Segment::default()
    })
}

fn ack(number: u32, sack: &[(u32, u32)]) -> Kind {
    Kind::Segment(Segment {
        seq: 1,
        ack: Some(number),
        flags: ".".to_owned(),
        window: 2000,
        segments: 1,
        sack: sack.to_vec(),
        ..Segment::default()
    })
}

fn fact(name: &str, fields: &[(&str, &str)]) -> Kind {
    let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Kind::Fact(Fact { name: name.to_owned(), fields: fields.collect() })
}

/// Three segments around the wrap of the sequence space, the second of which is lost.
fn trace() -> Trace {
    let first = u32::MAX - 500;
    let seq = |count: u32| first.wrapping_add(1000 * count);
    let entries = vec![
        at(0.0, text(seq(0), None)),
        at(0.1, text(seq(1), None)),
        at(0.2, text(seq(2), None)),
        at(10.0, ack(seq(1), &[])),
        at(10.2, ack(seq(1), &[(seq(2), seq(3))])),
        at(10.2, fact("recovery_state_updated", &[("old", "open"), ("new", "fast_recovery")])),
        at(10.2, fact("loss_detected", &[("bytes", "1000"), ("detector", "rack")])),
        at(10.3, text(seq(1), Some("fast_recovery"))),
        at(20.3, ack(seq(3), &[])),
        at(20.3, fact("recovery_state_updated", &[("old", "fast_recovery"), ("new", "open")])),
    ];
    Trace { name: "10.0.0.1:80-<peer>:9".to_owned(), entries }
}

#[test]
fn points_count_from_the_first_number() {
    let points = Points::of(&trace(), Side::Sent).unwrap();
    let bars: Vec<_> = points.segments.iter().map(|it| (it.start, it.end, it.again)).collect();
    let once = |start| (start, start + 1000, false);
    assert_eq!(bars, [once(0), once(1000), once(2000), (1000, 2000, true)]);
    let acks: Vec<_> = points.acks.iter().map(|it| (it.acked, it.edge)).collect();
    assert_eq!(acks, [(1000, 3000), (1000, 3000), (3000, 5000)]);
    assert_eq!(points.sacks, [(10.2, 2000, 3000)]);
    assert_eq!(points.recoveries, [(10.2, 20.3, "fast_recovery".to_owned())]);
    assert_eq!(points.losses.len(), 1);
    assert_eq!((points.highest, points.top()), (3000, 4000));
}

#[test]
fn the_picture_has_each_kind_and_no_markup_of_strangers() {
    let svg = svg(&trace(), Side::Sent).unwrap();
    // A move for each segment, and one more for the tick of what was sent again.
    let moves = |class: &str| {
        let begin = svg.find(&format!("<path class=\"{class}\" d=\"")).unwrap();
        let path = &svg[begin..begin + svg[begin..].find("/>").unwrap()];
        path.matches('M').count()
    };
    assert_eq!((moves("data"), moves("again"), moves("sack")), (3, 2, 1));
    assert!(svg.contains("1000 bytes held lost, by rack"));
    assert!(svg.contains("&lt;peer&gt;") && !svg.contains("<peer>"));
    assert!(svg.contains("time (ms)") && svg.contains("(kB)"));
}

#[test]
fn a_direction_without_data_has_no_graph() {
    assert!(svg(&trace(), Side::Received).is_none());
    assert!(svg(&Trace::default(), Side::Sent).is_none());
    assert_eq!(Side::busier(&trace()), Side::Sent);
}
