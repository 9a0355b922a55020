//! The time-sequence graph of tcptrace (Ostermann): time to the right, sequence numbers upwards.
//!
//! ```text
//!   ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─   what the receiver's window allows
//!         │ ┃ │             segments, from their first number to their last; ┃: sent again
//!       │ ┊                 ┊: what the receiver holds out of order
//!     │ ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   what it has acknowledged
//! ```

mod axis;
mod points;

use std::fmt::{self, Write as _};

use crate::trace::Trace;
use axis::Axis;
use points::Points;

/// Whose data is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What we have sent.
    Sent,
    /// What we have received.
    Received,
}

impl Side {
    /// The one with more bytes.
    pub fn busier(trace: &Trace) -> Side {
        let (sent, received) = trace.bytes();
        if sent >= received { Side::Sent } else { Side::Received }
    }
}

/// The picture, in its own units, and where the graph lies in it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 620.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 976.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 560.0;

/// Half the length of the tick that marks what was sent again.
const TICK: f64 = 3.5;

/// Legible on a light ground and on a dark one. No two kinds differ by colour alone.
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#222}
.title{font-size:16px;font-weight:600}
.ground{fill:#fff}.frame{fill:none;stroke:#777}
.grid{stroke:#e2e2e2;fill:none}
path{fill:none}
.data{stroke:#1f5fbf;stroke-width:1.6}
.again{stroke:#c62828;stroke-width:2.4}
.ack{stroke:#1b7a3d;stroke-width:1.4}
.window{stroke:#9a6700;stroke-width:1.4;stroke-dasharray:6 4}
.sack{stroke:#8e24aa;stroke-width:1.6;stroke-dasharray:2 2}
.control{stroke:#222;stroke-width:2}
.recovery{fill:#c62828;fill-opacity:.1}
.lost{fill:#c62828}
@media (prefers-color-scheme:dark){
text{fill:#e6e6e6}.ground{fill:#16181c}.frame{stroke:#999}.grid{stroke:#32363d}
.data{stroke:#6ea8fe}.again{stroke:#ff6b6b}.ack{stroke:#5fd38d}.window{stroke:#e3b341}
.sack{stroke:#d58cf0}.control{stroke:#e6e6e6}
.recovery{fill:#ff6b6b;fill-opacity:.16}.lost{fill:#ff6b6b}
}";

/// The graph of a connection as an SVG document; `None` if nothing went in that direction.
pub fn svg(trace: &Trace, side: Side) -> Option<String> {
    let points = Points::of(trace, side)?;
    let mut out = String::new();
    let picture = Picture {
        x: Axis::of_time(points.first_ms, points.last_ms, LEFT, RIGHT),
        y: Axis::of_bytes(points.top(), BOTTOM, TOP),
        points,
        name: &trace.name,
        side,
    };
    // Writing to a string does not fail.
    let _ = picture.write(&mut out);
    Some(out)
}

struct Picture<'a> {
    points: Points,
    x: Axis,
    y: Axis,
    name: &'a str,
    side: Side,
}

impl Picture<'_> {
    fn write(&self, out: &mut String) -> fmt::Result {
        let what = match self.side {
            Side::Sent => "data sent",
            Side::Received => "data received",
        };
        let (name, points) = (escaped(self.name), &self.points);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-labelledby=\"title about\">\n<title id=\"title\">Time-sequence \
             graph of {name}, {what}</title>\n<desc id=\"about\">{} segments, {} of them sent \
             again; {} bytes in {:.3} ms.</desc>\n<style>{STYLE}</style>\n<rect class=\"ground\" \
             width=\"100%\" height=\"100%\"/>",
            points.segments.len(),
            points.segments.iter().filter(|it| it.again).count(),
            points.highest,
            points.last_ms - points.first_ms,
        )?;
        writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"28\">{name}: {what}</text>")?;
        self.legend(out)?;
        self.grid(out)?;
        let (width, height) = (RIGHT - LEFT, BOTTOM - TOP);
        writeln!(
            out,
            "<clipPath id=\"inside\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" \
             height=\"{height}\"/></clipPath>\n<g clip-path=\"url(#inside)\">"
        )?;
        self.marks(out)?;
        self.lines(out)?;
        self.bars(out)?;
        writeln!(
            out,
            "</g>\n<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" \
             height=\"{height}\"/>\n</svg>"
        )
    }

    fn legend(&self, out: &mut String) -> fmt::Result {
        let mut x = LEFT;
        let is_sent = self.side == Side::Sent;
        let mut entries = vec![
            ("data", "M0 -9v12", "segment"),
            ("again", "M0 -9v12M-4 -3h8", "sent again"),
            ("control", "M-4 -3h8", "SYN, FIN"),
            ("ack", "M-9 -3h18", "acknowledged"),
            ("window", "M-9 -3h18", "window"),
            ("sack", "M0 -9v12", "SACK"),
        ];
        if is_sent {
            entries.push(("lost", "M-5 2h10l-5 -9z", "loss found"));
        }
        for (class, path, label) in entries {
            writeln!(
                out,
                "<path class=\"{class}\" transform=\"translate({},58)\" d=\"{path}\"/><text \
                 x=\"{}\" y=\"60\">{label}</text>",
                x + 10.0,
                x + 24.0
            )?;
            x += 46.0 + 7.6 * label.len() as f64;
        }
        if is_sent {
            writeln!(
                out,
                "<rect class=\"recovery\" x=\"{}\" y=\"48\" width=\"18\" height=\"14\"/><text \
                 x=\"{}\" y=\"60\">recovery</text>",
                x + 1.0,
                x + 24.0
            )?;
        }
        Ok(())
    }

    fn grid(&self, out: &mut String) -> fmt::Result {
        for (x, label) in self.x.ticks() {
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/><text text-anchor=\"middle\" \
                 x=\"{x:.1}\" y=\"{}\">{label}</text>",
                BOTTOM + 18.0
            )?;
        }
        for (y, label) in self.y.ticks() {
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text text-anchor=\"end\" \
                 x=\"{}\" y=\"{:.1}\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        writeln!(
            out,
            "<text text-anchor=\"middle\" x=\"{}\" y=\"{}\">time ({})</text><text \
             text-anchor=\"middle\" transform=\"translate(18,{}) rotate(-90)\">sequence number, \
             from the first ({})</text>",
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 42.0,
            self.x.unit,
            (TOP + BOTTOM) / 2.0,
            self.y.unit
        )
    }

    /// Recoveries, and where losses were found.
    fn marks(&self, out: &mut String) -> fmt::Result {
        for (begin, end, why) in &self.points.recoveries {
            let (x, end) = (self.x.at(*begin), self.x.at(*end));
            writeln!(
                out,
                "<rect class=\"recovery\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" \
                 height=\"{}\"><title>{}</title></rect>",
                (end - x).max(1.0),
                BOTTOM - TOP,
                escaped(why)
            )?;
        }
        for (at, why) in &self.points.losses {
            let x = self.x.at(*at);
            writeln!(
                out,
                "<path class=\"lost\" d=\"M{:.1} {BOTTOM}h10l-5 -9z\"><title>{}</title></path>",
                x - 5.0,
                escaped(why)
            )?;
        }
        Ok(())
    }

    /// What the receiver has acknowledged, and what its window allows: steps.
    fn lines(&self, out: &mut String) -> fmt::Result {
        let acked = self.points.acks.iter().map(|it| (it.ms, it.acked));
        let edges = self.points.acks.iter().map(|it| (it.ms, it.edge));
        self.steps("window", edges, out)?;
        self.steps("ack", acked, out)
    }

    fn steps(
        &self,
        class: &str,
        mut steps: impl Iterator<Item = (f64, i64)>,
        out: &mut String,
    ) -> fmt::Result {
        let Some((ms, offset)) = steps.next() else { return Ok(()) };
        let (mut x, mut y) = (self.x.at(ms), self.y.at(offset as f64));
        write!(out, "<path class=\"{class}\" d=\"M{x:.1} {y:.1}")?;
        for (ms, offset) in steps {
            let (next_x, next_y) = (self.x.at(ms), self.y.at(offset as f64));
            if (next_x - x).abs() >= 0.05 {
                write!(out, "H{next_x:.1}")?;
                x = next_x;
            }
            if (next_y - y).abs() >= 0.05 {
                write!(out, "V{next_y:.1}")?;
                y = next_y;
            }
        }
        writeln!(out, "H{RIGHT}\"/>")
    }

    fn bars(&self, out: &mut String) -> fmt::Result {
        let sacks = self.points.sacks.iter().map(|it| (it.0, it.1, it.2));
        self.bars_of("sack", sacks, 0.0, out)?;
        let of = |again: bool| {
            let chosen = self.points.segments.iter();
            let chosen = chosen.filter(move |it| it.has_text && it.again == again);
            chosen.map(|it| (it.ms, it.start, it.end))
        };
        self.bars_of("data", of(false), 0.0, out)?;
        self.bars_of("again", of(true), TICK, out)?;
        write!(out, "<path class=\"control\" d=\"")?;
        for it in self.points.segments.iter().filter(|it| it.is_control) {
            let (x, y) = (self.x.at(it.ms), self.y.at(it.end as f64));
            write!(out, "M{:.1} {y:.1}h{}", x - TICK, 2.0 * TICK)?;
        }
        writeln!(out, "\"/>")
    }

    fn bars_of(
        &self,
        class: &str,
        bars: impl Iterator<Item = (f64, i64, i64)>,
        tick: f64,
        out: &mut String,
    ) -> fmt::Result {
        write!(out, "<path class=\"{class}\" d=\"")?;
        for (ms, start, end) in bars {
            let x = self.x.at(ms);
            let (low, high) = (self.y.at(start as f64), self.y.at(end as f64));
            // One that is shorter than the line is wide would not be seen.
            let high = high.min(low - 1.5);
            write!(out, "M{x:.1} {low:.1}V{high:.1}")?;
            if tick > 0.0 {
                let middle = (low + high) / 2.0;
                write!(out, "M{:.1} {middle:.1}h{}", x - tick, 2.0 * tick)?;
            }
        }
        writeln!(out, "\"/>")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
