//! BENCHMARKS.md and `bench/notes` have the known results of the experiments in virtual time. The
//! test makes their rows again from `expected/`, with which each run is compared.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The root of the project.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn known(id: &str) -> Value {
    let path = root().join(format!("experiments/expected/{id}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Asserts that each line is in BENCHMARKS.md or in a note.
fn assert_said(lines: &[String]) {
    let mut text = fs::read_to_string(root().join("BENCHMARKS.md")).unwrap();
    for note in fs::read_dir(root().join("bench/notes")).unwrap() {
        text += &fs::read_to_string(note.unwrap().path()).unwrap();
    }
    let missing: Vec<&String> =
        lines.iter().filter(|line| !text.lines().any(|said| said == *line)).collect();
    assert!(!lines.is_empty() && missing.is_empty(), "in no note: {missing:#?}");
}

/// The table's row in which these columns have these values.
fn row<'a>(table: &'a Value, wanted: &[(&str, Value)]) -> &'a Value {
    let fits = |row: &&Value| wanted.iter().all(|(column, value)| row[*column] == *value);
    table.as_array().unwrap().iter().find(fits).unwrap()
}

/// A number with the digits that it has.
fn number(value: &Value) -> String {
    value.as_f64().unwrap().to_string()
}

/// A number with one digit after the point.
fn tenth(value: &Value) -> String {
    format!("{:.1}", value.as_f64().unwrap())
}

/// A number without decimals.
fn whole(value: &Value) -> String {
    format!("{:.0}", value.as_f64().unwrap())
}

#[test]
fn the_table_of_response_times_is_what_is_known() {
    let response = &known("a-response")["response"];
    let names = [
        ("bsd", "`bsd`"),
        ("bsd_brakmo_peterson", "`bsd_brakmo_peterson`"),
        ("fine, 500 ms ticks", "`fine`, ticks of 500 ms"),
        ("fine", "`fine`"),
        ("rfc6298", "`rfc6298` (default)"),
        ("rfc6298, 1 ms clock", "`rfc6298`, 1 ms clock"),
    ];
    let lines = names.map(|(setting, name)| {
        let at = |loss: f64, column: &str| {
            &row(response, &[("estimator", setting.into()), ("loss %", loss.into())])[column]
        };
        format!(
            "| {name} | {} ms | {} | {} | {} | {} | {} | {} | {} % | {} % |",
            whole(at(1.0, "RTO ms")),
            tenth(at(1.0, "mean ms")),
            tenth(at(2.0, "mean ms")),
            tenth(at(3.0, "mean ms")),
            tenth(at(5.0, "mean ms")),
            whole(at(1.0, "kbit/s")),
            whole(at(5.0, "kbit/s")),
            tenth(at(1.0, "link %")),
            tenth(at(5.0, "link %")),
        )
    });
    assert_said(&lines);
}

#[test]
fn the_table_of_lost_acknowledgements_is_what_is_known() {
    let response = &known("a-response")["response"];
    let lines = [(1.0, "1 % loss"), (5.0, "5 % loss")].map(|(loss, name)| {
        let cells = ["bsd", "fine", "rfc6298"].map(|setting| {
            let found = row(response, &[("estimator", setting.into()), ("loss %", loss.into())]);
            assert_eq!(found["in vain ‰"], found["ACK lost ‰"]);
            number(&found["ACK lost ‰"])
        });
        format!("| {name} | {} |", cells.join(" | "))
    });
    assert_said(&lines);
}

#[test]
fn the_table_of_needless_retransmissions_is_what_is_known() {
    let lone = &known("a-response")["lone"];
    let settings = ["bsd", "fine", "rfc6298", "rfc6298, floor 1 ms", "fine, no floor"];
    let lines = [(0.0, "no loss"), (1.0, "1 %"), (5.0, "5 %")].map(|(loss, name)| {
        let cells = settings.map(|setting| {
            number(
                &row(lone, &[("estimator", setting.into()), ("loss %", loss.into())])["spurious ‰"],
            )
        });
        format!("| {name} | {} |", cells.join(" | "))
    });
    assert_said(&lines);
}

