//! Compares what a run found with the list.

use std::collections::BTreeSet;

use super::LIST;
use super::list::List;
use super::outcomes::{Fate, Mutant, Tested};
use crate::Finding;

/// The findings: survivors that are not listed; entries whose mutant is killed now; and, for files
/// that were run `wholly`, entries whose mutant is not made any more.
pub(super) fn check(list: &List, tested: &[Tested], wholly: &[String]) -> Vec<Finding> {
    let with = |fate| tested.iter().filter(move |tested| tested.fate == fate);
    let missed: BTreeSet<&Mutant> = with(Fate::Missed).map(|tested| &tested.mutant).collect();
    let is_listed = |mutant: &Mutant| list.survivors.iter().any(|entry| entry.mutant == *mutant);
    let new = with(Fate::Missed).filter(|tested| !is_listed(&tested.mutant)).map(|tested| {
        let text = format!("a mutant survives: write the test that kills it, or\n{}", {
            entry_of(&tested.mutant)
        });
        Finding::new(&tested.mutant.file, tested.line, text)
    });
    let stale = list.survivors.iter().filter(|entry| !missed.contains(&entry.mutant));
    let stale = stale.filter_map(|entry| {
        let text = if tested.iter().any(|tested| tested.mutant == entry.mutant) {
            "a test kills this mutant now: take the entry out"
        } else if wholly.contains(&entry.mutant.file) {
            "there is no such mutant any more: take the entry out"
        } else {
            return None;
        };
        Some(Finding::new(LIST, entry.line, text))
    });
    new.chain(stale).collect()
}

/// The entry that the list would have.
fn entry_of(mutant: &Mutant) -> String {
    let Mutant { file, function, mutation, at } = mutant;
    let at = if at.is_empty() { String::new() } else { format!("at = '''{at}'''\n") };
    format!(
        "[[survivor]]\nfile = '{file}'\nfunction = '''{function}'''\n\
         mutation = '''{mutation}'''\n{at}why = \"\"\n"
    )
}

/// The note in the list that a file was run wholly. Mutants that do not compile do not count.
pub(super) fn run_of(file: &str, tested: &[Tested]) -> String {
    let count = |fates: &[Fate]| {
        let here = tested.iter().filter(|tested| tested.mutant.file == file);
        here.filter(|tested| fates.contains(&tested.fate)).count()
    };
    let (killed, missed) = (count(&[Fate::Killed, Fate::TimedOut]), count(&[Fate::Missed]));
    let mutants = killed + missed;
    format!("[[run]]\nfile = '{file}'\nmutants = {mutants}\nkilled = {killed}\nmissed = {missed}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant() -> Mutant {
        Mutant::new("a.rs", "f", "replace < with <=", "< b {")
    }

    fn tested(fates: &[Fate]) -> Vec<Tested> {
        fates.iter().map(|fate| Tested { mutant: mutant(), line: 7, fate: *fate }).collect()
    }

    fn found(list: &str, fates: &[Fate], wholly: &[&str]) -> Vec<String> {
        let wholly: Vec<String> = wholly.iter().map(|file| (*file).to_owned()).collect();
        let findings = check(&List::parse(list).unwrap(), &tested(fates), &wholly);
        findings.iter().map(ToString::to_string).collect()
    }

    fn listed() -> String {
        entry_of(&mutant()).replace("\"\"", "'the same'")
    }

    #[test]
    fn a_survivor_needs_an_entry() {
        assert!(found(&listed(), &[Fate::Missed], &["a.rs"]).is_empty());
        assert!(found("", &[Fate::Killed, Fate::TimedOut, Fate::Unviable], &["a.rs"]).is_empty());
        let [new] = &found("", &[Fate::Missed], &[])[..] else { panic!("one survives") };
        assert!(new.starts_with("a.rs:7: a mutant survives"), "{new}");
        assert!(new.ends_with(&entry_of(&mutant())), "{new}");
        assert!(List::parse(&entry_of(&mutant())).is_err(), "a reason is missing");
    }

    #[test]
    fn an_entry_needs_a_survivor() {
        let stale = "crates/core/mutants.toml:1: a test kills this mutant now: take the entry out";
        for fate in [Fate::Killed, Fate::TimedOut, Fate::Unviable] {
            assert_eq!(found(&listed(), &[fate], &[]), [stale]);
        }
        // Of two changes to the same code, one may be killed.
        assert!(found(&listed(), &[Fate::Killed, Fate::Missed], &[]).is_empty());
    }

    #[test]
    fn only_a_whole_run_tells_that_a_mutant_is_gone() {
        let gone = "crates/core/mutants.toml:1: there is no such mutant any more: take the entry \
                    out";
        assert_eq!(found(&listed(), &[], &["a.rs"]), [gone]);
        assert!(found(&listed(), &[], &["b.rs"]).is_empty());
        assert!(found(&listed(), &[], &[]).is_empty());
    }

    #[test]
    fn a_run_counts_what_compiles() {
        let fates = [Fate::Killed, Fate::TimedOut, Fate::Missed, Fate::Unviable];
        let run = run_of("a.rs", &tested(&fates));
        assert_eq!(run, "[[run]]\nfile = 'a.rs'\nmutants = 3\nkilled = 2\nmissed = 1\n");
        assert!(List::parse(&run).is_ok());
        assert!(run_of("b.rs", &tested(&fates)).contains("mutants = 0"));
    }
}
