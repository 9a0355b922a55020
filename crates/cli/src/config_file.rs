//! `--config FILE`: the flags of `serve` in a file of TOML. Each long flag is a key, and the
//! directory is `dir`. A flag on the command line goes before the key of its name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::args::{CommandLine, ServeArgs};
use crate::failure::{self, Failure};
use crate::plan::{Setting, complaint_of};

/// The key of the knobs, whose value is a table.
const KNOBS: &str = "set";
/// What `serve` has and a file has not.
const NOT_IN_A_FILE: [&str; 2] = ["config", "help"];
/// A key is taken for another that is so much alike.
const ALIKE: f64 = 0.75;

/// A configuration file, and the command line that it was named on.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: PathBuf,
    given: ArgMatches,
    words: Vec<OsString>,
}

impl Source {
    /// The file at `path`. `words` are the command line of `serve`, and `given` its parsed form.
    pub(crate) fn new(path: &Path, given: &ArgMatches, words: &[OsString]) -> Source {
        Source { path: path.to_owned(), given: given.clone(), words: words.to_vec() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. Returns the flags of both, and the file's part of them.
    ///
    /// # Errors
    /// Those of [`ConfigFile::read`], and where flags contradict one another.
    pub(crate) fn read(&self) -> Result<(ServeArgs, ConfigFile), Failure> {
        let file = ConfigFile::read(&self.path)?;
        let args = file.beside(&self.given, &self.words)?;
        let entries = file.own(&self.given);
        Ok((args, ConfigFile { entries }))
    }
}

/// A file's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    entries: Vec<Entry>,
}

/// A key that stands in the file, and its value as words of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    words: Vec<Word>,
    /// False for the directory, which has no flag.
    is_flag: bool,
}

/// A word, and the byte at which its value begins. The same word elsewhere is the same.
#[derive(Clone, Debug, Eq)]
struct Word {
    text: String,
    at: usize,
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        self.text == other.text
    }
}

