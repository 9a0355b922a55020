//! Stored results: JSON, looked up by a path of fields, and text as a command printed it, looked up
//! by words of its lines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The files that a list names.
#[derive(Debug)]
pub(super) struct Files {
    paths: BTreeMap<String, PathBuf>,
    read: RefCell<BTreeMap<String, Stored>>,
}

/// The content of a file.
#[derive(Clone, Debug)]
enum Stored {
    Json(Value),
    Lines(Vec<String>),
}

/// Where in which file a number stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The file's short name.
    pub(super) file: String,
    /// Fields, or words of lines, one within or behind the other.
    pub(super) path: Vec<String>,
    /// Which number behind the last words, or of a field's text, from 1.
    pub(super) place: usize,
    /// Every such number, not the first only.
    pub(super) all: bool,
}

impl Files {
    pub(super) fn new(root: &Path, named: &BTreeMap<String, String>) -> Self {
        let paths = named.iter().map(|(name, path)| (name.clone(), root.join(path)));
        Self { paths: paths.collect(), read: RefCell::default() }
    }

    /// The numbers at a reference: one, unless it asks for all.
    pub(super) fn look_up(&self, reference: &Reference) -> Result<Vec<f64>, String> {
        let stored = self.stored(&reference.file)?;
        let found = match &stored {
            Stored::Json(value) => in_json(value, reference),
            Stored::Lines(lines) => in_lines(lines, reference),
        };
        found.map_err(|why| format!("in `{}`: {why}", reference.file))
    }

    fn stored(&self, name: &str) -> Result<Stored, String> {
        if let Some(stored) = self.read.borrow().get(name) {
            return Ok(stored.clone());
        }
        let path = self.paths.get(name).ok_or_else(|| format!("no file is called `{name}`"))?;
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let stored = parse(&text);
        self.read.borrow_mut().insert(name.to_owned(), stored.clone());
        Ok(stored)
    }
}

/// One JSON object is JSON; everything else, several of them as well, is lines.
fn parse(text: &str) -> Stored {
    match serde_json::from_str(text) {
        Ok(value) => Stored::Json(value),
        Err(_) => Stored::Lines(text.lines().map(one_space).collect()),
    }
}

fn one_space(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Goes from field to field. `column=value` keeps the rows of a table in which that is so.
fn in_json(value: &Value, reference: &Reference) -> Result<Vec<f64>, String> {
    let mut found = vec![value];
    for step in &reference.path {
        let rows = found.iter().flat_map(|value| match value {
            Value::Array(rows) => rows.iter().collect(),
            other => vec![*other],
        });
        let rows: Vec<&Value> = rows.collect();
        let fields: Vec<&Value> = rows.iter().filter_map(|row| row.get(step)).collect();
        found = match step.split_once('=') {
            Some((column, wanted)) if fields.is_empty() => {
                rows.into_iter().filter(|row| is(row.get(column), wanted)).collect()
            }
            _ => fields,
        };
        if found.is_empty() {
            return Err(format!("nothing is at `{step}`"));
        }
    }
    if found.len() > 1 && !reference.all {
        return Err(format!("{} rows are at `{}`", found.len(), reference.path.join(" > ")));
    }
    found.into_iter().map(|value| number(value, reference.place)).collect()
}

/// True if a field has this value, a number or a text.
fn is(field: Option<&Value>, wanted: &str) -> bool {
    match field {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Number(number)) => {
            wanted.parse().is_ok_and(|n: f64| number.as_f64() == Some(n))
        }
        _ => false,
    }
}

