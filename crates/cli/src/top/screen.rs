//! Draws the view, on a screen of any size.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};
use serde_json::Value;

use super::feed::{DoorSample, Sample};
use super::text::{short, time};
use super::view::{Prompt, Sort, View};
use crate::doors::peer;

/// What happens a second, in lines: each with the names of its counters and how they are shown.
const LINES: [(&str, [(&str, &str); 4]); 4] = [
    (
        "http",
        [
            ("http_responses", "responses"),
            ("http_body_bytes", "bytes"),
            ("http_responses_4xx", "4xx"),
            ("http_responses_5xx", "5xx"),
        ],
    ),
    (
        "tcp",
        [
            ("established", "opened"),
            ("time_wait_entered", "time-wait"),
            ("resets_sent", "rst sent"),
            ("resets_received", "rst got"),
        ],
    ),
    (
        "loss",
        [
            ("segments_out", "segments"),
            ("retransmits", "again"),
            ("timeouts", "timeouts"),
            ("out_of_order", "disorder"),
        ],
    ),
    (
        "link",
        [
            ("frames_in", "in"),
            ("frames_out", "out"),
            ("frames_malformed", "malformed"),
            ("checksum_errors", "bad sums"),
        ],
    ),
];

/// The levels that are shown, and their names.
const LEVELS: [(&str, &str); 4] = [
    ("connections", "connections"),
    ("time_wait", "time-wait"),
    ("syn_cache", "half-open"),
    ("pages", "pages"),
];

/// The columns of connections: a heading, a width, and what it is sorted by.
const COLUMNS: [(&str, u16, Option<Sort>); 9] = [
    ("STATE", 11, None),
    ("PEER", 21, None),
    ("TX/s", 6, Some(Sort::Rate)),
    ("RX/s", 6, Some(Sort::Rate)),
    ("RTT", 6, Some(Sort::Rtt)),
    ("CWND", 6, Some(Sort::Window)),
    ("SEND-Q", 6, Some(Sort::Queue)),
    ("RETR", 5, Some(Sort::Retransmits)),
    ("IDLE", 5, Some(Sort::Idle)),
];

const KEYS: &str = "q quit  space pause  s shards  f filter  < > sort  r reverse  arrows scroll";

/// Draws on the terminal.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let area = frame.area();
    render(view, area, frame.buffer_mut());
}

/// A screen as text, with so many connections at most, and no keys.
pub(super) fn print(view: &View, width: u16, most: u16) -> String {
    let rows = u16::try_from(view.count()).unwrap_or(most).min(most);
    // What stands above the connections, their headings, and the line of the keys.
    let height = above(view) + 1 + rows + 1;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    render_below(view, above(view), area, &mut buffer);
    let mut text = String::new();
    for y in 0..height - 1 {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The lines above the connections.
fn above(view: &View) -> u16 {
    let shards = if view.has_shards() { shards(view).len() + 1 } else { 0 };
    let failed = failures(view).count();
    (1 + LINES.len() + LEVELS.len().div_ceil(2) + shards + failed) as u16
}

fn render(view: &View, area: Rect, buffer: &mut Buffer) {
    // On a low screen the connections keep a third of it.
    let head = above(view).min(area.height.saturating_sub(area.height / 3 + 1));
    render_below(view, head, area, buffer);
}

/// Renders with so many lines above the connections.
fn render_below(view: &View, head: u16, area: Rect, buffer: &mut Buffer) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(head), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    let mut lines = vec![title(view)];
    lines.extend(failures(view).map(|(door, why)| {
        Line::styled(format!("{door}: {why}"), Style::new().add_modifier(Modifier::BOLD))
    }));
    lines.extend(LINES.iter().map(|(name, counters)| rates(view, name, counters)));
    lines.extend(LEVELS.chunks(2).map(|pair| levels(view, pair)));
    if view.has_shards() {
        lines.push(Line::styled(
            format!(
                "{:<28} {:>9} {:>9} {:>9} {:>11} {:>9}",
                "SHARD", "RESPONSES", "FRAMES", "AGAIN", "CONNECTIONS", "TIME-WAIT"
            ),
            heading(),
        ));
        lines.extend(shards(view).into_iter().map(Line::raw));
    }
    Paragraph::new(lines).render(head, buffer);
    connections(view, body, buffer);
    foot_line(view).render(foot, buffer);
}

fn heading() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn told(view: &View) -> impl Iterator<Item = (&str, &Value)> {
    let doors = view.sample().map_or(&[][..], |sample| &sample.doors);
    doors.iter().filter_map(|DoorSample { door, told }| Some((&**door, &told.as_ref().ok()?.rates)))
}

fn failures(view: &View) -> impl Iterator<Item = (&str, &str)> {
    let doors = view.sample().map_or(&[][..], |sample| &sample.doors);
    doors.iter().filter_map(|DoorSample { door, told }| {
        let why = match told {
            Ok(told) => told.complaint.as_ref()?,
            Err(why) => why,
        };
        Some((&**door, &**why))
    })
}

fn title(view: &View) -> Line<'static> {
    let Some(Sample { doors }) = view.sample() else {
        return Line::styled("lightwait top: asking…", heading());
    };
    let names: Vec<&str> = doors.iter().map(|door| door.door.as_str()).collect();
    let shards: usize =
        told(view).filter_map(|(_, rates)| rates["shards"].as_array()).map(Vec::len).sum();
    let seconds = told(view).filter_map(|(_, rates)| rates["seconds"].as_f64()).fold(0.0, f64::max);
    let is_cut = doors.iter().any(|door| door.told.as_ref().is_ok_and(|told| told.is_cut));
    let mut text = format!("lightwait top  {}  shards {shards}", names.join(" "));
    text += &format!("  over {seconds:.1}s  listed {}", view.count());
    if is_cut {
        text += " of more";
    }
    if !view.filter().is_empty() {
        text += &format!("  filter: {}", view.filter());
    }
    if view.is_paused() {
        text += "  PAUSED";
    }
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// The sum of a number over all doors.
fn sum(view: &View, of: impl Fn(&Value) -> Option<f64>) -> f64 {
    told(view).filter_map(|(_, rates)| of(rates)).sum()
}

fn rates(view: &View, name: &str, counters: &[(&str, &str); 4]) -> Line<'static> {
    let mut text = format!("{name:<5}");
    for (counter, shown) in counters {
        let rate = sum(view, |rates| rates["per_second"][*counter].as_f64());
        text += &format!(" {:>5}/s {shown:<9}", short(rate));
    }
    Line::raw(text)
}