/// A fault of a file, and the byte at which it begins.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    text: String,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All its faults, each with its line and its column.
    pub(crate) fn read(path: &Path) -> Result<ConfigFile, Failure> {
        let unreadable =
            |error| Failure::Config(format!("{}: {error}; give a file of TOML", path.display()));
        let text = fs::read_to_string(path).map_err(unreadable)?;
        ConfigFile::parse(&text).map_err(|faults| {
            let mut lines = Vec::new();
            for Fault { at, text: fault } in faults {
                let (line, column) = place(&text, at);
                lines.push(format!("{}:{line}:{column}: {fault}", path.display()));
            }
            Failure::Config(lines.join("\n"))
        })
    }

    fn parse(text: &str) -> Result<ConfigFile, Vec<Fault>> {
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            vec![Fault { at, text: error.message().to_owned() }]
        })?;
        let (mut entries, mut faults) = (Vec::new(), Vec::new());
        let command = CommandLine::command();
        let serve = command.find_subcommand("serve").expect("it is a command");
        let args: Vec<&Arg> = serve.get_arguments().filter(|arg| is_key(arg)).collect();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            match args.iter().find(|arg| key_of(arg) == name) {
                Some(arg) => match Entry::new(arg, value) {
                    Ok(entry) => entries.push((entry, value.span())),
                    Err(fault) => faults.push(fault),
                },
                None => faults.push(Fault { at: key.span().start, text: unknown(name, &args) }),
            }
        }
        // A table has no order of its own.
        entries.sort_by_key(|(_, at): &(Entry, Range<usize>)| at.start);
        faults.extend(entries.iter().flat_map(|(entry, _)| entry.complaints()));
        faults.sort_by_key(|fault| fault.at);
        match faults.is_empty() {
            true => {
                Ok(ConfigFile { entries: entries.into_iter().map(|(entry, _)| entry).collect() })
            }
            false => Err(faults),
        }
    }

    /// What a command line that was parsed as `given` leaves to the file.
    fn own(&self, given: &ArgMatches) -> Vec<Entry> {
        let set = given.get_many::<Setting>(KNOBS).unwrap_or_default();
        let set: Vec<String> =
            set.map(|setting| format!("--{KNOBS}={}=", setting.name())).collect();
        let mut own = self.entries.clone();
        for entry in &mut own {
            let is_given = given.value_source(&id_of(&entry.key)) == Some(ValueSource::CommandLine);
            entry.words.retain(|word| match &entry.key[..] {
                // Each knob is a flag of its own.
                KNOBS => !set.iter().any(|set| word.text.starts_with(set)),
                _ => !is_given,
            });
        }
        // A switch that is off says nothing.
        own.retain(|entry| !entry.words.is_empty());
        own
    }

    /// The flags of `words`, a command line of `serve` that was parsed as `given`, and those of the
    /// file that it does not give.
    fn beside(&self, given: &ArgMatches, words: &[OsString]) -> Result<ServeArgs, Failure> {
        let (program, flags) = words.split_at(words.len().min(2));
        // What has no flag comes last: its value may look like one.
        let (named, bare): (Vec<Entry>, Vec<Entry>) =
            self.own(given).into_iter().partition(|entry| entry.is_flag);
        let words_of = |entries: Vec<Entry>| {
            entries.into_iter().flat_map(|it| it.words).map(|it| it.text.into())
        };
        let end = (!bare.is_empty()).then(|| OsString::from("--"));
        let named = program.iter().cloned().chain(words_of(named)).chain(flags.iter().cloned());
        parse(named.chain(end).chain(words_of(bare)))
            .map_err(|error| Failure::Usage(failure::usage_line(&error)))
    }

    /// The keys whose values are others in `new`, in the order of the alphabet.
    pub(crate) fn changed(&self, new: &ConfigFile) -> BTreeSet<String> {
        let is_out = |file: &ConfigFile, entry: &&Entry| !file.entries.contains(entry);
        let gone = self.entries.iter().filter(|entry| is_out(new, entry));
        let come = new.entries.iter().filter(|entry| is_out(self, entry));
        gone.chain(come).map(|entry| entry.key.clone()).collect()
    }

    /// What the file says where the command line says nothing.
    ///
    /// # Errors
    /// If its keys contradict one another.
    pub(crate) fn alone(&self) -> Result<ServeArgs, Failure> {
        let words = ["lightwait", "serve"].map(OsString::from);
        let none = CommandLine::command().get_matches_from(&words);
        let (_, none) = none.subcommand().expect("serve");
        self.beside(none, &words)
    }

    /// How many keys it has.
    pub(crate) fn keys(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn new(arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Entry, Fault> {
        let (key, at) = (key_of(arg), value.span().start);
        let flag = arg.get_long().map(|long| format!("--{long}"));
        let fault = |text: String| Fault { at, text: format!("{key}: {text}") };
        let one = |text: String, at: usize| Word { text, at };
        let words = match (arg.get_action(), value.get_ref()) {
            (ArgAction::SetTrue | ArgAction::Count, DeValue::Boolean(is_on)) => {
                let word = is_on.then(|| one(flag.expect("a switch has a name"), at));
                word.into_iter().collect()
            }
            (ArgAction::SetTrue | ArgAction::Count, _) => {
                return Err(fault("give true or false".to_owned()));
            }
            (ArgAction::Append, DeValue::Table(table)) if key == KNOBS => {
                let mut settings = Vec::new();
                flatten("", table, &mut settings)?;
                let word = |(at, setting)| one(format!("--{KNOBS}={setting}"), at);
                settings.into_iter().map(word).collect()
            }
            (ArgAction::Append, _) if key == KNOBS => {
                return Err(fault("give a table of knobs: [set]".to_owned()));
            }
            (ArgAction::Append, DeValue::Array(values)) => {
                let words = values.iter().map(|value| {
                    let at = value.span().start;
                    let text = scalar(value.get_ref());
                    let text = text.map_err(|text| Fault { at, text: format!("{key}: {text}") })?;
                    Ok(one(word(&flag, &text), at))
                });
                words.collect::<Result<Vec<Word>, Fault>>()?
            }
            (_, value) => vec![one(word(&flag, &scalar(value).map_err(fault)?), at)],
        };
        Ok(Entry { key, words, is_flag: arg.get_long().is_some() })
    }

    /// The faults of its values, each alone.
    fn complaints(&self) -> Vec<Fault> {
        let fault = |word: &Word| Some(Fault { at: word.at, text: self.complaint(word)? });
        self.words.iter().filter_map(fault).collect()
    }

    fn complaint(&self, word: &Word) -> Option<String> {
        use clap::error::ErrorKind::{InvalidValue, TooManyValues, ValueValidation};
        let words = ["lightwait", "serve", "--"].map(str::to_owned);
        let words = words.into_iter().take(if self.is_flag { 2 } else { 3 });
        match parse(words.chain([word.text.clone()]).map(OsString::from)) {
            Ok(args) => args.set.first().and_then(complaint_of),
            // What another key mends is not its own.
            Err(error) => matches!(error.kind(), InvalidValue | TooManyValues | ValueValidation)
                .then(|| failure::usage_line(&error)),
        }
    }
}

/// A flag with its value, or the value of what has no flag.
fn word(flag: &Option<String>, value: &str) -> String {
    flag.as_ref().map_or_else(|| value.to_owned(), |flag| format!("{flag}={value}"))
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<ServeArgs, clap::Error> {
    let matches = CommandLine::command().try_get_matches_from(words)?;
    let (_, serve) = matches.subcommand().expect("serve");
    ServeArgs::from_arg_matches(serve)
}

fn is_key(arg: &Arg) -> bool {
    !NOT_IN_A_FILE.contains(&arg.get_id().as_str())
}

fn key_of(arg: &Arg) -> String {
    arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned()
}

/// clap's name of an argument.
fn id_of(key: &str) -> String {
    key.replace('-', "_")
}

/// A value as a word.
fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    Ok(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix());
            value.map_err(|_| "give a number of fewer digits".to_owned())?.to_string()
        }
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(_) => return Err("give one value".to_owned()),
        DeValue::Table(_) | DeValue::Datetime(_) => {
            return Err("give a number or a text".to_owned());
        }
    })
}

