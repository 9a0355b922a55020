//! Checks that no requirement is missing, and none occurs twice.
//!
//! An RFC with numbered requirements is complete if the numbers have no gap. Any other is complete
//! if the entries of each section account for all its normative words.

use std::collections::{BTreeMap, BTreeSet};

use super::entries::{Map, Requirement, Status};
use super::{about, by_id};
use crate::Finding;

/// Checks all rules of this module on all maps.
pub(super) fn check(maps: &[Map]) -> Vec<Finding> {
    let mut findings = repeated(maps);
    for map in maps {
        if map.ids.is_empty() {
            findings.extend(check_words(map));
            findings.extend(check_running_numbers(map));
        } else {
            findings.extend(check_ids(map));
        }
        findings.extend(map.requirements.iter().filter_map(|entry| check_link(maps, map, entry)));
    }
    findings
}

fn repeated(maps: &[Map]) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let entries =
        maps.iter().flat_map(|map| map.requirements.iter().map(move |entry| (map, entry)));
    let twice = entries.filter(|(_, entry)| !seen.insert(entry.id.clone()));
    twice.map(|(map, entry)| about(map, entry, "stands twice")).collect()
}

/// Checks `MUST-1` to `MUST-69` and so on: no gap, none beyond, and each at its family's level.
fn check_ids(map: &Map) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (family, last) in &map.ids {
        let missing = (1..=*last).map(|n| format!("{family}-{n}"));
        let missing = missing.filter(|id| map.requirements.iter().all(|entry| entry.id != *id));
        findings.extend(missing.map(|id| Finding::new(&map.path, 0, format!("{id} is missing"))));
    }
    for entry in &map.requirements {
        let (family, number) = entry.id.split_once('-').unwrap_or((&entry.id, ""));
        let last = map.ids.get(family).copied().unwrap_or(0);
        if !number.parse::<u32>().is_ok_and(|n| (1..=last).contains(&n)) {
            findings.push(about(map, entry, "is no id of this RFC"));
        } else if family != entry.level.family() {
            findings.push(about(map, entry, format!("{} is not its level", entry.level)));
        }
    }
    findings
}

fn check_words(map: &Map) -> Vec<Finding> {
    let mut accounted: BTreeMap<&str, u32> = BTreeMap::new();
    for entry in &map.requirements {
        *accounted.entry(&entry.section).or_default() += entry.covers;
    }
    let mut findings = Vec::new();
    for (section, held) in &map.keywords {
        let found = accounted.remove(section.as_str()).unwrap_or(0);
        if found != *held {
            let text = format!("§{section} holds {held} normative words; entries cover {found}");
            findings.push(Finding::new(&map.path, 0, text));
        }
    }
    let unknown = accounted.into_iter().filter(|(_, covered)| *covered > 0);
    findings.extend(unknown.map(|(section, covered)| {
        let text = format!("§{section} is not in [keywords]; entries cover {covered} words of it");
        Finding::new(&map.path, 0, text)
    }));
    findings
}

/// Checks `5681-3.1-1`, `5681-3.1-2` …: RFC, section, and a running number within it.
fn check_running_numbers(map: &Map) -> Vec<Finding> {
    let mut last: BTreeMap<&str, u32> = BTreeMap::new();
    let mut findings = Vec::new();
    for entry in &map.requirements {
        let number = last.entry(&entry.section).or_default();
        *number += 1;
        let expected = format!("{}-{}-{number}", map.rfc, entry.section);
        if entry.id != expected {
            findings.push(about(map, entry, format!("should be {expected}")));
        }
    }
    findings
}