fn levels(view: &View, pair: &[(&str, &str)]) -> Line<'static> {
    let mut text = format!("{:<5}", "");
    for (level, shown) in pair {
        let held = sum(view, |rates| rates["levels"][*level]["held"].as_f64());
        let limit = sum(view, |rates| rates["levels"][*level]["limit"].as_f64());
        let percent = if limit > 0.0 { held * 100.0 / limit } else { 0.0 };
        text +=
            &format!(" {:>7} of {:<7} {:>3.0}% {shown:<13}", short(held), short(limit), percent);
    }
    Line::raw(text)
}

/// A line for each shard of each door.
fn shards(view: &View) -> Vec<String> {
    let several = told(view).count() > 1;
    let of_door = |(door, rates): (&str, &Value)| -> Vec<String> {
        let shards = rates["shards"].as_array().cloned().unwrap_or_default();
        let line = |shard: &Value| {
            let door = if several { format!("{door} ") } else { String::new() };
            let rate = |name: &str| shard["per_second"][name].as_f64().unwrap_or(0.0);
            let level = |name: &str| shard["levels"][name]["held"].as_f64().unwrap_or(0.0);
            format!(
                "{:<28} {:>9} {:>9} {:>9} {:>11} {:>9}",
                format!("{door}{}", shard["shard"]),
                short(rate("http_responses")),
                short(rate("frames_in") + rate("frames_out")),
                short(rate("retransmits")),
                short(level("connections")),
                short(level("time_wait")),
            )
        };
        shards.iter().map(line).collect()
    };
    told(view).flat_map(of_door).collect()
}

fn connections(view: &View, area: Rect, buffer: &mut Buffer) {
    let (sort, is_reversed) = view.sort();
    let headings = COLUMNS.map(|(name, _, by)| {
        let mark = match (by == Some(sort), is_reversed) {
            (false, _) => "",
            (true, false) => "↓",
            (true, true) => "↑",
        };
        Cell::new(format!("{name}{mark}"))
    });
    // A wide screen has room for addresses of IPv6.
    let spare = area.width.saturating_sub(80).min(26);
    let widths = COLUMNS.map(|(name, width, _)| {
        Constraint::Length(if name == "PEER" { width + spare } else { width })
    });
    let shown = usize::from(area.height);
    let rows = view.rows().iter().take(shown).map(row);
    Table::new(rows, widths)
        .header(Row::new(headings).style(heading()))
        .column_spacing(1)
        .render(area, buffer);
}

fn row(row: &Value) -> Row<'static> {
    let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
    let us = |name: &str| time(row[name].as_u64().unwrap_or(0));
    let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
    Row::new([
        text("state"),
        peer(row).unwrap_or("-").to_owned(),
        short(number("sent_per_second")),
        short(number("received_per_second")),
        us("srtt_us"),
        short(number("cwnd_bytes")),
        short(number("send_buffered_bytes")),
        short(number("retransmits")),
        us("last_heard_us_ago"),
    ])
}

fn foot_line(view: &View) -> Line<'static> {
    match view.prompt() {
        Prompt::Keys => Line::styled(KEYS, heading()),
        Prompt::Filter(typed, None) => Line::styled(format!("filter: {typed}_"), heading()),
        Prompt::Filter(typed, Some(wrong)) => {
            Line::styled(format!("filter: {typed}_  {wrong}"), heading())
        }
    }
}

#[cfg(test)]
mod tests;
