use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::*;
use crate::top::feed::Told;

fn connection(number: u64) -> Value {
    json!({
        "kind": "connection", "state": "ESTABLISHED", "peer": format!("10.0.0.{number}:4000"),
        "sent_per_second": 1000.0 * number as f64, "received_per_second": 1.0,
        "srtt_us": 90_000 / number, "cwnd_bytes": 14_600, "send_buffered_bytes": 100,
        "retransmits": number % 3, "last_heard_us_ago": 1500,
    })
}

fn rates(responses: f64) -> Value {
    let level = json!({ "held": 50, "limit": 200 });
    json!({
        "seconds": 1.0,
        "per_second": { "http_responses": responses, "retransmits": 2.0 },
        "levels": { "connections": level, "time_wait": level },
        "shards": [
            { "shard": 0, "per_second": { "http_responses": 1000.0 }, "levels": {} },
            { "shard": 1, "per_second": { "http_responses": 234.0 }, "levels": {} },
        ],
    })
}

fn door(name: &str, count: u64) -> DoorSample {
    let connections = (1..=count).map(connection).collect();
    let told = Told { rates: rates(1234.0), connections, is_cut: false, complaint: None };
    DoorSample { door: name.to_owned(), told: Ok(told) }
}

fn view(count: u64) -> View {
    let mut view = View::new(Sort::Rate, false, String::new());
    view.take(Sample { doors: vec![door("127.0.0.1:9100", count)] });
    view
}

/// What is on a screen of that size.
fn shown(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn press(view: &mut View, keys: &str) -> bool {
    keys.chars().any(|key| {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::PageDown,
            key => KeyCode::Char(key),
        };
        view.on_key(KeyEvent::new(code, KeyModifiers::NONE))
    })
}