fn number(value: &Value, place: usize) -> Result<f64, String> {
    let missing = || format!("{value} has no number {place}");
    match value {
        Value::Number(number) if place == 1 => number.as_f64().ok_or_else(missing),
        Value::String(text) => numbers(text).get(place - 1).copied().ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Goes from line to line: each word is looked for from the line of the one before it on. A word
/// that begins with `^` begins its line, and one that ends in `$` ends it.
fn in_lines(lines: &[String], reference: &Reference) -> Result<Vec<f64>, String> {
    let (mut at, mut found) = (0, Vec::new());
    'chains: loop {
        let mut rest = "";
        for (step, word) in reference.path.iter().enumerate() {
            let behind = lines[at..]
                .iter()
                .enumerate()
                .find_map(|(offset, line)| behind(line, word).map(|behind| (at + offset, behind)));
            let Some((line, behind)) = behind else {
                if found.is_empty() {
                    return Err(format!("no line has `{word}` ({} in its path)", step + 1));
                }
                break 'chains;
            };
            (at, rest) = (line, behind);
        }
        let value = numbers(rest).get(reference.place - 1).copied();
        found.push(value.ok_or_else(|| format!("no number {} in `{rest}`", reference.place))?);
        at += 1;
        if !reference.all || at >= lines.len() {
            break;
        }
    }
    Ok(found)
}

/// What stands behind a word in a line that has it.
fn behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (word, last) = word.strip_suffix('$').map_or((word, false), |word| (word, true));
    let rest = match word.strip_prefix('^') {
        Some(word) => line.strip_prefix(word)?,
        None => &line[line.find(word)? + word.len()..],
    };
    (!last || rest.is_empty()).then_some(rest)
}

/// The numbers of a text. Digits behind a letter are part of a name.
fn numbers(text: &str) -> Vec<f64> {
    let (mut numbers, mut at) = (Vec::new(), 0);
    while let Some(begin) = text[at..].find(|c: char| c.is_ascii_digit()).map(|i| at + i) {
        let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
        let mut end = begin + digits(begin);
        if text[end..].starts_with('.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
        }
        at = end;
        let mut before = text[..begin].chars().rev();
        let (last, one_more) = (before.next(), before.next());
        if last.is_some_and(char::is_alphabetic) {
            continue;
        }
        let apart = one_more.is_none_or(|c| !c.is_alphanumeric() && c != ')');
        let sign = if matches!(last, Some('-' | '−')) && apart { -1.0 } else { 1.0 };
        numbers.extend(text[begin..end].parse().map(|value: f64| sign * value));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(text: &str, path: &str, place: usize, all: bool) -> Result<Vec<f64>, String> {
        let path = path.split(" > ").map(str::to_owned).collect();
        let reference = Reference { file: "f".to_owned(), path, place, all };
        match parse(text) {
            Stored::Json(value) => in_json(&value, &reference),
            Stored::Lines(lines) => in_lines(&lines, &reference),
        }
    }

    #[test]
    fn a_field_of_json_is_found_by_its_path() {
        let json = r#"{"a b": 2.5, "rows": [{"x": 1, "y": "3.5 ± 0.5"}, {"x": 2, "y": "4 ± 1"}]}"#;
        assert_eq!(look_up(json, "a b", 1, false), Ok(vec![2.5]));
        assert_eq!(look_up(json, "rows > x=1 > y", 2, false), Ok(vec![0.5]));
        assert_eq!(look_up(json, "rows > x", 1, true), Ok(vec![1.0, 2.0]));
        assert!(look_up(json, "rows > x", 1, false).is_err());
        assert!(look_up(json, "rows > x=3 > y", 1, false).is_err());
        assert!(look_up(json, "rows > x=1 > z", 1, false).is_err());
    }

    #[test]
    fn a_number_of_text_is_found_by_words_and_place() {
        let text = "$ run --a\n  one   5 (1.2x) -3\n$ run --a 1\n  one 7\n{\"n\":8}\n";
        assert_eq!(look_up(text, "one", 3, false), Ok(vec![-3.0]));
        assert_eq!(look_up(text, "--a 1$ > one", 1, false), Ok(vec![7.0]));
        assert_eq!(look_up(text, "^one", 1, true), Ok(vec![5.0, 7.0]));
        assert_eq!(look_up(text, "\"n\":", 1, false), Ok(vec![8.0]));
        assert!(look_up(text, "two", 1, false).is_err());
        assert!(look_up(text, "one", 4, false).is_err());
    }
}