/// The settings of a table of knobs, whose groups may be tables as well, each with its place.
fn flatten(
    group: &str,
    table: &DeTable<'_>,
    settings: &mut Vec<(usize, String)>,
) -> Result<(), Fault> {
    for (key, value) in table {
        let name = format!("{group}{}", key.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            flatten(&format!("{name}."), inner, settings)?;
            continue;
        }
        let at = value.span().start;
        let value = scalar(value.get_ref());
        let value = value.map_err(|text| Fault { at, text: format!("{name}: {text}") })?;
        settings.push((at, format!("{name}={value}")));
    }
    Ok(())
}

fn unknown(name: &str, args: &[&Arg]) -> String {
    let keys = args.iter().map(|arg| key_of(arg));
    let alike = keys.map(|key| (strsim::jaro_winkler(&key, &name.replace('_', "-")), key));
    match alike.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((likeness, key)) if likeness > ALIKE => {
            format!("there is no key {name:?}; a similar one is {key:?}")
        }
        _ => format!("there is no key {name:?}; each long flag of `lightwait serve --help` is one"),
    }
}

/// The line and the column of a byte, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    (line, before[begin..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The faults of a text: line, column and what is wrong.
    fn faults(text: &str) -> Vec<String> {
        let faults = ConfigFile::parse(text).unwrap_err();
        let shown = |fault: Fault| {
            let (line, column) = place(text, fault.at);
            format!("{line}:{column}: {}", fault.text)
        };
        faults.into_iter().map(shown).collect()
    }

    fn beside(text: &str, flags: &[&str]) -> Result<ServeArgs, Failure> {
        let words: Vec<OsString> =
            ["lightwait", "serve"].iter().chain(flags).map(OsString::from).collect();
        let matches = CommandLine::command().try_get_matches_from(&words).unwrap();
        ConfigFile::parse(text).unwrap().beside(matches.subcommand().unwrap().1, &words)
    }

    const FILE: &str = r#"
dir = "/srv/www"
tap = "lw0"
ip = ["10.9.0.2/24", "fd00::2/64"]
max-connections = 1000
hidden = true
no-listing = false
file-cache-age = "5s"

