//! `lightwait knobs`: lists the knobs that `--set` can set, all of them, a group, or one.

use std::process::ExitCode;

use lightwait_core::config::Knob;

use crate::failure::{self, Failure};
use crate::plan::knobs_named;

/// Columns of the text.
const WIDTH: usize = 80;
const INDENT: &str = "    ";

/// Prints all knobs, those of a group, or one.
pub(crate) fn print(name: Option<&str>) -> Result<ExitCode, Failure> {
    let unknown = |nearest| Failure::Knob(name.unwrap_or_default().to_owned(), nearest);
    let knobs = knobs_named(name).map_err(unknown)?;
    let text: Vec<String> = knobs.iter().map(describe).collect();
    failure::print(&text.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// A knob as a paragraph.
fn describe(knob: &Knob) -> String {
    let Knob { name, value, shape, unit, meaning, source } = knob;
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    let mut text = format!("{name}={value}\n");
    for line in [(*meaning).to_owned(), format!("Takes {shape}{unit}. Source: {source}.")] {
        wrap(&mut text, &line);
    }
    text
}

/// Adds `line` in lines of [`WIDTH`] columns at most.
fn wrap(text: &mut String, line: &str) {
    let mut columns = 0;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        let is_first = columns == 0;
        if is_first || columns + 1 + length > WIDTH {
            text.push_str(if is_first { INDENT } else { "\n    " });
            columns = INDENT.len() + length;
        } else {
            text.push(' ');
            columns += 1 + length;
        }
        text.push_str(word);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_a_paragraph_of_few_columns() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for knob in knobs_named(None).unwrap() {
            let text = describe(&knob);
            let begin = format!("{}={}\n    ", knob.name, knob.value);
            assert!(text.starts_with(&begin) && text.ends_with(".\n"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert!(words(&text).contains(&words(knob.meaning)), "{text}");
        }
    }
}