/// Checks that `same_as` names an entry with a state of its own.
fn check_link(maps: &[Map], map: &Map, entry: &Requirement) -> Option<Finding> {
    let Status::SameAs(id) = &entry.status else { return None };
    match by_id(maps).get(id.as_str()).map(|other| &other.status) {
        None => Some(about(map, entry, format!("there is no {id}"))),
        Some(Status::SameAs(_)) => Some(about(map, entry, format!("{id} is itself a reference"))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::entries::tests::map;
    use super::*;

    fn entry(id: &str, section: &str, level: &str, more: &str) -> String {
        format!(
            "[[requirement]]\nid = \"{id}\"\nsection = '{section}'\nlevel = '{level}'\n\
             quote = 'q'\n{more}\n"
        )
    }

    fn found(texts: &[String]) -> Vec<String> {
        let maps: Vec<Map> = texts.iter().map(|text| map(text)).collect();
        check(&maps).into_iter().map(|finding| finding.text).collect()
    }

    fn numbered(entries: &[(&str, &str)]) -> Vec<String> {
        let mut text = "rfc = 9293\ntitle = 'TCP'\n[ids]\nMUST = 2\nMAY = 1\n".to_owned();
        for (id, level) in entries {
            text += &entry(id, "3.1", level, "open = 'x'");
        }
        found(&[text])
    }

    #[test]
    fn ids_have_no_gap_and_nothing_beyond_and_their_own_level() {
        let all = [("MUST-2", "MUST NOT"), ("MAY-1", "MAY"), ("MUST-1", "MUST")];
        assert!(numbered(&all).is_empty());
        assert_eq!(numbered(&all[..2]), ["MUST-1 is missing"]);
        let more = |id, level| numbered(&[&all[..], &[(id, level)]].concat());
        assert_eq!(more("MUST-3", "MUST"), ["MUST-3: is no id of this RFC"]);
        assert_eq!(more("MUST-0", "MUST"), ["MUST-0: is no id of this RFC"]);
        assert_eq!(more("REC-1", "RECOMMENDED"), ["REC-1: is no id of this RFC"]);
        assert_eq!(more("MAY-1", "MAY"), ["MAY-1: stands twice"]);
        let wrong = [all[0], all[2], ("MAY-1", "MUST")];
        assert_eq!(numbered(&wrong), ["MAY-1: MUST is not its level"]);
    }

    fn counted(entries: &[String]) -> Vec<String> {
        let head = "rfc = 5681\ntitle = 'CC'\n[keywords]\n\"3.1\" = 3\n\"4\" = 0\n";
        found(&[format!("{head}{}", entries.concat())])
    }

    #[test]
    fn the_entries_of_a_section_account_for_each_of_its_words() {
        let one = entry("5681-3.1-1", "3.1", "MUST", "open = 'x'");
        let two = entry("5681-3.1-2", "3.1", "SHOULD NOT", "open = 'x'\ncovers = 2");
        let may = entry("5681-4-1", "4", "MAY", "open = 'x'");
        assert!(counted(&[one.clone(), two.clone(), may]).is_empty());
        let short = counted(std::slice::from_ref(&one));
        assert_eq!(short, ["§3.1 holds 3 normative words; entries cover 1"]);
        let third = entry("5681-3.1-3", "3.1", "MUST", "open = 'x'");
        let long = counted(&[one.clone(), two.clone(), third]);
        assert_eq!(long, ["§3.1 holds 3 normative words; entries cover 4"]);
        let elsewhere = entry("5681-5-1", "5", "MUST", "open = 'x'");
        let strange = counted(&[one, two, elsewhere]);
        assert_eq!(strange, ["§5 is not in [keywords]; entries cover 1 words of it"]);
    }

    #[test]
    fn running_numbers_run() {
        let entries = ["5681-3.1-1", "5681-3.1-3"]
            .map(|id| entry(id, "3.1", "MUST", "open = 'x'\ncovers = 1"));
        let text = counted(&entries);
        assert!(text.contains(&"5681-3.1-3: should be 5681-3.1-2".to_owned()), "{text:?}");
    }

    #[test]
    fn a_reference_leads_to_an_entry_that_stands_by_itself() {
        let other = format!(
            "rfc = 9293\ntitle = 'TCP'\n[ids]\nMUST = 1\n{}",
            entry("MUST-1", "3.1", "MUST", "open = 'x'")
        );
        let head = "rfc = 1122\ntitle = 'Hosts'\n[keywords]\n\"4.2\" = 1\n";
        let link = |to: &str| {
            let same = format!("same_as = '{to}'");
            format!("{head}{}", entry("1122-4.2-1", "4.2", "MUST", &same))
        };
        assert!(found(&[other.clone(), link("MUST-1")]).is_empty());
        let dangling = found(&[other.clone(), link("MUST-2")]);
        assert_eq!(dangling, ["1122-4.2-1: there is no MUST-2"]);
        let circle = found(&[other, link("1122-4.2-1")]);
        assert_eq!(circle, ["1122-4.2-1: 1122-4.2-1 is itself a reference"]);
    }
}