[set]
time_wait.length = "30s"
rto.floor = "10ms"
"#;

    #[test]
    fn every_flag_but_two_is_a_key_and_takes_a_value_of_its_kind() {
        let args = ConfigFile::parse(FILE).unwrap().alone().unwrap();
        assert_eq!((args.dir.to_str(), args.max_connections), (Some("/srv/www"), 1000));
        assert_eq!((args.device.tap.as_deref(), args.device.ip.len()), (Some("lw0"), 2));
        assert_eq!((args.hidden, args.no_listing), (true, false));
        assert_eq!(args.file_cache_age, Some(Duration::from_secs(5)));
        let set: Vec<&str> = args.set.iter().map(Setting::name).collect();
        assert_eq!(set, ["rto.floor", "time_wait.length"]);
        for flag in ["config = 'x'", "help = true"] {
            assert!(faults(flag)[0].contains("there is no key"), "{flag}");
        }
    }

    #[test]
    fn a_directory_may_look_like_a_flag() {
        let args = ConfigFile::parse("dir = '--hidden'\nquiet = true").unwrap().alone().unwrap();
        assert_eq!((args.dir.to_str(), args.hidden, args.quiet), (Some("--hidden"), false, true));
        let args = beside("dir = '--hidden'", &["--", "here"]).unwrap();
        assert_eq!((args.dir.to_str(), args.hidden), (Some("here"), false));
    }

    #[test]
    fn what_the_command_line_says_goes_first() {
        let flags =
            ["--ip", "10.0.0.1/8", "--max-connections=7", "--set", "rto.floor=20ms", "here"];
        let args = beside(FILE, &flags).unwrap();
        assert_eq!((args.dir.to_str(), args.max_connections), (Some("here"), 7));
        assert_eq!((args.device.tap.as_deref(), args.device.ip.len()), (Some("lw0"), 1));
        let set = ["time_wait.length=30s", "rto.floor=20ms"].map(|text| text.parse().unwrap());
        assert_eq!(args.set, set);
        // One of the file's keys is in the way of a flag.
        let error = beside(FILE, &["--af-packet", "eth0"]).unwrap_err().to_string();
        assert!(error.contains("--tap") && error.contains("--af-packet"), "{error}");
        let error = ConfigFile::parse("snaplen = 100").unwrap().alone().unwrap_err().to_string();
        assert!(error.contains("--pcap"), "it needs another key: {error}");
    }

    #[test]
    fn two_files_differ_in_keys_and_values() {
        let [old, new] =
            ["port = 1\nhidden = true\nquiet = true", "port = 2\nquiet = true\nindex = 'a'"]
                .map(|text| ConfigFile::parse(text).unwrap());
        assert_eq!(old.changed(&new), ["hidden", "index", "port"].map(str::to_owned).into());
        let off = ConfigFile::parse("hidden = false").unwrap();
        let matches = CommandLine::command().get_matches_from(["lightwait", "serve"]);
        assert_eq!(off.own(matches.subcommand().unwrap().1), [], "as if it were not there");
        assert!(old.changed(&old).is_empty());
    }

    #[test]
    fn the_files_of_the_pages_have_no_fault() {
        let page = include_str!("../../../docs/serving.md");
        let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
        assert!(!blocks.is_empty());
        for block in blocks {
            let text = block.split("```").next().unwrap_or_default();
            crate::plan::Plan::new(&ConfigFile::parse(text).unwrap().alone().unwrap()).unwrap();
        }
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let text = "max-conections = 5\nport = 'eighty'\n\nhidden = 1\nip = ['10.0.0.1/8',\n  7]\n\
                    memory = [1]\nset = 3\nxyzzy = 1\n";
        let told = faults(text);
        let expected = [
            "1:1: there is no key \"max-conections\"; a similar one is \"max-connections\"",
            "2:8: invalid value 'eighty' for '--port <PORT>'",
            "4:10: hidden: give true or false",
            "6:3: invalid value '7' for '--ip <A/N>'",
            "7:10: memory: give one value",
            "8:7: set: give a table of knobs: [set]",
            "9:1: there is no key \"xyzzy\"; each long flag",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
        assert!(faults("port = 80\nport = 81\n")[0].starts_with("2:1: "), "twice");
        assert!(faults("port 80")[0].starts_with("1:6: "), "no TOML");
        assert!(faults("[set]\nrto.floor = [1]")[0].starts_with("2:13: rto.floor: give one"));
        let knobs = faults("[set]\nrto.flor = '1s'\nrto.floor = 'x'\n[set.limits]\npages = 1\n");
        assert!(knobs.len() == 2 && knobs[0].starts_with("2:12: rto.flor: "), "{knobs:?}");
        assert!(knobs[1].starts_with("3:13: rto.floor=x: "), "{knobs:?}");
        let pairs = faults("error-page = [\n '404=a.html',\n '999=b.html']");
        assert!(pairs.len() == 1 && pairs[0].starts_with("3:2: "), "{pairs:?}");
    }

    #[test]
    fn integers_of_every_base_are_numbers() {
        for number in ["0x1F", "0o37", "0b11111", "3_1"] {
            let text = format!("max-connections = {number}");
            let args = ConfigFile::parse(&text).unwrap().alone().unwrap();
            assert_eq!(args.max_connections, 31, "{number}");
        }
    }
}
