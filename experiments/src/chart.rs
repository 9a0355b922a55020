//! Draws charts as SVG: lines, points and bars over two axes, linear, logarithmic or of categories.

use std::fmt::Write;

use crate::statistics::Mean;

const HEIGHT: f64 = 440.0;
/// The area between the axes.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 530.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 58.0;
/// The left end of the legend's lines and names, right of the axes.
const LEGEND: f64 = 14.0;
const LEGEND_NAME: f64 = LEGEND + 26.0;
/// The lines across the ends of an interval, and the colour of one on a bar.
const INTERVAL_WIDTH: f64 = 6.0;
const INTERVAL_ON_BAR: &str = "#000000";
/// About the width of a character: the fonts are not read.
const CHARACTER: f64 = 6.7;

/// Colours that colour-blind readers can distinguish, too (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear, from zero if no value is below.
    Linear,
    /// Logarithmic; all values must be above zero.
    Logarithmic,
}

/// The drawing of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    Dashed,
    Points,
    /// Bars from zero, each in the middle of its category.
    Bars,
    /// A line with a step at each point.
    Steps,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    mark: Mark,
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    y: f64,
    /// The half of the interval around `y`, if it is known.
    half: Option<f64>,
}

impl Point {
    /// The ends of what is drawn.
    fn ends(&self) -> [f64; 2] {
        let half = self.half.unwrap_or(0.0);
        [self.y - half, self.y + half]
    }
}

#[derive(Clone, Debug)]
struct Axis {
    label: String,
    scale: Scale,
    /// Names of the values 0, 1, 2, …, for an axis of categories.
    categories: Vec<String>,
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Chart {
    /// An empty chart with linear axes.
    pub(crate) fn new(title: &str, x: &str, y: &str) -> Chart {
        let axis = |label: &str| Axis {
            label: label.to_owned(),
            scale: Scale::Linear,
            categories: Vec::new(),
        };
        Chart { title: title.to_owned(), x: axis(x), y: axis(y), series: Vec::new() }
    }

    /// An empty chart; the values 0, 1, 2, … of its x axis are these categories.
    pub(crate) fn of_categories(title: &str, names: &[&str], y: &str) -> Chart {
        let mut chart = Chart::new(title, "", y);
        chart.x.categories = names.iter().map(|&name| name.to_owned()).collect();
        chart
    }

    /// Sets the scales.
    pub(crate) fn scales(mut self, x: Scale, y: Scale) -> Chart {
        (self.x.scale, self.y.scale) = (x, y);
        self
    }

    /// Adds a series; points that the scale cannot show are left out.
    pub(crate) fn draw(&mut self, name: &str, mark: Mark, points: Vec<(f64, f64)>) {
        let points = points.into_iter().map(|(x, y)| Point { x, y, half: None });
        self.add(name, mark, points);
    }

    /// Adds a series of means with their confidence intervals. An interval that reaches beyond what
    /// the scale can show is left out, as is one that is not known.
    pub(crate) fn draw_means(
        &mut self,
        name: &str,
        mark: Mark,
        means: impl Iterator<Item = (f64, Mean)>,
    ) {
        let scale = self.y.scale;
        let half = |mean: Mean| {
            Some(mean.half).filter(|half| half.is_finite() && shown(scale, mean.mean - half))
        };
        self.add(name, mark, means.map(|(x, mean)| Point { x, y: mean.mean, half: half(mean) }));
    }

    fn add(&mut self, name: &str, mark: Mark, points: impl Iterator<Item = Point>) {
        let is_shown = |point: &Point| shown(self.x.scale, point.x) && shown(self.y.scale, point.y);
        let points = points.filter(is_shown).collect();
        self.series.push(Series { name: name.to_owned(), mark, points });
    }

    /// The chart as SVG.
    pub(crate) fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut x = Range::new(self.x.scale, points.clone().map(|point| point.x), LEFT, RIGHT);
        if !self.x.categories.is_empty() {
            (x.low, x.high) = (-0.5, self.x.categories.len() as f64 - 0.5);
        }
        let y = Range::new(self.y.scale, points.flat_map(Point::ends), HEIGHT - BOTTOM, TOP);
        let width = self.width();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, (LEFT, TOP - 20.0), "start", &self.title);
        self.axes(&mut svg, &x, &y);
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            series.svg(&mut svg, colour, &x, &y);
            let place = (RIGHT + LEGEND, TOP + 8.0 + 18.0 * number as f64);
            series.legend(&mut svg, colour, place);
        }
        svg + "</svg>\n"
    }

    /// The width that the title and the longest name in the legend need.
    fn width(&self) -> f64 {
        let longest = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| name.chars().count()).max().unwrap_or_default() as f64 * CHARACTER
        };
        let legend = longest(&mut self.series.iter().map(|series| &series.name));
        let title = longest(&mut [&self.title].into_iter());
        (RIGHT + LEGEND_NAME + legend).max(LEFT + title).ceil() + LEGEND
    }

    fn axes(&self, svg: &mut String, x: &Range, y: &Range) {
        let (bottom, right) = (HEIGHT - BOTTOM, RIGHT);
        for (number, name) in self.x.categories.iter().enumerate() {
            for (row, words) in rows(name).into_iter().enumerate() {
                let place = (x.place(number as f64), bottom + 17.0 + 14.0 * row as f64);
                text(svg, place, "middle", words);
            }
        }
        let ticks = if self.x.categories.is_empty() { x.ticks() } else { Vec::new() };
        for tick in ticks {
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
        self.marks(svg, colour, x, y);
        for point in self.points.iter().filter(|point| point.half.is_some()) {
            // Bars have the series' colour.
            let colour = if self.mark == Mark::Bars { INTERVAL_ON_BAR } else { colour };
            interval(svg, colour, x.place(point.x), point.ends().map(|end| y.place(end)));
        }
    }

    fn marks(&self, svg: &mut String, colour: &str, x: &Range, y: &Range) {
        let places = self.points.iter().map(|point| (x.place(point.x), y.place(point.y)));
        if self.mark == Mark::Bars {
            for (centre, top) in places {
                bar(svg, colour, (centre - 14.0, top), (28.0, y.place(0.0) - top));
            }
            return;
        }
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
        if self.mark == Mark::Bars {
            bar(svg, colour, (x + 4.0, y - 5.0), (12.0, 10.0));
        } else if self.mark == Mark::Points {
            let _ =
                writeln!(svg, "<circle cx=\"{}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>", x + 10.0);
        } else {
            stroke(svg, &format!("M{x} {y}h20"), colour, self.mark);
        }
        text(svg, (x + LEGEND_NAME - LEGEND, y + 4.0), "start", &self.name);
    }
}

