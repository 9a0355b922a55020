//! A chart as SVG: lines over two axes.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 260.0;
/// Room for the labels.
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 30.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 20.0;

/// Lines over two axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Shaded parts, from one x to another.
    pub(super) shaded: [(f64, f64); 2],
    pub(super) lines: Vec<Line>,
}

/// Points in order of x.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) colour: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// A scale with its marks.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    least: f64,
    most: f64,
    is_logarithmic: bool,
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis from 0 to `most`, with some five round marks.
    pub(super) fn linear(most: f64, unit: &str) -> Axis {
        let power = 10f64.powf((most / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = step.into_iter().find(|step| most / step <= 6.0).unwrap_or(most);
        let marks = (0..).map(|count| f64::from(count) * step).take_while(|mark| *mark <= most);
        let marks = marks.map(|mark| (mark, label(mark, step, unit))).collect();
        Axis { least: 0.0, most, is_logarithmic: false, marks }
    }

    /// An axis that marks one part in so many above: 50 %, 90 %, … 99.999 %.
    pub(super) fn nines() -> Axis {
        let marks = [(2.0, "50 %"), (10.0, "90 %"), (1e2, "99 %"), (1e3, "99.9 %")];
        let more = [(1e4, "99.99 %"), (1e5, "99.999 %")];
        let marks = marks.into_iter().chain(more).map(|(at, text)| (at, text.to_owned())).collect();
        Axis { least: 1.0, most: 2f64.powi(17), is_logarithmic: true, marks }
    }

    /// An axis from 1 us to the power of ten at or above `most` us.
    pub(super) fn micros(most: f64) -> Axis {
        let decades = most.log10().ceil() as i32;
        let names = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"];
        let marks = names.iter().zip(0..=decades);
        let marks = marks.map(|(name, decade)| (10f64.powi(decade), (*name).to_owned())).collect();
        Axis { least: 1.0, most: 10f64.powi(decades), is_logarithmic: true, marks }
    }

    /// The position of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let place = (scale(value) - scale(self.least)) / (scale(self.most) - scale(self.least));
        place.clamp(0.0, 1.0)
    }
}

/// A mark with the digits that its step needs.
fn label(mark: f64, step: f64, unit: &str) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{mark:.digits$} {unit}").trim().to_owned()
}

impl Chart {
    /// The chart as an SVG element.
    pub(super) fn svg(&self) -> String {
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        for (from, to) in self.shaded.into_iter().filter(|(from, to)| from < to) {
            let (from, width) = (self.x(from), self.x(to) - self.x(from));
            svg += &format!(
                "<rect class=\"warm\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"/>\n",
                bottom - top,
            );
        }
        for (mark, text) in &self.y.marks {
            let y = self.y(*mark);
            svg += &format!(
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                left - 6.0,
                y + 4.0,
            );
        }
        for (mark, text) in &self.x.marks {
            let x = self.x(*mark);
            svg += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>\n",
                bottom + 16.0,
            );
        }
        svg += &format!("<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\"/>\n");
        for (number, line) in self.lines.iter().enumerate() {
            self.line(&mut svg, number, line);
        }
        svg + "</svg>"
    }

    fn line(&self, svg: &mut String, number: usize, line: &Line) {
        let Line { name, colour, points } = line;
        let mut places = String::new();
        for (x, y) in points {
            write!(places, "{:.1},{:.1} ", self.x(*x), self.y(*y)).expect("a string takes all");
        }
        let x = LEFT + 10.0 + 110.0 * number as f64;
        *svg += &format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"{x}\" y=\"12\" style=\"fill:{colour}\">{name}</text>\n",
            places.trim_end(),
        );
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - BOTTOM - TOP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_some_five() {
        for (most, last) in [(1.0, "1.0 s"), (9.0, "8 s"), (43_000.0, "40000 s"), (71.0, "60 s")] {
            let axis = Axis::linear(most, "s");
            assert_eq!(axis.marks.last().unwrap().1, last, "{most}");
            assert!((4..=7).contains(&axis.marks.len()), "{most}: {:?}", axis.marks);
        }
        let marks = Axis::linear(1.0, "").marks;
        let marks: Vec<_> = marks.iter().map(|(_, text)| &**text).collect();
        assert_eq!(marks, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let axis = Axis::micros(30_000.0);
        assert_eq!(axis.marks.last().unwrap().1, "100 ms");
    }

    #[test]
    fn values_lie_where_their_scale_has_them() {
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(Axis::linear(50.0, "").place(25.0), 0.5));
        assert!(near(Axis::micros(1e4).place(1e2), 0.5));
        assert!(near(Axis::linear(50.0, "").place(99.0), 1.0));
    }
}
