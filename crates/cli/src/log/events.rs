//! Lines for what libraries tell by the crate `tracing`: connections that were accepted, closed or
//! ended, and limits that were reached.

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Metadata, Subscriber};

use super::{Log, Record};

/// Which events are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// None
    #[default]
    Off,
    /// Limits that were reached
    Warn,
    /// Also connections that ended in an error
    Info,
    /// Also each connection that is accepted, opened or closed
    Debug,
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Level::Off => LevelFilter::OFF,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }
}

/// The log that the process' events go to, while there is one.
static LOG: RwLock<Option<Log>> = RwLock::new(None);

/// Events go to `log` until the guard is dropped.
pub(crate) fn collect(level: Level, log: &Log) -> Collecting {
    if level != Level::Off {
        *LOG.write().unwrap_or_else(PoisonError::into_inner) = Some(log.clone());
        // A process has one log: if another was collected for before, its level stays.
        let _ = tracing::subscriber::set_global_default(Collector { level: level.filter() });
    }
    Collecting
}

/// While it lives, events are logged.
pub(crate) struct Collecting;

impl Drop for Collecting {
    fn drop(&mut self) {
        *LOG.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Takes events of our libraries.
struct Collector {
    level: LevelFilter,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("lightwait")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    // Spans are not told of: ours have none.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Values<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let log = LOG.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &*log else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        log.write(Record::Event { level, what: fields.what, fields: fields.others });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    /// Its message.
    what: String,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.what = text,
            name => drop(self.others.insert(name.to_owned(), text.into())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::{Form, Outputs, Page};
    use super::*;

    #[test]
    fn events_of_our_libraries_become_lines_up_to_a_level() {
        let page = Page::default();
        let outputs = Outputs::new(page.clone(), io::sink());
        let (log, writer) = Log::start(Form::JSON, outputs).unwrap();
        let collecting = collect(Level::Info, &log);
        tracing::info!(target: "lightwait", error = "x", retransmits = 3_u64, "ended");
        tracing::debug!(target: "lightwait", "accepted");
        tracing::info!(target: "other", "hello");
        drop(collecting);
        tracing::info!(target: "lightwait", "after the end");
        drop(log);
        writer.finish();
        let text = page.text();
        let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(lines.len(), 1, "{text}");
        assert_eq!((&lines[0]["event"], &lines[0]["what"]), (&"event".into(), &"ended".into()));
        assert_eq!((&lines[0]["retransmits"], &lines[0]["level"]), (&3.into(), &"INFO".into()));
    }
}