/// True if a scale can show a value.
fn shown(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// The values of an axis, and their places in the chart.
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

/// A vertical line with a short one across either end.
fn interval(svg: &mut String, colour: &str, x: f64, [from, to]: [f64; 2]) {
    let left = x - INTERVAL_WIDTH / 2.0;
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {from:.1}V{to:.1}M{left:.1} {from:.1}h{INTERVAL_WIDTH}M{left:.1} \
         {to:.1}h{INTERVAL_WIDTH}\" fill=\"none\" stroke=\"{colour}\"/>"
    );
}

fn bar(svg: &mut String, colour: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\" \
         fill=\"{colour}\"/>"
    );
}

/// Splits a long name into two rows, where they are shortest.
fn rows(name: &str) -> Vec<&str> {
    let longer = |at: &usize| (*at).max(name.len() - at);
    let blank = name.match_indices(' ').map(|(at, _)| at).min_by_key(longer);
    match blank {
        Some(at) if name.len() > 12 => vec![&name[..at], &name[at + 1..]],
        _ => vec![name],
    }
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
        let points = chart.series[0].points.iter().map(|point| (point.x, point.y));
        assert!(points.eq([(1.0, 1.0), (3.0, 10.0)]));
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn a_picture_is_as_wide_as_its_legend() {
        let width = |name: &str| {
            let mut chart = Chart::new("title", "x", "y");
            chart.draw(name, Mark::Line, vec![(0.0, 0.0)]);
            chart.width()
        };
        let long = "90 % of what saturates it, and more";
        assert!(width(long) > RIGHT + LEGEND_NAME + 6.5 * long.len() as f64);
        assert!(width("b") < width("longer") && width("longer") < width(long));
        assert!(Chart::new(&"long ".repeat(50), "x", "y").width() > 1000.0);
    }

    #[test]
    fn categories_have_names_and_bars_begin_at_zero() {
        let mut chart = Chart::of_categories("t", &["one", "the second of them"], "ns");
        chart.draw("ours", Mark::Bars, vec![(0.0, 10.0), (1.0, 5.0)]);
        let svg = chart.svg();
        assert!(svg.contains(">one<") && svg.contains(">the second<") && svg.contains(">of them<"));
        assert!(!svg.contains(">0.5<"), "no numbers between them");
        let bar = |height: &str| svg.contains(&format!("height=\"{height}\" fill=\"#0072b2\""));
        // Axes of height 338 end a twentieth above the highest value.
        assert!(bar("321.9") && bar("161.0"), "{svg}");
    }

    #[test]
    fn a_mean_has_its_interval_and_the_axis_reaches_to_its_end() {
        let svg = |mark, scale, half| {
            let mut chart = Chart::new("t", "x", "y").scales(Scale::Linear, scale);
            chart.draw_means("s", mark, [(0.0, Mean { mean: 10.0, half })].into_iter());
            chart.svg()
        };
        // The axis of height 338 from 382 up to 44 ends a twentieth above 10 and 5.
        let drawn = "V60.1M73.0 274.7h6M73.0 60.1h6\" fill=\"none\" stroke=\"#0072b2\"";
        let lines = svg(Mark::Line, Scale::Linear, 5.0);
        assert!(lines.contains(drawn), "{lines}");
        assert!(svg(Mark::Bars, Scale::Linear, 5.0).contains(INTERVAL_ON_BAR));
        assert!(svg(Mark::Line, Scale::Logarithmic, 5.0).contains("h6M"));
        for (scale, half) in [(Scale::Linear, f64::NAN), (Scale::Logarithmic, 10.0)] {
            let svg = svg(Mark::Line, scale, half);
            assert!(!svg.contains("h6M") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn an_empty_picture_is_one_all_the_same() {
        assert!(Chart::new("none", "x", "y").svg().contains("</svg>"));
    }
}
