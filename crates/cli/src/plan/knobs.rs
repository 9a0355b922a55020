//! `--set NAME=VALUE`: sets the stack's knobs by the library's names for them.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use lightwait_core::address::Cidr;
use lightwait_core::config::{Knob, KnobError, Limits, TcpConfig};
use lightwait_core::{Capabilities, Config, Error, Medium};

use crate::failure::Failure;

/// A name and a value from the command line, not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    name: String,
    value: String,
}

impl Setting {
    /// A setting of the knob `name`.
    pub(crate) fn new(name: &str, value: &str) -> Setting {
        Setting { name: name.to_owned(), value: value.to_owned() }
    }

    /// The setting that `--congestion` stands for.
    pub(crate) fn congestion(algorithm: &str) -> Setting {
        Setting::new("congestion.algorithm", algorithm)
    }

    /// The name of the knob.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// True if this sets the knob `name`.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.name == name
    }
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Setting, Self::Err> {
        let (name, value) =
            text.split_once('=').ok_or("give NAME=VALUE, as in time_wait.length=30s")?;
        Ok(Setting { name: name.to_owned(), value: value.to_owned() })
    }
}

/// Refuses two values for one knob: of a flag that is given and `--set`, or of `--set` twice. Each
/// flag comes with the knob that it sets.
pub(crate) fn refuse_two_values(flags: &[(&str, &str)], set: &[Setting]) -> Result<(), Failure> {
    let refuse = |first: &str, second: String| {
        let text = format!("{first} and {second} set the same knob: leave one out");
        Err(Failure::Usage(text))
    };
    for (index, Setting { name, value }) in set.iter().enumerate() {
        if let Some((flag, _)) = flags.iter().find(|(_, knob)| name == knob) {
            return refuse(flag, format!("--set {name}"));
        }
        if let Some(other) = set[..index].iter().find(|s| s.is_of(name) && s.value != *value) {
            return refuse(
                &format!("--set {name}={}", other.value),
                format!("--set {name}={value}"),
            );
        }
    }
    Ok(())
}

/// The knobs of TCP and the limits of the stack, the same for every stack of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knobs {
    tcp: TcpConfig,
    limits: Limits,
}

/// Bytes in a page with these settings; those that are wrong are for [`Knobs::new`].
pub(crate) fn page_bytes<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> usize {
    let mut config = Knobs::default().on(plain());
    for Setting { name, value } in settings.into_iter().filter(|one| one.is_of("limits.page")) {
        let _ = config.set(name, value);
    }
    config.limits.page.bytes()
}

impl Knobs {
    /// Applies all settings to the defaults for `memory` bytes of buffers; the later of two
    /// settings wins. Fails with the setting that is wrong, and why.
    pub(crate) fn new(memory: u64, settings: &[Setting]) -> Result<Knobs, Failure> {
        let mut config = Knobs::default().on(plain());
        let pages = memory / page_bytes(settings) as u64;
        config.limits.pages = usize::try_from(pages).unwrap_or(usize::MAX);
        // Peers may send all that receive windows promise; the rest is for sending.
        let promised = &mut config.limits.receive_window_bytes;
        *promised = (*promised).min(memory / 2);
        // A later setting may mend an earlier one. The error names the first setting after which
        // the configuration was never right again.
        let mut misfit = None;
        for setting in settings {
            let Setting { name, value } = setting;
            let refuse = |why: String| Failure::Usage(format!("--set {name}={value}: {why}"));
            config.set(name, value).map_err(|error| match error {
                KnobError::Unknown => refuse(format!("{error}; {}", nearest(name))),
                KnobError::Malformed(_) => refuse(error.to_string()),
            })?;
            match config.check() {
                Ok(()) => misfit = None,
                Err(Error::InvalidInput(why)) => {
                    misfit = misfit.or_else(|| Some(refuse(why.to_owned())));
                }
                Err(error) => return Err(refuse(error.to_string())),
            }
        }
        misfit.map_or(Ok(Knobs { tcp: config.tcp, limits: config.limits }), Err)
    }

    /// Bytes for pages and for what is charged to them.
    pub(crate) fn page_bytes(&self) -> usize {
        self.limits.pages.saturating_mul(self.limits.page.bytes())
    }

