//! The requests of a load: one request, several by weight, or a row in a given order.

use lightwait_core::rng::Rng;

use crate::request::Request;

/// Files of 500 B to 5 MB with requests in a thousand, as in WebSTONE 2's `filelist.standard`.
///
/// No copy of that list was at hand. WebSTONE's documentation (1995, 1998) confirms the largest
/// file, and says that the shares are like SPECweb96's, whose are 35, 50, 14 and 1 % by tens.
const WEBSTONE: [(&str, u32); 5] = [
    ("file500.html", 350),
    ("file5k.html", 500),
    ("file50k.html", 140),
    ("file500k.html", 9),
    ("file5m.html", 1),
];

/// The requests of a load, and their order.
#[derive(Clone, Debug)]
pub struct Mix {
    requests: Vec<Request>,
    choice: Choice,
}

/// Chooses the next request.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// The only request.
    One,
    /// At random. Has the cumulative weights, and the random number generator.
    Weighted(Vec<f64>, Rng),
    /// In the listed order, by number; from the front again after the last.
    InOrder(Vec<u32>, usize),
}

impl Mix {
    /// One request, again and again.
    pub fn one(request: Request) -> Mix {
        Mix { requests: vec![request], choice: Choice::One }
    }

    /// Each request as often as its weight says, independently.
    ///
    /// # Errors
    /// If there is no request, or a weight is not a positive number.
    pub fn weighted(parts: Vec<(f64, Request)>, seed: u64) -> Result<Mix, String> {
        let (mut sum, mut ends) = (0.0, Vec::with_capacity(parts.len()));
        let mut requests = Vec::with_capacity(parts.len());
        for (weight, request) in parts {
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(format!("{weight} is not a weight: give a number above 0"));
            }
            sum += weight;
            ends.push(sum);
            requests.push(request);
        }
        if requests.is_empty() {
            return Err("there is no request in it".to_owned());
        }
        Ok(Mix { requests, choice: Choice::Weighted(ends, Rng::from_seed(seed)) })
    }

    /// Requests in the order of these numbers among `requests`.
    ///
    /// # Panics
    /// If the order is empty or has a number beyond `requests`.
    pub fn in_order(requests: Vec<Request>, order: Vec<u32>) -> Mix {
        let exists = |number: &u32| (*number as usize) < requests.len();
        assert!(!order.is_empty() && order.iter().all(exists), "an order of these requests");
        Mix { requests, choice: Choice::InOrder(order, 0) }
    }

    /// The request of that number.
    pub fn request(&self, number: u32) -> &Request {
        &self.requests[number as usize]
    }

    /// The number of different requests: at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// A chooser at the beginning of the mix.
    pub(crate) fn choice(&self) -> Choice {
        self.choice.clone()
    }
}

impl Choice {
    /// The number of the next request.
    pub(crate) fn next(&mut self) -> u32 {
        match self {
            Choice::One => 0,
            Choice::Weighted(ends, rng) => {
                let sum = ends.last().copied().unwrap_or_default();
                let at = rng.unit() * sum;
                let number = ends.partition_point(|end| *end <= at);
                number.min(ends.len() - 1) as u32
            }
            Choice::InOrder(order, next) => {
                let number = order[*next];
                *next = (*next + 1) % order.len();
                number
            }
        }
    }
}

/// A request of a mix, as a line of a file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its frequency, relative to the others.
    pub weight: f64,
    /// The method.
    pub method: String,
    /// The path and query.
    pub target: String,
    /// The body, or `@` and the name of a file that has it.
    pub body: Option<String>,
}

impl Part {
    fn get(weight: f64, target: String) -> Part {
        Part { weight, method: "GET".to_owned(), target, body: None }
    }
}

/// The standard mix of WebSTONE, below `directory`, which ends with a slash.
pub fn webstone(directory: &str) -> Vec<Part> {
    let part = |(name, weight)| Part::get(f64::from(weight), format!("{directory}{name}"));
    WEBSTONE.map(part).into()
}

/// Files `1` to `count` below `directory`, which ends with a slash, file k in proportion to
/// 1/k^`exponent` (Breslau et al. 1999: 0.64 to 0.83 at web proxies).
pub fn zipf(directory: &str, count: u32, exponent: f64) -> Vec<Part> {
    let part = |rank| Part::get(f64::from(rank).powf(-exponent), format!("{directory}{rank}"));
    (1..=count).map(part).collect()
}

