//! Changes to the links while the router runs, read from a TOML file.

use std::path::Path;
use std::time::Duration;

use lightwait_core::config::parse_time;
use lightwait_netem::LinkConfig;
use toml::{Table, Value};

use crate::Way;
use crate::link_text::{DescriptionError, LinkText};
use crate::profile::{links, read_toml};

/// A change.
#[derive(Clone, Debug)]
pub struct Step {
    /// The time since the router's start.
    pub at: Duration,
    /// The links from then on, in the order of [`Way::ALL`].
    pub links: [LinkConfig; 2],
    /// Their descriptions.
    pub texts: [LinkText; 2],
}

/// Changes, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    all: Vec<Step>,
}

impl Steps {
    /// Reads a file of changes to links that begin as `first`:
    ///
    /// ```toml
    /// [[step]]
    /// at = "10s"
    /// both = "delay=200ms"     # what is not named stays
    /// [[step]]
    /// at = "20s"
    /// a-to-b = "loss=5%"
    /// ```
    pub fn read(path: &Path, first: &[LinkText; 2]) -> Result<Steps, DescriptionError> {
        let (table, directory) = read_toml(path)?;
        let shown = path.display();
        if let Some(key) = table.keys().find(|key| *key != "step") {
            return Err(DescriptionError(format!("{shown}: `{key}`: expected [[step]]")));
        }
        let mut texts = first.clone();
        let mut all: Vec<Step> = Vec::new();
        let steps = table.get("step").and_then(Value::as_array).cloned().unwrap_or_default();
        for (number, step) in steps.iter().enumerate() {
            let error = |why: &dyn std::fmt::Display| {
                DescriptionError(format!("{shown}: step {}: {why}", number + 1))
            };
            let table = step.as_table().ok_or_else(|| error(&"expected [[step]]"))?;
            let at = time(table).map_err(|why| error(&why))?;
            if all.last().is_some_and(|before| before.at >= at) {
                return Err(error(&"not later than the one before"));
            }
            texts = changed(table, &texts, directory).map_err(|why| error(&why))?;
            let [there, back] = [0, 1].map(|n| texts[n].config(Way::ALL[n]));
            let links = [there.map_err(|why| error(&why))?, back.map_err(|why| error(&why))?];
            all.push(Step { at, links, texts: texts.clone() });
        }
        Ok(Steps { all })
    }

    /// The changes that are not due yet.
    pub fn iter(&self) -> impl Iterator<Item = &Step> {
        self.all.iter()
    }

    /// Removes the first change and returns it, if it is due by `elapsed`.
    pub(crate) fn take_due(&mut self, elapsed: Duration) -> Option<Step> {
        let is_due = self.all.first().is_some_and(|step| step.at <= elapsed);
        is_due.then(|| self.all.remove(0))
    }
}

fn time(table: &Table) -> Result<Duration, String> {
    let at =
        table.get("at").and_then(Value::as_str).ok_or("at: expected a time, such as \"10s\"")?;
    parse_time(at).map_err(|why| format!("at: {why}"))
}

fn changed(
    table: &Table,
    before: &[LinkText; 2],
    directory: &Path,
) -> Result<[LinkText; 2], DescriptionError> {
    let mut changes = links(table, &["at"])?;
    if changes.iter().any(|link| link.has("seed")) {
        return Err(DescriptionError("seed: a link keeps the seed that it began with".to_owned()));
    }
    changes.iter_mut().for_each(|link| link.seen_from(directory));
    let [there, back] = changes;
    Ok([there.over(&before[0]), back.over(&before[1])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<Steps, DescriptionError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps.toml");
        fs::write(&path, text).unwrap();
        let first = ["delay=1ms,loss=1%", "delay=2ms"].map(|text| text.parse().unwrap());
        Steps::read(&path, &first)
    }

    #[test]
    fn a_step_changes_what_it_names_and_leaves_the_rest() {
        let text = "[[step]]\nat = '10s'\nboth = 'delay=9ms'\n\
                    [[step]]\nat = '20s'\na-to-b = 'loss=3%'\n";
        let mut steps = read(text).unwrap();
        assert!(steps.take_due(Duration::from_millis(9999)).is_none());
        let first = steps.take_due(Duration::from_secs(10)).unwrap();
        let [there, back] =
            ["delay=9ms,loss=1%", "delay=9ms"].map(|text| text.parse::<LinkText>().unwrap());
        assert_eq!(
            first.links,
            [there.config(Way::AToB).unwrap(), back.config(Way::BToA).unwrap()]
        );
        let second = steps.take_due(Duration::from_secs(30)).unwrap();
        let there: LinkText = "delay=9ms,loss=3%".parse().unwrap();
        assert_eq!(second.links[0], there.config(Way::AToB).unwrap());
        assert!(steps.take_due(Duration::MAX).is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_the_steps_number() {
        for (text, help) in [
            ("[[step]]\nboth = ''", "step 1: at: expected a time"),
            ("[[step]]\nat = '10'", "step 1: at: "),
            ("[[step]]\nat = '1s'\n[[step]]\nat = '1s'", "step 2: not later"),
            ("[[step]]\nat = '1s'\nboth = 'delay=1'", "step 1: both: `delay=1`"),
            ("[[step]]\nat = '1s'\nfor = '1s'", "step 1: `for`: expected one of at, both"),
            ("[[step]]\nat = '1s'\nboth = 'seed=5'", "step 1: seed: a link keeps the seed"),
            ("step = 5\nstop = 6", "`stop`: expected [[step]]"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(help), "{error}");
        }
    }
}