    /// A configuration with these knobs.
    pub(crate) fn on(&self, config: Config) -> Config {
        Config { tcp: self.tcp.clone(), limits: self.limits.clone(), ..config }
    }

    /// The limits of the stack, all shards together.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// What is wrong with a setting, whatever others there are.
pub(crate) fn complaint_of(Setting { name, value }: &Setting) -> Option<String> {
    let error = Knobs::default().on(plain()).set(name, value).err()?;
    Some(match error {
        KnobError::Unknown => format!("{name}: {error}; {}", nearest(name)),
        KnobError::Malformed(_) => format!("{name}={value}: {error}"),
    })
}

/// A valid configuration, to try knobs on.
fn plain() -> Config {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = Cidr::new(address, 32).expect("as long as the address");
    Config::new(Capabilities::plain(Medium::Ip, 1500), address, [0; 32])
}

/// All knobs at their defaults, those of one group, or one. Fails with the name of the nearest knob
/// if there is none of that name.
pub(crate) fn knobs_named(name: Option<&str>) -> Result<Vec<Knob>, String> {
    let knobs = plain().knobs().into_iter();
    let Some(name) = name else { return Ok(knobs.collect()) };
    let belongs = |knob: &Knob| match knob.name.strip_prefix(name) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    let found: Vec<Knob> = knobs.clone().filter(belongs).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let found: Vec<Knob> = knobs.filter(|knob| last_part(&knob.name) == name).collect();
    if found.is_empty() { Err(nearest(name)) } else { Ok(found) }
}

/// The part of a knob's name behind its group.
fn last_part(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// How similar, by Jaro's measure, a knob's name must be to a mistyped one for the program to
/// suggest it.
const LIKE: f64 = 0.75;

/// The knobs that `name` most likely meant.
fn nearest(name: &str) -> String {
    let knobs: Vec<Knob> = plain().knobs().into_iter().collect();
    let names: Vec<&str> = knobs.iter().map(|knob| &*knob.name).collect();
    let meant = meant(name, &names);
    if meant.is_empty() {
        return "`lightwait knobs` lists all".to_owned();
    }
    format!("did you mean {}? `lightwait knobs` lists all", meant.join(", "))
}

/// Those of `names` that `name` most likely meant: all of a group, where the group is as much as
/// can be told.
fn meant<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let of_group = |group: &str| -> Vec<&'a str> {
        let is_within = |knob: &&&str| knob.split_once('.').is_some_and(|(own, _)| own == group);
        names.iter().filter(is_within).copied().collect()
    };
    let most_like = |all: &[&'a str], likeness: &dyn Fn(&str) -> f64| {
        let like = all.iter().copied().filter(|one| likeness(one) >= LIKE);
        like.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
    };
    let group = name.split_once('.').map_or(name, |(group, _)| group);
    let within = of_group(group);
    if !within.is_empty() {
        let last = last_part(name);
        let like = most_like(&within, &|knob| strsim::jaro(last_part(knob), last));
        return like.filter(|_| name.contains('.')).map_or(within, |knob| vec![knob]);
    }
    let groups = names.iter().filter_map(|knob| Some(knob.split_once('.')?.0));
    let all: Vec<&str> = names.iter().copied().chain(groups).collect();
    match most_like(&all, &|one| strsim::jaro(one, name)) {
        Some(knob) if names.contains(&knob) => vec![knob],
        Some(group) => of_group(group),
        None => {
            let last = last_part(name);
            names.iter().filter(|knob| last_part(knob) == last).copied().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(texts: &[&str]) -> Result<Config, String> {
        let settings: Vec<Setting> = texts.iter().map(|text| text.parse().unwrap()).collect();
        match Knobs::new(1 << 30, &settings) {
            Ok(knobs) => Ok(knobs.on(plain())),
            Err(Failure::Usage(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn time_wait_is_configured_by_name() {
        let config = knobs(&[
            "limits.time_wait=7",
            "time_wait.length=30s",
            "time_wait.length_on_link=250ms",
            "time_wait.length_on_host=1us",
            "time_wait.state=full",
            "timeout.fin_wait_2=9s",
            "time_wait.length=20s",
        ])
        .unwrap();
        let terms = config.tcp.time_wait_terms().map(|term| term.as_micros());
        assert_eq!(terms, [20_000_000, 250_000, 1]);
        assert_eq!((config.limits.time_wait, config.tcp.timeout.fin_wait_2.as_secs()), (7, 9));
        assert!(format!("{:?}", config.tcp).contains("Full"));
    }

    #[test]
    fn with_nothing_said_all_is_as_the_library_has_it() {
        let config = knobs(&[]).unwrap();
        let mut usual = plain();
        assert_eq!(config.limits.pages, usual.limits.pages);
        usual.limits.receive_window_bytes = 1 << 29;
        assert_eq!(format!("{config:?}"), format!("{usual:?}"));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_place_and_what_would_be_right() {
        for (text, helps) in [
            ("time_wiat.length=30s", &["no knob", "did you mean time_wait.length?"][..]),
            ("time_wait=30s", &["no knob", "did you mean time_wait.length, time_wait.state,"]),
            ("=30s", &["no knob", "lightwait knobs"]),
            ("congestion.foo=1", &["congestion.algorithm, congestion.pacing", "detection? "]),
            ("congestoin=bbr", &["did you mean congestion.algorithm, congestion.pacing"]),
            ("congestion.detecton=rack", &["did you mean congestion.detection?"]),
            ("pacing=on", &["did you mean congestion.pacing?"]),
            ("tcp.pacing=on", &["did you mean congestion.pacing?"]),
            ("time_wait.length=30", &["with its unit", "`1s`"]),
            ("time_wait.length=-1s", &["with its unit"]),
            ("time_wait.length=9999999999s", &["a year at most"]),
            ("time_wait.state=none", &["`compact`, `full`", "`skip`"]),
            ("limits.time_wait=many", &["a whole number"]),
            ("sack=1", &["`on`, `off`"]),
            ("ack.timer=500ms", &["less than 500 ms"]),
        ] {
            let refusal = knobs(&[text]).unwrap_err();
            assert!(refusal.starts_with(&format!("--set {text}: ")), "{refusal}");
            assert!(helps.iter().all(|help| refusal.contains(help)), "{refusal}");
        }
        assert!("time_wait".parse::<Setting>().is_err());
    }

    #[test]
    fn knobs_are_found_by_name_and_by_group() {
        let count = |name| knobs_named(name).map(|knobs| knobs.len());
        assert_eq!(count(None), Ok(plain().knobs().len()));
        assert_eq!((count(Some("rto")), count(Some("rto.floor"))), (Ok(4), Ok(1)));
        assert_eq!((count(Some("pacing")), count(Some("floor"))), (Ok(1), Ok(1)));
        assert!(count(Some("rto.flor")).unwrap_err().contains("rto.floor"));
        assert!(!count(Some("nosuch")).unwrap_err().contains("did you mean"));
    }

    #[test]
    fn two_values_for_one_knob_are_refused() {
        let refusal = |flags: &[(&str, &str)], texts: &[&str]| {
            let set: Vec<Setting> = texts.iter().map(|text| text.parse().unwrap()).collect();
            refuse_two_values(flags, &set).map_err(|failure| failure.to_string())
        };
        let flags = [("--congestion", "congestion.algorithm"), ("--pool", "limits.pages")];
        let same = |pair: &str| Err(format!("{pair} set the same knob: leave one out"));
        assert_eq!(refusal(&flags, &["sack=on", "sack=on", "nagle=off"]), Ok(()));
        assert_eq!(refusal(&flags, &["limits.pages=9"]), same("--pool and --set limits.pages"));
        let twice = ["sack=on", "nagle=off", "sack=off"];
        assert_eq!(refusal(&[], &twice), same("--set sack=on and --set sack=off"));
    }

    #[test]
    fn knobs_that_fit_together_may_come_in_any_order() {
        let pair = ["ack.bucket_min=200ms", "ack.bucket_max=300ms"];
        assert!(knobs(&pair).is_ok() && knobs(&[pair[1], pair[0]]).is_ok());
        let refusal = knobs(&["sack=off", pair[0], "nagle=off"]).unwrap_err();
        assert!(refusal.starts_with("--set ack.bucket_min=200ms: "), "{refusal}");
    }
}
