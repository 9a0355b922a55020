//! Values that text sets: `off`, `200ms`, `fine`.

use alloc::format;
use alloc::string::{String, ToString};

use super::{
    AckDelay, Algorithm, Disagreement, Ecn, Estimator, LossDetection, PageSize, PoolPolicy, Push,
    Scheme, SendRule, TimeWaitState, WindowProbe, Wish,
};
use crate::time::Duration;
use crate::wire::options::Layout;

/// A value that text can set.
pub(super) trait Value {
    /// Which texts it takes.
    fn shape(&self) -> &'static str;
    /// Sets it; false, and nothing set, if `text` is none of them.
    fn take(&mut self, text: &str) -> bool;
    /// The text that sets it to what it is.
    fn show(&self) -> String;
}

fn replace<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            fn shape(&self) -> &'static str {
                concat!("a whole number (", stringify!($number), ")")
            }
            fn take(&mut self, text: &str) -> bool {
                replace(self, text.parse().ok())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, usize);

/// Values with a word for each.
macro_rules! words {
    ($type:ty: $first:literal => $first_value:expr $(, $word:literal => $value:expr)*) => {
        impl Value for $type {
            fn shape(&self) -> &'static str {
                concat!("one of `", $first, "`" $(, ", `", $word, "`")*)
            }
            fn take(&mut self, text: &str) -> bool {
                replace(self, match text {
                    $first => Some($first_value),
                    $($word => Some($value),)*
                    _ => None,
                })
            }
            fn show(&self) -> String {
                let words = [($first_value, $first) $(, ($value, $word))*];
                let word = words.iter().find(|(value, _)| value == self);
                word.map_or_else(String::new, |(_, word)| word.to_string())
            }
        }
    };
}

words!(bool: "on" => true, "off" => false);
words!(Layout: "scale-last" => Layout::ScaleLast, "scale-first" => Layout::ScaleFirst);
words!(Scheme: "inline" => Scheme::Inline, "wheel" => Scheme::Wheel, "scan" => Scheme::Scan,
    "ordered_list" => Scheme::OrderedList);
words!(Estimator: "rfc6298" => Estimator::Rfc6298, "bsd" => Estimator::Bsd,
    "bsd_brakmo_peterson" => Estimator::BsdBrakmoPeterson, "fine" => Estimator::Fine);
words!(AckDelay: "buckets" => AckDelay::Buckets, "timer" => AckDelay::Timer,
    "tick" => AckDelay::Tick);
words!(Algorithm: "cubic" => Algorithm::Cubic, "reno" => Algorithm::Reno, "bbr" => Algorithm::Bbr,
    "dctcp" => Algorithm::Dctcp);
words!(LossDetection: "rack" => LossDetection::Rack, "count" => LossDetection::Count);
words!(Ecn: "passive" => Ecn::Passive, "active" => Ecn::Active, "off" => Ecn::Off);
words!(TimeWaitState: "compact" => TimeWaitState::Compact, "full" => TimeWaitState::Full,
    "skip" => TimeWaitState::Skip);
words!(Wish: "off" => Wish::Off, "client" => Wish::Client, "server" => Wish::Server,
    "self" => Wish::Ourselves, "peer" => Wish::Peer);
words!(Disagreement: "abort" => Disagreement::Abort, "fall-back" => Disagreement::FallBack);
words!(WindowProbe: "byte" => WindowProbe::Byte, "empty" => WindowProbe::Empty);
words!(SendRule: "round" => SendRule::Round, "los" => SendRule::Los, "fixed" => SendRule::Fixed,
    "linux" => SendRule::Linux);
words!(PoolPolicy: "line" => PoolPolicy::Line, "naive" => PoolPolicy::Naive,
    "round-robin" => PoolPolicy::RoundRobin, "priority" => PoolPolicy::Priority,
    "psc" => PoolPolicy::Psc);
words!(PageSize: "auto" => PageSize::Auto, "512" => PageSize::Segment);
words!(Push: "emptied" => Push::Emptied, "burst" => Push::Burst);

impl Value for Option<u8> {
    fn shape(&self) -> &'static str {
        "a whole number (u8), or `auto`"
    }
    fn take(&mut self, text: &str) -> bool {
        let value = if text == "auto" { Some(None) } else { text.parse().ok().map(Some) };
        replace(self, value)
    }
    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_string(), |number| number.to_string())
    }
}

impl Value for Option<u32> {
    fn shape(&self) -> &'static str {
        "a whole number (u32), or `off`"
    }
    fn take(&mut self, text: &str) -> bool {
        let value = if text == "off" { Some(None) } else { text.parse().ok().map(Some) };
        replace(self, value)
    }
    fn show(&self) -> String {
        self.map_or_else(|| "off".to_string(), |number| number.to_string())
    }
}

/// No time that is configured is longer: so that sums of some of them are times.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Units that times are shown in, in nanoseconds, the largest first.
const UNITS: [(&str, u64); 4] = [("s", SECOND), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
const SECOND: u64 = 1_000_000_000;
/// Units that are taken besides: the field's figures of TCP are in seconds.
const LONG_UNITS: [(&str, u64); 2] = [("h", 3600 * SECOND), ("m", 60 * SECOND)];

impl Value for Duration {
    fn shape(&self) -> &'static str {
        "a time with its unit: `40ms`, `1s`, `5m`, `2h`, `250us`, `10ns`; a year at most"
    }
    fn take(&mut self, text: &str) -> bool {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = LONG_UNITS.iter().chain(&UNITS).find(|(name, _)| *name == unit);
        let nanos = unit.zip(number.parse::<u64>().ok()).and_then(|(u, n)| n.checked_mul(u.1));
        replace(self, nanos.map(Duration::from_nanos).filter(|value| *value <= LONGEST))
    }
    fn show(&self) -> String {
        let nanos = self.as_nanos() as u64;
        let whole = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
        whole.map_or_else(String::new, |(name, unit)| format!("{}{name}", nanos / unit))
    }
}