/// Parses a file. A line has a weight, a method if it is not GET, a path with its query, and
/// optionally a body. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// A line that names the mistake and its place.
pub fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parts.push(parse_line(line).map_err(|why| format!("line {}: {why}", index + 1))?);
    }
    Ok(parts)
}

fn parse_line(line: &str) -> Result<Part, String> {
    let (weight, rest) = word(line);
    let number = weight.parse::<f64>().ok().filter(|weight| *weight > 0.0 && weight.is_finite());
    let weight = number.ok_or_else(|| format!("{weight:?} is not a weight above 0"))?;
    let (first, mut rest) = word(rest);
    let (method, target) = if first.starts_with('/') {
        ("GET", first)
    } else {
        let (target, behind) = word(rest);
        rest = behind;
        (first, target)
    };
    if !target.starts_with('/') {
        return Err("give WEIGHT [METHOD] /PATH [BODY]".to_owned());
    }
    Ok(Part {
        weight,
        method: method.to_owned(),
        target: target.to_owned(),
        body: (!rest.is_empty()).then(|| rest.to_owned()),
    })
}

/// The first word, and the text after it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str) -> Request {
        Request::new("GET", target, "h", &[], &[]).unwrap()
    }

    fn counts(mix: &Mix, draws: u32) -> Vec<f64> {
        let mut choice = mix.choice();
        let mut counts = vec![0.0; mix.len()];
        (0..draws).for_each(|_| counts[choice.next() as usize] += 1.0);
        counts
    }

    #[test]
    fn each_request_comes_as_often_as_its_weight_says() {
        let parts = [5.0, 1.0, 4.0].map(|weight| (weight, request("/")));
        let mix = Mix::weighted(parts.into(), 7).unwrap();
        let counts = counts(&mix, 100_000);
        // Four standard deviations of a binomial count.
        for (count, part) in counts.iter().zip([0.5, 0.1, 0.4]) {
            let deviation = f64::sqrt(100_000.0 * part * (1.0 - part));
            assert!((count - 100_000.0 * part).abs() < 4.0 * deviation, "{counts:?}");
        }
    }

    #[test]
    fn an_order_is_kept_and_begins_again() {
        let mix = Mix::in_order(vec![request("/a"), request("/b")], vec![1, 0, 0]);
        let mut choice = mix.choice();
        assert_eq!([(); 7].map(|()| choice.next()), [1, 0, 0, 1, 0, 0, 1]);
        assert_eq!(Mix::one(request("/")).choice().next(), 0);
    }

    #[test]
    fn the_most_asked_of_zipf_comes_k_times_as_often_as_the_kth() {
        let parts = zipf("/d/", 100, 1.0);
        assert_eq!((parts.len(), &*parts[99].target), (100, "/d/100"));
        let parts = parts.into_iter().map(|part| (part.weight, request(&part.target))).collect();
        let counts = counts(&Mix::weighted(parts, 1).unwrap(), 1_000_000);
        for rank in [2, 10, 50] {
            let times = counts[0] / counts[rank - 1];
            assert!((times / rank as f64 - 1.0).abs() < 0.06, "{rank}: {times}");
        }
    }

    #[test]
    fn webstones_list_has_a_thousand_requests_for_five_sizes() {
        let parts = webstone("/");
        assert_eq!(parts.iter().map(|part| part.weight).sum::<f64>(), 1000.0);
        assert_eq!((parts.len(), &*parts[4].target), (5, "/file5m.html"));
    }

    #[test]
    fn a_file_has_a_line_for_each_request() {
        let text = "# shop\n\n 60  /\n2.5\tHEAD /a?b=c\n1 POST /login  {\"user\": \"a b\"} \n";
        let parts = parse(text).unwrap();
        let part = |weight, method: &str, target: &str, body: Option<&str>| Part {
            weight,
            method: method.to_owned(),
            target: target.to_owned(),
            body: body.map(str::to_owned),
        };
        let wanted = [
            part(60.0, "GET", "/", None),
            part(2.5, "HEAD", "/a?b=c", None),
            part(1.0, "POST", "/login", Some("{\"user\": \"a b\"}")),
        ];
        assert_eq!(parts, wanted);
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        for (text, why) in [
            ("1 /\n0 /a", "line 2: \"0\" is not a weight"),
            ("/", "line 1: \"/\" is not a weight"),
            ("nan /", "not a weight"),
            ("1", "/PATH"),
            ("1 GET", "/PATH"),
            ("1 GET a", "/PATH"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Mix::weighted(Vec::new(), 0).unwrap_err().contains("no request"));
        assert!(Mix::weighted(vec![(-1.0, request("/"))], 0).is_err());
    }
}
