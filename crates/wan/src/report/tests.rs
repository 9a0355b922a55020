use super::*;
use crate::{Change, Lateness};

fn report(change: impl FnOnce(&mut WaySnapshot)) -> Report {
    let way = WaySnapshot {
        counters: Counters { pushed: 1000, delivered: 990, lost: 10, ..Counters::default() },
        in_flight: 0,
        lateness: Lateness::new(),
        changes: Vec::new(),
        missed: Some(0),
        refused: Some(0),
        flows: Vec::new(),
    };
    let mut ways = [way.clone(), way];
    change(&mut ways[0]);
    Report {
        devices: ["tap:lw0".to_owned(), "eth1".to_owned()],
        release: Release::Polling,
        threads: Threads::OneEach,
        ways: ["loss=1%", ""].map(|link| WayReport { link: link.to_owned() }),
        snapshot: Snapshot {
            elapsed: Duration::from_millis(2500),
            ways,
            longest_turn: Duration::from_micros(30),
        },
    }
}

fn late(way: &mut WaySnapshot, packets: u64, us: u64) {
    (0..packets).for_each(|_| way.lateness.record(us * 1000));
}

#[test]
fn a_router_that_keeps_up_warns_of_nothing() {
    let good = report(|way| {
        late(way, 990, 3);
        late(way, 10, 5000);
    });
    assert_eq!(good.warnings(), Vec::<String>::new());
    assert_eq!(good.json()["keeps_up"], true);
    assert_eq!(good.json()["threads"], 2);
    assert!(good.text().contains("released by polling on two threads; "), "{}", good.text());
    let bad = report(|way| {
        late(way, 980, 3);
        late(way, 20, 5000);
    });
    assert!(bad.warnings()[0].contains("tap:lw0 to eth1: one packet in a hundred"));
    let few = report(|way| {
        late(way, 3, 3);
        late(way, 9, 5000);
    });
    assert_eq!(few.warnings(), Vec::<String>::new(), "too few to tell");
    assert_eq!(bad.json()["keeps_up"], false);
    let interrupt = Release::Every(Duration::from_millis(10));
    assert!(Report { release: interrupt, ..bad }.warnings().is_empty(), "it is meant to be late");
}

#[test]
fn what_the_devices_lost_is_told_with_their_names() {
    let missed = report(|way| way.missed = Some(5)).warnings();
    assert!(missed[0].starts_with("tap:lw0: the kernel dropped 5 frames"), "{missed:?}");
    let refused = report(|way| way.refused = Some(6)).warnings();
    assert!(refused[0].starts_with("eth1: the kernel refused 6 frames"), "{refused:?}");
    let unknown = report(|way| way.missed = None);
    assert!(unknown.warnings()[0].starts_with("tap:lw0: the kernel does not tell"));
    assert!(unknown.text().contains("\n  missed_by_device     not known\n"));
    let way = &unknown.json()["a_to_b"];
    assert_eq!((&way["missed_by_device"], &way["lost"]), (&Value::Null, &json!(10)));
}

#[test]
fn what_a_link_drops_for_its_length_is_counted() {
    let before = Counters { too_long: 1, ..Counters::default() };
    let at = Duration::from_secs(2);
    let dropped = report(|way| {
        way.counters.too_long = 4;
        way.changes = vec![Change { at, link: "mtu=600".to_owned(), before }];
    });
    let way = &dropped.json()["a_to_b"];
    let told = [&way["dropped_too_long"], &way["phases"][1]["dropped_too_long"]];
    assert_eq!(told, [&json!(4), &json!(3)]);
    assert!(dropped.text().contains("\n  dropped_too_long     4\n"), "{}", dropped.text());
}

#[test]
fn each_phase_of_a_link_has_its_own_numbers() {
    let before = Counters { pushed: 600, delivered: 595, lost: 5, ..Counters::default() };
    let at = Duration::from_secs(2);
    let changed =
        report(|way| way.changes = vec![Change { at, link: "loss=9%".to_owned(), before }]);
    let (text, json) = (changed.text(), changed.json());
    let phases = &json["a_to_b"]["phases"];
    let told = |number: usize| {
        let phase = &phases[number];
        ["from_s", "link", "packets_in", "packets_out", "lost"].map(|key| phase[key].clone())
    };
    assert_eq!(told(0), [json!(0.0), json!("loss=1%"), json!(600), json!(595), json!(5)]);
    assert_eq!(told(1), [json!(2.0), json!("loss=9%"), json!(400), json!(395), json!(5)]);
    assert_eq!(json["a_to_b"]["link"], "loss=1%", "as it was at first");
    let one = &json["b_to_a"];
    assert_eq!((&one["phases"][0]["lost"], &one["phases"][1]), (&one["lost"], &Value::Null));
    for line in [
        "tap:lw0 → eth1: loss=1%, then changed once",
        "  from 0 s             loss=1%\n",
        "packets_in 600, packets_out 595, lost 5\n  from 2 s             loss=9%\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        text.ends_with(
            "→ tap:lw0: a perfect link\n  packets_in           1000\n  \
                            packets_out          990\n  lost                 10\n"
        ),
        "{text}"
    );
}

#[test]
fn flows_are_told_the_largest_first() {
    let flow = |number: u64| FlowSnapshot {
        flow: format!("tcp 10.0.0.1:{number} > 10.0.0.2:80"),
        packets_in: 9,
        bytes_in: 9000,
        packets_out: 8,
        bytes_out: 8000,
        lost: 1,
        bits_per_second: 12_345_678.0,
        delay: Some([
            Duration::from_micros(500),
            Duration::from_millis(3),
            Duration::from_millis(4),
        ]),
    };
    let report = report(|way| way.flows = (0..23).map(flow).collect());
    let text = report.text();
    let line = "     12.346          8         1     500.0 µs, 3.0 ms, 4.0 ms  tcp 10.0.0.1:0 > ";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("\n  and 3 more (--json)\n"), "{text}");
    let json = report.json();
    let flows = json["a_to_b"]["flows"].as_array().unwrap();
    assert_eq!((flows.len(), &flows[22]["delay_us"]["p99"]), (23, &json!(3000.0)));
    assert_eq!(json["b_to_a"].get("flows"), None, "only if they are counted");
}

#[test]
fn text_and_json_tell_the_same() {
    let report = report(|way| late(way, 10, 25));
    let (text, json) = (report.text(), report.json());
    for line in ["tap:lw0 → eth1: loss=1%", "eth1 → tap:lw0: a perfect link", "median 25.0 µs"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(json["a_to_b"]["lost"], 10);
    assert_eq!(json["a_to_b"]["link"], "loss=1%");
    let median = json["a_to_b"]["late_us"]["median"].as_f64().unwrap();
    assert!((median - 25.0).abs() < 0.1);
    assert_eq!((&json["b_to_a"]["packets_in"], &json["duration_s"]), (&json!(1000), &json!(2.5)));
}
