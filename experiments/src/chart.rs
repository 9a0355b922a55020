//! Pictures: lines and points over two axes, each linear or logarithmic, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 58.0;

/// Told apart by those who see fewer colours, too (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// How an axis maps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero, if nothing is below.
    Linear,
    /// Powers of ten; all values must be above zero.
    Logarithmic,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    Dashed,
    Points,
    /// A line with a step at each point.
    Steps,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    mark: Mark,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
struct Axis {
    label: String,
    scale: Scale,
}

/// A picture.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Chart {
    /// Nothing drawn yet; both axes linear.
    pub(crate) fn new(title: &str, x: &str, y: &str) -> Chart {
        let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
        Chart { title: title.to_owned(), x: axis(x), y: axis(y), series: Vec::new() }
    }

    /// With these scales.
    pub(crate) fn scales(mut self, x: Scale, y: Scale) -> Chart {
        (self.x.scale, self.y.scale) = (x, y);
        self
    }

    /// One more series; points that the scale cannot show are left out.
    pub(crate) fn draw(&mut self, name: &str, mark: Mark, points: Vec<(f64, f64)>) {
        let shown =
            |scale, value: f64| value.is_finite() && (scale == Scale::Linear || value > 0.0);
        let points: Vec<_> = points
            .into_iter()
            .filter(|(x, y)| shown(self.x.scale, *x) && shown(self.y.scale, *y))
            .collect();
        self.series.push(Series { name: name.to_owned(), mark, points });
    }

    /// The picture.
    pub(crate) fn svg(&self) -> String {
        let values = |of: fn(&(f64, f64)) -> f64| {
            self.series.iter().flat_map(move |series| series.points.iter().map(of))
        };
        let x = Range::new(self.x.scale, values(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = Range::new(self.y.scale, values(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, (LEFT, TOP - 20.0), "start", &self.title);
        self.axes(&mut svg, &x, &y);
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            series.svg(&mut svg, colour, &x, &y);
            let place = (WIDTH - RIGHT + 14.0, TOP + 8.0 + 18.0 * number as f64);
            series.legend(&mut svg, colour, place);
        }
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String, x: &Range, y: &Range) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in x.ticks() {
            let at = x.place(tick);
            line(svg, (at, TOP), (at, bottom));
            text(svg, (at, bottom + 17.0), "middle", &number(tick));
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            line(svg, (LEFT, at), (right, at));
            text(svg, (LEFT - 7.0, at + 4.0), "end", &number(tick));
        }
        text(svg, (f64::midpoint(LEFT, right), HEIGHT - 14.0), "middle", &self.x.label);
        let middle = f64::midpoint(TOP, bottom);
        let _ = writeln!(svg, "<g transform=\"translate(17 {middle:.1}) rotate(-90)\">");
        text(svg, (0.0, 0.0), "middle", &self.y.label);
        svg.push_str("</g>\n");
    }
}

impl Series {
    fn svg(&self, svg: &mut String, colour: &str, x: &Range, y: &Range) {
        let places = self.points.iter().map(|(px, py)| (x.place(*px), y.place(*py)));
        if self.mark == Mark::Points {
            for (x, y) in places {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }
            return;
        }
        let mut path = String::new();
        for (x, y) in places {
            let _ = match (path.is_empty(), self.mark) {
                (true, _) => write!(path, "M{x:.1} {y:.1}"),
                (false, Mark::Steps) => write!(path, "H{x:.1}V{y:.1}"),
                (false, _) => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        stroke(svg, &path, colour, self.mark);
    }

    fn legend(&self, svg: &mut String, colour: &str, (x, y): (f64, f64)) {
        if self.mark == Mark::Points {
            let _ =
                writeln!(svg, "<circle cx=\"{}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>", x + 10.0);
        } else {
            stroke(svg, &format!("M{x} {y}h20"), colour, self.mark);
        }
        text(svg, (x + 26.0, y + 4.0), "start", &self.name);
    }
}

/// Values of an axis, and where they lie in the picture.
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    begin: f64,
    end: f64,
}

impl Range {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone, begin: f64, end: f64) -> Range {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match scale {
            _ if least > most => (0.0, 1.0),
            Scale::Linear => {
                (least.min(0.0), if most > least.min(0.0) { most * 1.05 } else { 1.0 })
            }
            Scale::Logarithmic => {
                let (low, high) = (least.log10().floor(), most.log10().ceil());
                (low, if high > low { high } else { low + 1.0 })
            }
        };
        Range { scale, low, high, begin, end }
    }

    fn place(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Logarithmic { value.log10() } else { value };
        self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)
    }

    /// About five round values, or every power of ten.
    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Logarithmic {
            let (low, high) = (self.low as i32, self.high as i32);
            return (low..=high).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|tick| tick as f64 * step).collect()
    }
}

fn number(value: f64) -> String {
    if value == 0.0 || (0.001..1e6).contains(&value.abs()) {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.0e}")
    }
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>");
}

fn stroke(svg: &mut String, path: &str, colour: &str, mark: Mark) {
    let dashes = if mark == Mark::Dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_and_powers_of_ten() {
        let linear = Range::new(Scale::Linear, [3.0, 47.0].into_iter(), 0.0, 100.0);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let logarithmic = Range::new(Scale::Logarithmic, [0.5, 300.0].into_iter(), 0.0, 40.0);
        assert_eq!(logarithmic.ticks(), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert!((logarithmic.place(10.0) - 20.0).abs() < 1e-9);
        assert_eq!([0.0, 0.25, 40.0, 2e6].map(number), ["0", "0.25", "40", "2e6"]);
    }

    #[test]
    fn what_cannot_be_shown_is_left_out_and_text_is_escaped() {
        let mut chart = Chart::new("a < b & c", "x", "y").scales(Scale::Linear, Scale::Logarithmic);
        chart.draw("s", Mark::Steps, vec![(0.0, 0.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 10.0)]);
        let svg = chart.svg();
        assert!(svg.contains("a &lt; b &amp; c"));
        assert_eq!(chart.series[0].points, [(1.0, 1.0), (3.0, 10.0)]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn an_empty_picture_is_one_all_the_same() {
        assert!(Chart::new("none", "x", "y").svg().contains("</svg>"));
    }
}
