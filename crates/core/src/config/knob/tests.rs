use super::*;
use crate::frame::{Capabilities, Medium};
use crate::wire::options::Layout;
use std::format;
use std::string::ToString;

fn config() -> Config {
    let device = Capabilities::plain(Medium::Ip, 1500);
    Config::new(device, "10.0.0.1/24".parse().unwrap(), [0; 32])
}

#[test]
fn every_knob_takes_the_value_that_it_shows() {
    let mut config = config();
    let before = format!("{config:?}");
    let knobs = config.knobs();
    assert!(knobs.len() > 60);
    for knob in &knobs {
        assert_eq!(config.set(&knob.name, &knob.value), Ok(()), "{}", knob.name);
    }
    assert_eq!(format!("{config:?}"), before);
}

#[test]
fn every_knob_has_its_meaning_and_its_source() {
    let knobs = config().knobs();
    for knob in &knobs {
        let Knob { name, shape, unit, meaning, source, .. } = knob;
        assert!(meaning.ends_with('.') && !source.is_empty(), "{name}");
        let is_number = shape.starts_with("a whole number (");
        assert!(is_number || unit.is_empty(), "{name} has a unit and is no number");
    }
    let names = |list: &[Knob]| list.iter().map(|knob| knob.name.clone()).collect::<Vec<_>>();
    let mut sorted = names(&knobs);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), knobs.len(), "two knobs of one name");
}

#[test]
fn a_knob_takes_what_its_type_takes() {
    let mut config = config();
    for (name, value) in [
        ("rto.floor", "30ms"),
        ("sack", "off"),
        ("quirks.window_shift", "6"),
        ("quirks.syn_layout", "scale-first"),
        ("limits.time_wait", "7"),
        ("time_wait.state", "full"),
        ("ack.quick", "255"),
        ("keepalive.idle", "31536000s"),
    ] {
        assert_eq!(config.set(name, value), Ok(()), "{name}");
        let knobs = config.knobs();
        let shown = knobs.iter().find(|knob| knob.name == name).map(|knob| knob.value.to_string());
        assert_eq!(shown.as_deref(), Some(value), "{name}");
    }
    let tcp = &config.tcp;
    assert_eq!(tcp.rto.floor, Duration::from_millis(30));
    assert_eq!((tcp.sack, tcp.quirks.window_shift, tcp.ack.quick), (false, Some(6), 255));
    assert_eq!(tcp.quirks.syn_layout, Layout::ScaleFirst);
    assert_eq!(config.limits.time_wait, 7);
    assert_eq!(config.set("quirks.window_shift", "auto"), Ok(()));
    assert_eq!(config.tcp.quirks.window_shift, None);
}

#[test]
fn a_time_is_read_in_minutes_or_hours_and_shown_in_seconds() {
    let mut config = config();
    for (value, shown) in [("2h", "7200s"), ("5m", "300s"), ("1500ms", "1500ms")] {
        assert_eq!(config.set("keepalive.idle", value), Ok(()), "{value}");
        let knob = config.knobs().into_iter().find(|knob| knob.name == "keepalive.idle").unwrap();
        assert_eq!(knob.value, shown);
    }
    assert!(matches!(config.set("keepalive.idle", "8761h"), Err(KnobError::Malformed(_))));
}

#[test]
fn anything_else_is_refused_and_changes_nothing() {
    let mut config = config();
    let before = format!("{config:?}");
    for unknown in ["rto.flor", "rto", "rto.", ".floor", "floor", "limits.rto.floor", "sack.on", ""]
    {
        assert_eq!(config.set(unknown, "30ms"), Err(KnobError::Unknown), "{unknown}");
    }
    for (name, value) in [
        ("rto.floor", "30"),
        ("rto.floor", "ms"),
        ("rto.floor", "99999999999999999999s"),
        ("keepalive.idle", "31536001s"),
        ("sack", "1"),
        ("ack.quick", "256"),
        ("quirks.window_shift", "-1"),
        ("quirks.syn_layout", "linux"),
        ("quirks.push", ""),
    ] {
        let refused = config.set(name, value);
        assert!(matches!(refused, Err(KnobError::Malformed(_))), "{name}={value}");
    }
    assert_eq!(format!("{config:?}"), before);
}
