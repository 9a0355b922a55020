//! Knobs by name: `name=value` from a command line, a plan of experiments or a test's flags.
//!
//! ```text
//!   rto_floor=200ms   quick_acks=0   sack=off   window_shift=8   syn_layout=scale-first
//! ```

use core::fmt;

use super::{Config, Ecn, Limits, Push, TcpConfig, TimeWaitState, WindowProbe};
use crate::tcp::recv::ack::AckDelay;
use crate::tcp::send::rtt::Estimator;
use crate::tcp::timers::Scheme;
use crate::time::Duration;
use crate::wire::options::Layout;

/// Why a knob was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// There is none of that name; [`Config::knobs`] lists them.
    Unknown,
    /// The value is none of those that it takes, which are described.
    Malformed(&'static str),
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobError::Unknown => f.write_str("there is no knob of that name"),
            KnobError::Malformed(shape) => write!(f, "the value must be {shape}"),
        }
    }
}

impl core::error::Error for KnobError {}

/// A value that text can set.
trait Knob {
    /// Which texts it takes.
    fn shape(&self) -> &'static str;
    /// Sets it; false, and nothing set, if `text` is none of them.
    fn take(&mut self, text: &str) -> bool;
}

fn replace<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Knob for $number {
            fn shape(&self) -> &'static str {
                concat!("a whole number (", stringify!($number), ")")
            }
            fn take(&mut self, text: &str) -> bool {
                replace(self, text.parse().ok())
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, usize);

impl Knob for bool {
    fn shape(&self) -> &'static str {
        "`on` or `off`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            },
        )
    }
}

impl Knob for Option<u8> {
    fn shape(&self) -> &'static str {
        "a whole number (u8), or `auto`"
    }
    fn take(&mut self, text: &str) -> bool {
        let value = if text == "auto" { Some(None) } else { text.parse().ok().map(Some) };
        replace(self, value)
    }
}

/// No time that is configured is longer: so that sums of some of them are times.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Knob for Duration {
    fn shape(&self) -> &'static str {
        "a time with its unit: `40ms`, `1s`, `250us`, `10ns`; a year at most"
    }
    fn take(&mut self, text: &str) -> bool {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let Ok(number) = number.parse() else { return false };
        let value = match unit {
            "s" => Some(Duration::from_secs(number)),
            "ms" => Some(Duration::from_millis(number)),
            "us" => Some(Duration::from_micros(number)),
            "ns" => Some(Duration::from_nanos(number)),
            _ => None,
        };
        replace(self, value.filter(|value| *value <= LONGEST))
    }
}

/// A time as knobs take it: a number and its unit, `40ms`.
pub fn parse_time(text: &str) -> Result<Duration, KnobError> {
    let mut time = Duration::ZERO;
    if time.take(text) { Ok(time) } else { Err(KnobError::Malformed(time.shape())) }
}

impl Knob for Layout {
    fn shape(&self) -> &'static str {
        "`scale-last` or `scale-first`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "scale-last" => Some(Layout::ScaleLast),
                "scale-first" => Some(Layout::ScaleFirst),
                _ => None,
            },
        )
    }
}

impl Knob for Scheme {
    fn shape(&self) -> &'static str {
        "`inline`, `wheel`, `scan` or `ordered_list`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "inline" => Some(Scheme::Inline),
                "wheel" => Some(Scheme::Wheel),
                "scan" => Some(Scheme::Scan),
                "ordered_list" => Some(Scheme::OrderedList),
                _ => None,
            },
        )
    }
}

impl Knob for Estimator {
    fn shape(&self) -> &'static str {
        "`rfc6298`, `bsd`, `bsd_brakmo_peterson` or `fine`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "rfc6298" => Some(Estimator::Rfc6298),
                "bsd" => Some(Estimator::Bsd),
                "bsd_brakmo_peterson" => Some(Estimator::BsdBrakmoPeterson),
                "fine" => Some(Estimator::Fine),
                _ => None,
            },
        )
    }
}

impl Knob for AckDelay {
    fn shape(&self) -> &'static str {
        "`buckets`, `timer` or `tick`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "buckets" => Some(AckDelay::Buckets),
                "timer" => Some(AckDelay::Timer),
                "tick" => Some(AckDelay::Tick),
                _ => None,
            },
        )
    }
}

impl Knob for Ecn {
    fn shape(&self) -> &'static str {
        "`off`, `passive` or `active`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "off" => Some(Ecn::Off),
                "passive" => Some(Ecn::Passive),
                "active" => Some(Ecn::Active),
                _ => None,
            },
        )
    }
}

impl Knob for TimeWaitState {
    fn shape(&self) -> &'static str {
        "`compact`, `full` or, which is unsafe, `skip`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "compact" => Some(TimeWaitState::Compact),
                "full" => Some(TimeWaitState::Full),
                "skip" => Some(TimeWaitState::Skip),
                _ => None,
            },
        )
    }
}

impl Knob for WindowProbe {
    fn shape(&self) -> &'static str {
        "`byte` or `empty`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "byte" => Some(WindowProbe::Byte),
                "empty" => Some(WindowProbe::Empty),
                _ => None,
            },
        )
    }
}

