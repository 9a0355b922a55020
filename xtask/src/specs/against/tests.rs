//! An invented RFC, with right and wrong maps of it.

use super::super::entries::tests::map;
use super::*;

const RFC: &str = "
Network Working Group
RFC 1                             Examples                     May 1999

                           Table of Contents

   1.  Introduction ................ 1
   2.  Rules ....................... 2

1.  Introduction

   The key words \"MUST\" and \"SHOULD\" are to be interpreted as in
   RFC 2119.

2.  Rules

   A host MUST count its seg-
   ments.  It does so as follows.

Author                   Informational                          [Page 1]
\u{c}
RFC 1                             Examples                     May 1999

   1.  It SHOULD NOT forget one.
   3.  It MAY rest.

2.1.  Further Rules

   It is RECOMMENDED to begin with 1 (SHLD-
   1), and a MUSTARD is none.

A.  More

   One MUST
   stop (MUST-1).
";

#[test]
fn sections_begin_with_headings_and_not_with_lists_or_contents() {
    let sections = sections(RFC);
    let names: Vec<&str> = sections.keys().map(String::as_str).collect();
    assert_eq!(names, ["1", "2", "2.1", "A"]);
    assert!(sections["2"].contains("SHOULD NOT forget"));
    assert!(!sections["2"].contains("[Page 1]") && !sections["2"].contains("May 1999"));
}

#[test]
fn a_heading_follows_the_one_before() {
    let follows = |a: &[u32], b: &[u32]| super::follows(a, b);
    assert!(follows(&[], &[1]) && !follows(&[], &[2]));
    assert!(follows(&[3], &[3, 1]) && follows(&[3], &[4]) && !follows(&[3], &[3]));
    assert!(follows(&[3, 2, 5], &[3, 2, 6]) && follows(&[3, 2, 5], &[3, 3]));
    assert!(follows(&[3, 2, 5], &[4]) && !follows(&[3, 2, 5], &[5]));
    assert!(follows(&[9], &[1065]) && follows(&[1065, 1], &[1066]) && !follows(&[9], &[1066]));
    assert_eq!(heading("Appendix B.  More"), Some(vec![1066]));
    assert_eq!(heading("         4.2.2.1  Ports"), Some(vec![4, 2, 2, 1]));
    assert_eq!(heading("4.2. Ports .......... 5"), None);
    assert_eq!(heading("   4.  Ports"), None, "a list");
    assert_eq!(heading("2.1"), None, "a number alone is no heading");
    assert_eq!(heading("It begins"), None);
    assert_eq!(name(&[1065, 2]).as_deref(), Some("A.2"));
}

#[test]
fn normative_words_count_as_words_outside_their_definition() {
    let sections = sections(RFC);
    let counts: Vec<u32> = sections.values().map(|text| words(text)).collect();
    assert_eq!(counts, [0, 2, 1, 1]);
}

fn counted(keywords: &str, section: &str, quote: &str) -> Vec<String> {
    let map = map(&format!(
        "rfc = 1\ntitle = 'One'\n[keywords]\n{keywords}\n[[requirement]]\nid = \"1-2-1\"\n\
         section = '{section}'\nlevel = 'MUST'\nquote = '{quote}'\nopen = 'x'"
    ));
    check(&map, RFC).into_iter().map(|finding| finding.text).collect()
}

#[test]
fn the_table_of_words_is_the_rfc_s() {
    let right = "2 = 2\n\"2.1\" = 1\nA = 1";
    assert!(counted(right, "2", "MUST count").is_empty());
    let missing = counted("2 = 2\n\"2.1\" = 1", "2", "MUST count");
    assert_eq!(missing, ["§A holds 1 normative words, not 0"]);
    let wrong = counted(&format!("{right}\n7 = 1"), "2", "MUST count");
    assert_eq!(wrong, ["§7 holds 0 normative words, not 1"]);
}

#[test]
fn a_scope_leaves_the_rest_of_the_rfc_out() {
    let scoped = |scope: &str| {
        let text = "rfc = 1\ntitle = 'One'\nscope = 'S'\n[keywords]\n2 = 2\n\"2.1\" = 1";
        check(&map(&text.replace('S', scope)), RFC)
    };
    assert_eq!(scoped("2"), []);
    assert_eq!(scoped("A").len(), 1, "§A is inside");
}

#[test]
fn a_quote_stands_in_its_section_however_the_lines_are_broken() {
    let right = "2 = 2\n\"2.1\" = 1\nA = 1";
    assert!(counted(right, "2", "MUST count its seg-ments. It").is_empty());
    assert_eq!(counted(right, "2.1", "MUST count"), ["1-2-1: §2.1 does not say that"]);
    assert_eq!(counted(right, "2", "MUST  not count"), ["1-2-1: §2 does not say that"]);
    assert_eq!(counted(right, "2", "It does so"), ["1-2-1: the quote holds no normative word"]);
}

#[test]
fn numbered_requirements_are_those_of_the_rfc() {
    let numbered = |ids: &[&str]| {
        let entry = |id: &&str| {
            let (section, quote) =
                if *id == "SHLD-1" { ("2.1", "(SHLD-1)") } else { ("A", "stop") };
            let level = if *id == "SHLD-1" { "SHOULD" } else { "MUST" };
            format!(
                "[[requirement]]\nid = \"{id}\"\nsection = '{section}'\nlevel = '{level}'\n\
                 quote = '{quote}'\nopen = 'x'\n"
            )
        };
        let entries: String = ids.iter().map(entry).collect();
        let map = map(&format!("rfc = 1\ntitle = 'One'\n[ids]\nMUST = 1\nSHLD = 1\n{entries}"));
        check(&map, RFC).into_iter().map(|finding| finding.text).collect::<Vec<_>>()
    };
    assert!(numbered(&["SHLD-1", "MUST-1"]).is_empty());
    assert_eq!(numbered(&["SHLD-1"]), ["the RFC has MUST-1 as well"]);
    assert_eq!(numbered(&["SHLD-1", "MUST-1", "MUST-2"]), ["the RFC has no MUST-2"]);
}
