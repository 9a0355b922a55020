//! Compares a map with the text of its RFC, if that is at hand: every quote is in its section, the
//! numbers of normative words are right, and no numbered requirement is missing.

use std::collections::{BTreeMap, BTreeSet};

use super::about;
use super::entries::{Level, Map};
use crate::Finding;

/// The words that make a requirement (RFC 2119). MAY and OPTIONAL do not count, and a NOT after a
/// word belongs to it.
const NORMATIVE: [&str; 5] = ["MUST", "SHALL", "SHOULD", "REQUIRED", "RECOMMENDED"];

/// Returns every difference between the text and the map.
pub(super) fn check(map: &Map, text: &str) -> Vec<Finding> {
    let sections = sections(text);
    let mut findings = Vec::new();
    for entry in &map.requirements {
        let quote = squeezed(&entry.quote);
        let place = sections.get(&entry.section);
        if place.is_none_or(|place| !squeezed(place).contains(&quote)) {
            findings.push(about(map, entry, format!("§{} does not say that", entry.section)));
        }
        // Words in a figure or a list may be split; the quote must still show its level.
        let shown = entry.covers == 0 || map.keywords.is_empty() || words(&entry.quote) > 0;
        if !shown && entry.level != Level::May {
            findings.push(about(map, entry, "the quote holds no normative word"));
        }
    }
    if map.ids.is_empty() {
        findings.extend(check_words(map, &sections));
    } else {
        findings.extend(check_ids(map, text));
    }
    findings
}

fn check_words(map: &Map, sections: &BTreeMap<String, String>) -> Vec<Finding> {
    let inside = |section: &str| {
        map.scope.is_empty()
            || section == map.scope
            || section.strip_prefix(&map.scope).is_some_and(|rest| rest.starts_with('.'))
    };
    let mut names: BTreeSet<&String> = map.keywords.keys().collect();
    names.extend(sections.keys().filter(|section| inside(section)));
    let mut findings = Vec::new();
    for name in names {
        let held = sections.get(name).map_or(0, |text| words(text));
        let told = map.keywords.get(name).copied().unwrap_or(0);
        if held != told {
            let text = format!("§{name} holds {held} normative words, not {told}");
            findings.push(Finding::new(&map.path, 0, text));
        }
    }
    findings
}

fn check_ids(map: &Map, text: &str) -> Vec<Finding> {
    let text = squeezed(text);
    let told = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            map.ids.contains_key(family) && number.parse::<u32>().is_ok()
        })
    });
    let told: BTreeSet<&str> = told.collect();
    let known: BTreeSet<&str> = map.requirements.iter().map(|entry| entry.id.as_str()).collect();
    let missing = told.difference(&known).map(|id| format!("the RFC has {id} as well"));
    let invented = known.difference(&told).map(|id| format!("the RFC has no {id}"));
    missing.chain(invented).map(|text| Finding::new(&map.path, 0, text)).collect()
}

/// Counts normative words in a text, except in the sentences that define such words.
fn words(text: &str) -> u32 {
    let paragraphs = text.split("\n\n").filter(|paragraph| {
        let paragraph = squeezed(paragraph);
        !(paragraph.contains("key words") || paragraph.contains("keywords"))
            || !paragraph.contains("interpreted")
    });
    let mut count = 0;
    for paragraph in paragraphs {
        // `MUST-1` is a number, `MUST--if at all--` a word.
        let words = paragraph.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let words = words.flat_map(|word| word.split("--"));
        count += words.filter(|word| NORMATIVE.contains(word)).count();
    }
    count as u32
}

/// Puts one space between words, and none where a line ended in a hyphen.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("- ", "-")
}

/// The RFC's text by section, without the heads and feet of pages. A heading is a line that begins
/// with a number that can follow the section before. Lines of the table of contents and of lists
/// are therefore no headings.
fn sections(text: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut number = Vec::new();
    for line in text.split('\n').map(str::trim_end).filter(|line| !is_page_edge(line)) {
        if let Some(next) = heading(line).filter(|next| follows(&number, next)) {
            number = next;
        }
        if let Some(section) = name(&number) {
            let body = sections.entry(section).or_default();
            body.push_str(line);
            body.push('\n');
        }
    }
    sections
}

/// True for `RFC 1122   TRANSPORT LAYER -- TCP   October 1989`, and `Allman, et al.   [Page 3]`.
fn is_page_edge(line: &str) -> bool {
    let line = line.trim_start_matches('\u{c}');
    let year = line.rsplit(' ').next().is_some_and(|last| {
        last.len() == 4 && last.starts_with(['1', '2']) && last.parse::<u32>().is_ok()
    });
    line.ends_with(']') && line.contains("[Page ")
        || line.starts_with("RFC") && line.contains("   ") && year
}

/// The number at the start of a heading; an appendix's letter counts on from 1000. Headings begin
/// at the start of the line or, in older RFCs, three columns further in for each level.
fn heading(line: &str) -> Option<Vec<u32>> {
    let mut words = line.split_whitespace();
    let mut first = words.next()?;
    if first == "Appendix" || first == "APPENDIX" {
        first = words.next()?;
    }
    words.next()?;
    let parts = first.trim_end_matches(['.', ':']).split('.');
    let number = |(at, part): (usize, &str)| match part.parse() {
        Ok(number) => Some(number),
        Err(_) if at == 0 && part.len() == 1 => {
            part.chars().next().filter(char::is_ascii_uppercase).map(|c| 1000 + c as u32)
        }
        Err(_) => None,
    };
    let number = parts.enumerate().map(number).collect::<Option<Vec<u32>>>()?;
    let indent = line.len() - line.trim_start().len();
    let is_contents = line.contains("....") || line.contains(". . .");
    (!is_contents && (indent == 0 || indent == 3 * (number.len() - 1))).then_some(number)
}

/// True if `next` is the first subsection of `number`, the next section after it or after one that
/// contains it, or an appendix after all of them.
fn follows(number: &[u32], next: &[u32]) -> bool {
    let Some((last, parents)) = next.split_last() else { return false };
    let sibling = || {
        let before = number.get(parents.len()).copied();
        number.starts_with(parents) && before.is_some_and(|before| before + 1 == *last)
    };
    let appendix = next == [1000 + u32::from(b'A')] && number.first().is_some_and(|n| *n < 1000);
    (parents == number && *last == 1) || sibling() || appendix
}

fn name(number: &[u32]) -> Option<String> {
    let (first, rest) = number.split_first()?;
    let letter = first.checked_sub(1000).and_then(char::from_u32);
    let mut name = letter.map_or(first.to_string(), |letter| letter.to_string());
    for part in rest {
        name = format!("{name}.{part}");
    }
    Some(name)
}

#[cfg(test)]
mod tests;