#[test]
fn the_table_of_timeouts_is_what_is_known() {
    let range = |row: &Value| (number(&row["least ms"]), number(&row["most ms"]));
    let (ticks, timeouts) = (&known("a-fig5")["timeouts"], &known("a-fig13")["timeouts"]);
    let two = range(row(ticks, &[("ticks", 2.0.into())]));
    let framework = range(row(timeouts, &[("", "framework".into())]));
    let bsd = range(row(timeouts, &[("", "BSD, 2 ticks".into())]));
    let acks = known("b-acks");
    let ticking = acks["needless"].as_array().unwrap().iter();
    let needless = ticking.filter_map(|row| row["needless a tick"].as_f64());
    let (least, most) = needless.fold((f64::MAX, 0.0), |(least, most): (f64, f64), value| {
        (least.min(value), most.max(value))
    });
    assert_said(&[
        format!(
            "| two ticks of 500 ms last (`a-fig5`) | 500 to 1000 ms | {} to {} ms |",
            two.0, two.1
        ),
        format!(
            "| 150 ms by the framework (`a-fig13`) | at most 500 ms (loose); bound 150 to 651 | \
             {} to {} ms |",
            framework.0, framework.1
        ),
        format!("| … by BSD's least, 2 ticks | over 500, to 1000 ms | {} to {} ms |", bsd.0, bsd.1),
        format!(
            "| needless ACKs a tick, busy one-way stream (`b-acks`) | 0.5; buckets none | \
             {least:.2} to {most:.2}; none |"
        ),
    ]);
}

#[test]
fn the_table_of_small_files_is_what_is_known() {
    let found = &known("c-table3")["table3"];
    let names = [
        ("unmodified", "unmodified"),
        ("TCP (swap)", "swapped"),
        ("negotiated", "negotiated"),
        ("HTTP (client closes)", "the client (CLIENT_CLOSE)"),
        ("unmodified, unbounded", "unmodified, with room for all"),
        ("unmodified, our records", "unmodified, our records in its memory"),
    ];
    let lines = names.map(|(system, name)| {
        let row = row(found, &[("system", system.into())]);
        let columns = ["Mb/s", "conn/s", "blocks", "SYNs refused", "paper: Mb/s, conn/s, KB"];
        let cells = columns.map(|column| row[column].as_str().unwrap());
        format!("| {name} | {} |", cells.join(" | "))
    });
    assert_said(&lines);
}

#[test]
fn the_table_of_the_bottleneck_is_what_is_known() {
    let estimates = known("a-packet-pair");
    let lines = estimates["estimates"].as_array().unwrap().iter().map(|row| {
        let cell = |column: &str| match &row[column] {
            Value::Number(value) => format!("{:.2}", value.as_f64().unwrap()),
            none => none.as_str().unwrap().to_owned(),
        };
        format!(
            "| {} | {} | {} | {} |",
            number(&row["true Mbit/s"]),
            cell("fine, 512 B"),
            cell("1 ms, 1448 B"),
            cell("1 ms, 512 B")
        )
    });
    assert_said(&lines.collect::<Vec<String>>());
}

#[test]
fn the_table_of_rules_for_send_buffers_is_what_is_known() {
    let found = &known("d-today")["today"];
    let rules = found.as_array().unwrap().iter().filter(|row| row["pool KiB"] == 2.0);
    let lines = rules.map(|tiny| {
        let cells = [2.0, 8.0, 128.0].map(|pool| {
            let row = row(found, &[("pool KiB", pool.into()), ("rules", tiny["rules"].clone())]);
            // In pools that are short all of it is held.
            let columns = ["goodput Mbit/s", "p99 ms", "held MiB"].into_iter();
            let columns = columns.take(if pool == 128.0 { 3 } else { 2 });
            columns.map(|column| row[column].as_str().unwrap()).collect::<Vec<_>>().join("; ")
        });
        format!("| {} | {} |", tiny["rules"].as_str().unwrap(), cells.join(" | "))
    });
    assert_said(&lines.collect::<Vec<String>>());
}

#[test]
fn the_table_of_slow_sources_is_what_is_known() {
    let found = &known("d-tfact")["read_times"];
    let lines = found.as_array().unwrap().iter().filter(|row| row["T_fact"] == "measured");
    let lines = lines.map(|measured| {
        let at = &measured["read time, RTT"];
        let cells = ["measured", "preset to 2", "preset to 1, as PSC"].map(|way| {
            let row = row(found, &[("read time, RTT", at.clone()), ("T_fact", way.into())]);
            ["seconds", "misses"].map(|column| row[column].as_str().unwrap()).join("; ")
        });
        format!("| {} | {} |", number(at), cells.join(" | "))
    });
    assert_said(&lines.collect::<Vec<String>>());
}

#[test]
fn the_table_of_wake_ups_is_what_is_known() {
    let found = &known("d-fig6")["wake-ups_of_the_writer_a_MB"];
    let lines = found.as_array().unwrap().iter().map(|row| {
        let cells = ["8 KB", "16 KB", "32 KB", "LOS"].map(|rule| row[rule].as_str().unwrap());
        format!("| {} % | {} |", number(&row["loss %"]), cells.join(" | "))
    });
    assert_said(&lines.collect::<Vec<String>>());
}