/// The peers on the screen, in their order.
fn peers(view: &View) -> Vec<String> {
    let lines = shown(view, 80, 24);
    let at = lines.iter().position(|line| line.starts_with("STATE")).unwrap();
    let rows = lines[at + 1..23].iter().filter(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect()
}

#[test]
fn a_screen_of_80_by_24_has_all_of_it() {
    let lines = shown(&view(50), 80, 24);
    assert_eq!(lines[0], "lightwait top  127.0.0.1:9100  shards 2  over 1.0s  listed 50");
    assert!(lines[1].starts_with("http   1.2K/s responses "), "{}", lines[1]);
    assert!(lines[3].contains("    2/s again"), "{}", lines[3]);
    assert!(lines[5].contains("50 of 200      25% connections"), "{}", lines[5]);
    assert_eq!(
        lines[7],
        "STATE       PEER                  TX/s↓  RX/s↓  RTT    CWND   SEND-Q RETR  IDLE"
    );
    assert_eq!(
        lines[8],
        "ESTABLISHED 10.0.0.50:4000        50.0K  1      1.8ms  14.6K  100    2     1.5ms"
    );
    assert_eq!(lines[22].split_whitespace().nth(1), Some("10.0.0.36:4000"));
    assert!(lines[23].starts_with("q quit  space pause"));
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn the_client_behind_a_bridge_is_shown_as_the_peer() {
    let mut bridged = connection(1);
    bridged["client"] = json!("192.0.2.9:5000");
    let told = Told { rates: rates(1.0), connections: vec![bridged], ..Told::default() };
    let mut view = View::new(Sort::Rate, false, String::new());
    view.take(Sample { doors: vec![DoorSample { door: "a".to_owned(), told: Ok(told) }] });
    assert_eq!(peers(&view), ["192.0.2.9:5000"]);
}

#[test]
fn any_size_is_drawn() {
    let mut view = view(50);
    press(&mut view, "s");
    for (width, height) in [(1, 1), (2, 3), (20, 5), (40, 10), (79, 24), (200, 60), (500, 2)] {
        let lines = shown(&view, width, height);
        assert_eq!(lines.len(), usize::from(height));
    }
    // A low screen still has connections.
    assert!(shown(&view, 80, 12).iter().any(|line| line.contains("10.0.0.50:4000")));
    let nothing = View::new(Sort::Rate, true, String::new());
    assert!(shown(&nothing, 80, 24)[0].contains("asking"));
}

#[test]
fn keys_sort_reverse_and_scroll() {
    let mut view = view(20);
    assert_eq!(peers(&view)[0], "10.0.0.20:4000");
    press(&mut view, ">");
    assert_eq!(peers(&view)[0], "10.0.0.1:4000", "the longest round trip");
    press(&mut view, "r");
    assert_eq!(peers(&view)[0], "10.0.0.20:4000");
    press(&mut view, "r>");
    assert_eq!(peers(&view)[0], "10.0.0.11:4000", "two of each three retransmit, by name");
    press(&mut view, "<<");
    assert_eq!(view.sort(), (Sort::Rate, false));
    press(&mut view, "\t");
    assert_eq!(peers(&view)[0], "10.0.0.10:4000");
    press(&mut view, "\t\t\t");
    assert_eq!(peers(&view), ["10.0.0.1:4000"], "no further than the last");
    press(&mut view, "<");
    assert_eq!(view.sort().0, Sort::Idle);
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut view = view(3);
    press(&mut view, " ");
    view.take(Sample { doors: vec![door("other", 9)] });
    let lines = shown(&view, 80, 24);
    assert!(lines[0].ends_with("listed 3  PAUSED"), "{}", lines[0]);
    press(&mut view, " ");
    view.take(Sample { doors: vec![door("other", 9)] });
    assert!(shown(&view, 80, 24)[0].contains("other  shards 2  over 1.0s  listed 9"));
}

#[test]
fn a_filter_is_typed_and_checked() {
    let mut view = view(3);
    assert!(!press(&mut view, "fdport = :x\n"), "q is no key meanwhile");
    let last = shown(&view, 80, 24).pop().unwrap();
    assert!(last.starts_with("filter: dport = :x_  \":x\" is no port"), "{last}");
    assert_eq!(view.filter(), "");
    view.on_key(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
    press(&mut view, "443\n");
    assert_eq!(view.filter(), "dport = :443");
    assert!(shown(&view, 120, 24)[0].ends_with("filter: dport = :443"));
    press(&mut view, "fq");
    view.on_key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    assert_eq!(view.filter(), "dport = :443", "as it was");
    assert!(press(&mut view, "q"));
    assert!(view.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn doors_add_up_and_one_that_fails_is_told_of() {
    let mut view = View::new(Sort::Rate, true, String::new());
    let failed = DoorSample { door: "three".to_owned(), told: Err("no server".to_owned()) };
    view.take(Sample { doors: vec![door("one", 2), door("two", 2), failed] });
    let lines = shown(&view, 100, 30);
    assert!(lines[0].contains("one two three  shards 4"), "{}", lines[0]);
    assert_eq!(lines[1], "three: no server");
    assert!(lines[2].starts_with("http   2.5K/s"), "{}", lines[2]);
    assert!(lines[6].contains("100 of 400      25%"), "{}", lines[6]);
    let shards: Vec<_> = lines.iter().filter(|line| line.contains(" 1.0K         0 ")).collect();
    assert_eq!(shards.len(), 2, "{lines:?}");
    assert!(shards[1].starts_with("two 0 "), "{}", shards[1]);
}

#[test]
fn what_is_printed_once_has_every_line() {
    let text = print(&view(5), 80, 40);
    assert_eq!(text.lines().count(), 7 + 1 + 5);
    assert!(text.ends_with("1.5ms\n") && !text.contains("q quit"), "{text}");
    assert_eq!(print(&view(50), 80, 40).lines().count(), 7 + 1 + 40);
    // Though there is little below it, all of the head is there.
    let none = print(&view(0), 80, 40);
    assert_eq!(
        none.lines().take(7).collect::<Vec<_>>()[1..],
        text.lines().take(7).collect::<Vec<_>>()[1..]
    );
}