impl Knob for Push {
    fn shape(&self) -> &'static str {
        "`emptied` or `burst`"
    }
    fn take(&mut self, text: &str) -> bool {
        replace(
            self,
            match text {
                "emptied" => Some(Push::Emptied),
                "burst" => Some(Push::Burst),
                _ => None,
            },
        )
    }
}

macro_rules! knobs {
    ($owner:ty: $($field:ident),* $(,)?) => {
        impl $owner {
            /// The names of all its knobs.
            pub const KNOBS: &[&str] = &[$(stringify!($field)),*];

            fn knob(&mut self, name: &str) -> Option<&mut dyn Knob> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

knobs!(TcpConfig:
    window_scaling, timestamps, sack, initial_window_segments, restart_after_idle, initial_rto,
    rto_estimator, measure_resolution_hz, rto_floor, rto_max, syn_timeout, user_timeout, ack_delay,
    delayed_ack, delayed_ack_min, delayed_ack_max, quick_acks, nagle, keepalive_idle,
    keepalive_interval, keepalive_probes, orphan_timeout, stalled_rate, stalled_after,
    fin_wait_2_timeout, time_wait, time_wait_state, time_wait_on_link, time_wait_on_host,
    rest_after, send_buffer_bytes,
    initial_receive_window_bytes, max_receive_window_bytes, window_in_segments, window_shift,
    syn_layout, push, ecn, timers, tick, window_probe, missing_timestamps, repeat_fin,
    unannounced_window, insecure_rst, insecure_syn, mss_max, mss_min,
);

knobs!(Limits:
    connections, syn_cache, time_wait, orphans, pages, receive_window_bytes, frames_per_turn,
    replies_per_second, challenge_acks_per_second, neighbours, neighbour_queue, reassemblies,
    path_mtus,
);

/// What the names of [`Limits`] begin with, so that they do not meet those of [`TcpConfig`].
const LIMITS: &str = "limits.";

impl Config {
    /// The names of all knobs.
    pub fn knobs() -> impl Iterator<Item = (&'static str, &'static str)> {
        let limits = Limits::KNOBS.iter().map(|name| (LIMITS, *name));
        TcpConfig::KNOBS.iter().map(|name| ("", *name)).chain(limits)
    }

    /// Sets the knob `name` to what `value` says.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        let knob = match name.strip_prefix(LIMITS) {
            Some(limit) => self.limits.knob(limit),
            None => self.tcp.knob(name),
        };
        let knob = knob.ok_or(KnobError::Unknown)?;
        if knob.take(value) { Ok(()) } else { Err(KnobError::Malformed(knob.shape())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Capabilities, Medium};
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn config() -> Config {
        let device =
            Capabilities { medium: Medium::Ip, mtu: 1500, checksum: false, segmentation: 0 };
        Config::new(device, "10.0.0.1/24".parse().unwrap(), [0; 32])
    }

    /// The fields of a struct, as its `Debug` names them.
    fn fields(debug: &str) -> Vec<String> {
        let of_struct = debug.lines().filter(|line| {
            line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ")
        });
        of_struct.filter_map(|line| line.trim().split(':').next()).map(String::from).collect()
    }

    #[test]
    fn every_field_is_a_knob() {
        assert_eq!(fields(&format!("{:#?}", TcpConfig::default())), TcpConfig::KNOBS);
        assert_eq!(fields(&format!("{:#?}", Limits::default())), Limits::KNOBS);
        assert_eq!(Config::knobs().count(), TcpConfig::KNOBS.len() + Limits::KNOBS.len());
    }

    #[test]
    fn a_knob_takes_what_its_type_takes() {
        let mut config = config();
        for (name, value) in [
            ("rto_floor", "30ms"),
            ("sack", "off"),
            ("window_shift", "6"),
            ("syn_layout", "scale-first"),
            ("push", "burst"),
            ("limits.time_wait", "7"),
            ("time_wait_state", "full"),
            ("quick_acks", "255"),
            ("keepalive_idle", "31536000s"),
        ] {
            assert_eq!(config.set(name, value), Ok(()), "{name}");
        }
        let tcp = &config.tcp;
        assert_eq!(tcp.rto_floor, Duration::from_millis(30));
        assert_eq!((tcp.sack, tcp.window_shift, tcp.quick_acks), (false, Some(6), 255));
        assert_eq!((tcp.syn_layout, tcp.push), (Layout::ScaleFirst, Push::Burst));
        assert_eq!(config.limits.time_wait, 7);
        assert_eq!(config.set("window_shift", "auto"), Ok(()));
        assert_eq!(config.tcp.window_shift, None);
    }

    #[test]
    fn anything_else_is_refused_and_changes_nothing() {
        let mut config = config();
        let before = format!("{config:?}");
        assert_eq!(config.set("rto_flor", "30ms"), Err(KnobError::Unknown));
        assert_eq!(config.set("limits.rto_floor", "30ms"), Err(KnobError::Unknown));
        for (name, value) in [
            ("rto_floor", "30"),
            ("rto_floor", "ms"),
            ("keepalive_idle", "31536001s"),
            ("sack", "1"),
            ("quick_acks", "256"),
            ("window_shift", "-1"),
            ("syn_layout", "linux"),
            ("push", ""),
        ] {
            let refused = config.set(name, value);
            assert!(matches!(refused, Err(KnobError::Malformed(_))), "{name}={value}");
        }
        assert_eq!(format!("{config:?}"), before);
    }
}
