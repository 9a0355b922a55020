//! Rows of sockets as `ss` prints them. Everything comes from a server that may be of another
//! version: what is missing is not shown.

use std::fmt::Write;

use serde_json::Value;

use crate::doors::peer;

/// What is shown beyond states, queues and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) info: bool,
    pub(crate) timers: bool,
    pub(crate) extended: bool,
    pub(crate) memory: bool,
}

const HEADINGS: [&str; 5] =
    ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"];

/// A table whose rows come a page at a time. A column is as wide as its widest cell up to then, so
/// that one page stands below the other where their cells are alike.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Columns,
    widths: [usize; 5],
    /// The line of headings has still to be written.
    owes_headings: bool,
}

impl Table {
    pub(crate) fn new(columns: Columns, has_header: bool) -> Table {
        Table { columns, widths: [0; 5], owes_headings: has_header }
    }

    /// The lines of more rows.
    pub(crate) fn page(&mut self, rows: &[Value]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let headings = std::mem::take(&mut self.owes_headings).then(|| HEADINGS.map(str::to_owned));
        let has_headings = headings.is_some();
        let cells: Vec<[String; 5]> = headings.into_iter().chain(rows.iter().map(cells)).collect();
        for line in &cells {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for (number, line) in cells.iter().enumerate() {
            let row = number.checked_sub(usize::from(has_headings)).map(|number| &rows[number]);
            self.write(line, row, &mut text);
        }
        text
    }

    /// What is left to write: the headings, if there was no row at all.
    pub(crate) fn end(mut self) -> String {
        let mut text = String::new();
        if self.owes_headings {
            self.widths = HEADINGS.map(str::len);
            self.write(&HEADINGS.map(str::to_owned), None, &mut text);
        }
        text
    }

    fn write(&self, line: &[String; 5], row: Option<&Value>, text: &mut String) {
        let mut shown = String::new();
        for (cell, width) in line.iter().zip(self.widths) {
            let space = if shown.is_empty() { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(shown, "{space}{cell:<width$}");
        }
        let details = row.map(|row| beside(row, self.columns)).unwrap_or_default();
        let _ = writeln!(text, "{}", format!("{shown} {details}").trim_end());
        if let Some(below) = row.map(|row| below(row, self.columns)).filter(|it| !it.is_empty()) {
            let _ = writeln!(text, "\t {below}");
        }
    }
}

/// State, queues and ends.
fn cells(row: &Value) -> [String; 5] {
    let number = |name: &str| row[name].as_u64().unwrap_or(0).to_string();
    let [received, sent] = match row["kind"].as_str() {
        // Those that wait to be accepted, and how many may.
        Some("listener") => [number("waiting"), number("backlog")],
        _ => [number("receive_buffered_bytes"), number("send_buffered_bytes")],
    };
    let end = |end: Option<&str>| end.unwrap_or("*:*").to_owned();
    [state(row).to_owned(), received, sent, end(row["local"].as_str()), end(peer(row))]
}

/// A state, as `ss` abbreviates it.
fn state(row: &Value) -> &str {
    match row["state"].as_str().unwrap_or("UNKNOWN") {
        "ESTABLISHED" => "ESTAB",
        "SYN-RECEIVED" => "SYN-RECV",
        "CLOSED" => "UNCONN",
        other => other,
    }
}

/// What stands beside the ends.
fn beside(row: &Value, columns: Columns) -> String {
    let mut parts = Vec::new();
    if columns.timers {
        parts.extend(timer(row));
    }
    if columns.extended {
        parts.extend(extended(row));
    }
    parts.join(" ")
}

/// `timer:(name,time left,count)`.
fn timer(row: &Value) -> Option<String> {
    let timer = &row["timer"];
    let name = match timer["name"].as_str()? {
        // As `ss` has it.
        "retransmit" | "syn-ack" => "on",
        "time-wait" => "timewait",
        other => other,
    };
    let count = row["backoff"].as_u64().or_else(|| row["attempts"].as_u64()).unwrap_or(0);
    Some(format!("timer:({name},{},{count})", time(timer["us_left"].as_u64()?)))
}

fn extended(row: &Value) -> impl Iterator<Item = String> {
    let text = |name: &str, shown: &str| row[name].as_str().map(|it| format!("{shown}:{it}"));
    let flag = |name: &str| (row[name] == true).then(|| name.replace('_', "-"));
    let shard = row["shard"].as_u64().map(|shard| format!("shard:{shard}"));
    let parts = [
        text("door", "door"),
        shard,
        text("id", "sk"),
        text("holder", "holder"),
        flag("orphan"),
        flag("at_rest"),
    ];
    parts.into_iter().flatten()
}

/// What stands in a line of its own.
fn below(row: &Value, columns: Columns) -> String {
    if row["kind"] != "connection" {
        return String::new();
    }
    let mut parts = Vec::new();
    if columns.memory {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        parts.push(format!(
            "skmem:(r{},rb{},t{},tb{},w{})",
            number("receive_buffered_bytes"),
            number("receive_limit_bytes"),
            number("send_buffered_bytes"),
            number("send_limit_bytes"),
            number("unsent_bytes"),
        ));
    }
    if columns.info {
        parts.extend(tcp(row));
    }
    parts.join(" ")
}

/// `tcp_info`, in the names of `ss`.
fn tcp(row: &Value) -> Vec<String> {
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    let mss = number("mss_bytes").max(1);
    let segments = |name: &str| number(name).div_ceil(mss);
    let ms = |name: &str| format!("{}", number(name) as f64 / 1000.0);
    let mut parts: Vec<String> = Vec::new();
    let flags = [("timestamps", "ts"), ("sack", "sack"), ("ecn", "ecn")];
    parts.extend(flags.iter().filter(|(name, _)| row[*name] == true).map(|(_, it)| (*it).into()));
    parts.extend(row["congestion"].as_str().map(str::to_owned));
    let [peers, ours] = [0, 1].map(|at| row["shifts"][at].as_u64().unwrap_or(0));
    // The least of what was not limited yet is told as a number of all bits.
    let threshold = number("ssthresh_bytes");
    let threshold = (threshold < u64::from(u32::MAX)).then(|| segments("ssthresh_bytes"));
    let mut add = |is_shown: bool, text: String| parts.extend(is_shown.then_some(text));
    let told = |name: &str| number(name) > 0;
    add(true, format!("wscale:{peers},{ours}"));
    add(true, format!("rto:{}", ms("rto_us")));
    add(told("backoff"), format!("backoff:{}", number("backoff")));
    add(true, format!("rtt:{}/{}", ms("srtt_us"), ms("rttvar_us")));
    add(true, format!("mss:{}", number("mss_bytes")));
    add(true, format!("pmtu:{}", number("path_mtu_bytes")));
    add(told("peer_segment_bytes"), format!("rcvmss:{}", number("peer_segment_bytes")));
    add(true, format!("advmss:{}", number("announced_mss_bytes")));
    add(true, format!("cwnd:{}", segments("cwnd_bytes")));
    add(threshold.is_some(), format!("ssthresh:{}", threshold.unwrap_or_default()));
    for (name, shown) in [
        ("sent_bytes", "bytes_sent"),
        ("retransmitted_bytes", "bytes_retrans"),
        ("acknowledged_bytes", "bytes_acked"),
        ("received_bytes", "bytes_received"),
    ] {
        add(told(name), format!("{shown}:{}", number(name)));
    }
    add(true, format!("lastsnd:{}", number("last_sent_us_ago") / 1000));
    add(true, format!("lastrcv:{}", number("last_heard_us_ago") / 1000));
    add(true, format!("pacing_rate {}bps", number("pacing_bytes_per_second") * 8));
    let delivery = "delivery_bytes_per_second";
    add(told(delivery), format!("delivery_rate {}bps", number(delivery) * 8));
    add(told("in_flight_bytes"), format!("unacked:{}", segments("in_flight_bytes")));
    add(told("retransmits"), format!("retrans:0/{}", number("retransmits")));
    add(told("lost_bytes"), format!("lost:{}", segments("lost_bytes")));
    add(told("sacked_bytes"), format!("sacked:{}", segments("sacked_bytes")));
    add(told("reorderings"), format!("reord_seen:{}", number("reorderings")));
    add(told("receiver_rtt_us"), format!("rcv_rtt:{}", ms("receiver_rtt_us")));
    add(true, format!("rcv_space:{}", number("receive_limit_bytes")));
    add(told("unsent_bytes"), format!("notsent:{}", number("unsent_bytes")));
    add(told("min_rtt_us"), format!("minrtt:{}", ms("min_rtt_us")));
    add(true, format!("rcv_wnd:{}", number("receive_window_bytes")));
    add(true, format!("snd_wnd:{}", number("peer_window_bytes")));
    parts
}

/// A time left, as `ss` shows it: `4.5sec`, `1min20sec`, `200ms`.
pub(crate) fn time(us: u64) -> String {
    let (ms, seconds) = (us / 1000, us / 1_000_000);
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{}.{}sec", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds}sec"),
        60..3600 => format!("{}min{:02}sec", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(rows: &[Value], columns: Columns, has_header: bool) -> String {
        Table::new(columns, has_header).page(rows)
    }

    fn connection() -> Value {
        json!({
            "kind": "connection", "shard": 1, "id": "5.2", "door": "127.0.0.1:9100",
            "local": "10.0.0.1:80", "peer": "10.0.0.2:4000", "state": "ESTABLISHED",
            "holder": "closer", "orphan": false, "at_rest": false,
            "timer": { "name": "retransmit", "us_left": 201_000 }, "backoff": 2,
            "receive_buffered_bytes": 7, "send_buffered_bytes": 3000, "send_limit_bytes": 65536,
            "receive_limit_bytes": 131072, "unsent_bytes": 100,
            "timestamps": true, "sack": true, "ecn": false, "congestion": "cubic",
            "shifts": [7, 9], "rto_us": 204_000, "srtt_us": 1500, "rttvar_us": 750,
            "mss_bytes": 1000, "path_mtu_bytes": 1500, "cwnd_bytes": 10_000,
            "ssthresh_bytes": u32::MAX, "in_flight_bytes": 2900, "retransmits": 3,
            "sent_bytes": 12_000, "pacing_bytes_per_second": 1_000_000,
        })
    }

    #[test]
    fn columns_stand_below_their_headings() {
        let listener = json!({
            "kind": "listener", "local": "[::]:80", "peer": null, "state": "LISTEN",
            "waiting": 3, "backlog": 128,
        });
        let text = write(&[listener, connection()], Columns::default(), true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["State", "Recv-Q", "Send-Q", "Local", "Address:Port", "Peer", "Address:Port"]
        );
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(words(lines[1]), ["LISTEN", "3", "128", "[::]:80", "*:*"]);
        assert_eq!(words(lines[2]), ["ESTAB", "7", "3000", "10.0.0.1:80", "10.0.0.2:4000"]);
        for line in &lines {
            assert_eq!(line.find("Peer").or(line.find("*:*")).or(line.find("10.0.0.2")), Some(40));
        }
        let bare = write(&[connection()], Columns::default(), false);
        assert_eq!(bare.lines().count(), 1);
    }

    #[test]
    fn pages_have_one_line_of_headings_and_columns_alike() {
        let mut table = Table::new(Columns::default(), true);
        let [first, second] = [0; 2].map(|_| table.page(&[connection()]));
        assert_eq!((first.lines().count(), second.lines().count()), (2, 1));
        assert_eq!(first.lines().last(), second.lines().next());
        let mut longer = connection();
        longer["local"] = json!("[fd00:1234::5678]:8080");
        let at = |text: &str| text.find("10.0.0.2:4000");
        assert!(at(&table.page(&[longer])) > at(&second));
        assert!(at(&table.page(&[connection()])) > at(&second), "no column narrows again");
        assert_eq!(table.end(), "");
        let empty = |has_header| Table::new(Columns::default(), has_header).end();
        assert_eq!((empty(true).lines().count(), empty(false).lines().count()), (1, 0));
    }

    #[test]
    fn a_connection_tells_what_it_is_asked_for() {
        let columns = Columns { info: true, timers: true, extended: true, memory: true };
        let text = write(&[connection()], columns, false);
        let (first, second) = text.split_once("\n\t ").unwrap();
        assert!(
            first.ends_with("timer:(on,201ms,2) door:127.0.0.1:9100 shard:1 sk:5.2 holder:closer"),
            "{first}"
        );
        for part in [
            "skmem:(r7,rb131072,t3000,tb65536,w100)",
            " ts sack cubic wscale:7,9 rto:204 backoff:2 rtt:1.5/0.75 mss:1000 pmtu:1500 ",
            " cwnd:10 bytes_sent:12000 ",
            " pacing_rate 8000000bps unacked:3 retrans:0/3 ",
        ] {
            assert!(second.contains(part), "{part}: {second}");
        }
        assert!(!second.contains("ssthresh") && !second.contains("ecn"), "{second}");
    }

    #[test]
    fn a_record_shows_its_time_and_its_holder() {
        let record = json!({
            "kind": "record", "shard": 0, "local": "10.0.0.1:80", "peer": "10.0.0.2:4000",
            "state": "TIME-WAIT", "timer": { "name": "time-wait", "us_left": 59_000_000 },
            "holder": "ourselves",
        });
        let columns = Columns { info: true, timers: true, extended: true, memory: true };
        let text = write(&[record], columns, false);
        assert_eq!(text.lines().count(), 1, "it has no more to tell");
        assert!(text.contains("timer:(timewait,59sec,0) shard:0 holder:ourselves"), "{text}");
    }

    #[test]
    fn times_are_told_as_ss_tells_them() {
        for (us, text) in [
            (0, "0ms"),
            (999_999, "999ms"),
            (1_000_000, "1.0sec"),
            (4_560_000, "4.5sec"),
            (59_999_999, "59sec"),
            (80_000_000, "1min20sec"),
            (7_260_000_000, "2h01min"),
        ] {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn what_a_server_of_another_version_lacks_is_left_out() {
        let columns = Columns { info: true, timers: true, extended: true, memory: true };
        let text = write(&[json!({ "kind": "connection" }), json!(null)], columns, false);
        assert!(text.starts_with("UNKNOWN 0 0 *:* *:*\n\t skmem:(r0,"), "{text}");
        assert!(text.ends_with("\nUNKNOWN 0 0 *:* *:*\n"), "{text}");
    }
}
