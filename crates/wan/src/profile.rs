//! Named descriptions of links, built in or from files.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::link_text::{DescriptionError, LinkText};

const BUILT_IN_TEXT: &str = include_str!("profiles.toml");

/// The names of the built-in profiles.
pub const BUILT_IN: [&str; 7] = ["lan", "dsl", "cable", "4g", "5g", "satellite", "transatlantic"];

/// The links of both directions: from A to B, and back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// A description for users.
    pub about: String,
    /// Each direction, in the order of [`crate::Way::ALL`].
    pub links: [LinkText; 2],
}

impl Profile {
    /// The built-in profile of that name. A name that has a slash in it or ends in `.toml` is a
    /// file.
    pub fn find(name: &str) -> Result<Profile, DescriptionError> {
        if name.contains('/') || name.ends_with(".toml") {
            return Profile::read(Path::new(name));
        }
        let all = parse(BUILT_IN_TEXT).expect("a test reads the profiles that are built in");
        match all.get(name).and_then(Value::as_table) {
            Some(table) => Profile::from_table(table),
            None => Err(DescriptionError(format!(
                "there is no profile `{name}`: take one of {}, or a file's name that ends in .toml",
                BUILT_IN.join(", ")
            ))),
        }
    }

    /// Reads a file with the keys `about`, `both`, `a-to-b` and `b-to-a`, all optional.
    fn read(path: &Path) -> Result<Profile, DescriptionError> {
        let (table, directory) = read_toml(path)?;
        let mut profile = Profile::from_table(&table)
            .map_err(|error| DescriptionError(format!("{}: {error}", path.display())))?;
        profile.links.iter_mut().for_each(|link| link.seen_from(directory));
        Ok(profile)
    }

    fn from_table(table: &Table) -> Result<Profile, DescriptionError> {
        let mut profile = Profile::default();
        if let Some(about) = table.get("about") {
            about.as_str().unwrap_or_default().clone_into(&mut profile.about);
        }
        profile.links = links(table, &["about"])?;
        Ok(profile)
    }
}

/// The two directions that a table describes by `both`, `a-to-b` and `b-to-a`. Only the keys in
/// `others` are allowed besides.
pub(crate) fn links(table: &Table, others: &[&str]) -> Result<[LinkText; 2], DescriptionError> {
    const KEYS: [&str; 3] = ["both", "a-to-b", "b-to-a"];
    if let Some(key) =
        table.keys().find(|key| ![&KEYS[..], others].concat().contains(&key.as_str()))
    {
        let known = [others, &KEYS].concat().join(", ");
        return Err(DescriptionError(format!("`{key}`: expected one of {known}")));
    }
    let [both, there, back] = KEYS.map(|key| {
        let error = |why: String| DescriptionError(format!("{key}: {why}"));
        match table.get(key).map(Value::as_str) {
            None => Ok(LinkText::default()),
            Some(None) => Err(error("expected a text, such as \"delay=30ms\"".to_owned())),
            Some(Some(text)) => text.parse().map_err(|e: DescriptionError| error(e.to_string())),
        }
    });
    let (both, there, back): (LinkText, LinkText, LinkText) = (both?, there?, back?);
    Ok([there.over(&both), back.over(&both)])
}

/// Reads a TOML file. Returns its table, and its directory.
pub(crate) fn read_toml(path: &Path) -> Result<(Table, &Path), DescriptionError> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| DescriptionError(format!("{shown}: cannot be read: {error}")))?;
    let table = parse(&text).map_err(|error| DescriptionError(format!("{shown}: {error}")))?;
    Ok((table, path.parent().unwrap_or(Path::new(""))))
}

/// Parses a table, or returns the mistake in one line.
fn parse(text: &str) -> Result<Table, DescriptionError> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        DescriptionError(format!("line {line}: {}", error.message()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Way;
    use lightwait_netem::{Link, Rate};

    #[test]
    fn every_profile_that_is_built_in_makes_links() {
        let all = parse(BUILT_IN_TEXT).unwrap();
        assert_eq!(all.len(), BUILT_IN.len());
        for name in BUILT_IN {
            let profile = Profile::find(name).unwrap();
            assert!(!profile.about.is_empty());
            for (way, link) in Way::ALL.into_iter().zip(&profile.links) {
                let config = link.config(way).unwrap();
                assert!(!config.delay.is_zero() && config.rate != Rate::Unlimited, "{name}");
                let _ = Link::new(config);
            }
        }
    }

    #[test]
    fn a_name_that_is_none_gets_those_that_are() {
        let error = Profile::find("modem").unwrap_err().to_string();
        assert!(BUILT_IN.iter().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn a_file_is_read_with_its_traces_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.toml");
        let find = |text: &str| {
            fs::write(&path, text).unwrap();
            Profile::find(path.to_str().unwrap())
        };
        fs::write(directory.path().join("up"), "5\n").unwrap();
        let profile = find("both = 'delay=9ms'\na-to-b = 'trace=up'").unwrap();
        assert!(matches!(profile.links[0].config(Way::AToB).unwrap().rate, Rate::Trace(_)));
        assert_eq!(profile.links[1].to_string(), "delay=9ms");
        for (text, help) in [
            ("both = 'delay=9'", "mine.toml: both: `delay=9`: expected a duration"),
            ("down = ''", "`down`: expected one of about, both, a-to-b, b-to-a"),
            ("both = 9", "expected a text"),
            ("both = 'delay=9ms'\nboth", "line 2: "),
        ] {
            let error = find(text).unwrap_err().to_string();
            assert!(error.contains(help) && !error.contains('\n'), "{error}");
        }
        let error = Profile::find("no/such.toml").unwrap_err().to_string();
        assert!(error.contains("no/such.toml: cannot be read"), "{error}");
    }
}
