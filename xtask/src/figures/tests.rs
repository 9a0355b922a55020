use super::*;

const DOCUMENT: &str = "# Title of 3\n\nA request takes 4,536 instructions, of 100\nconnections \
                        4018. The paper has 28.\n";
const LIST: &str = "document = 'a.md'\n[files]\ngolden = '../bench/golden.json'\n\
    [[passage]]\nsetting = 'a case'\npaper = 'Fig. 3'\ntext = '''\n\
    A request takes {golden[lightwait: request, of 1 connections]} instructions, of 100 \
    connections {golden[lightwait: request, of 100 connections]}. The paper has {paper 28}.'''\n";

/// What is found in a document, and how many figures are of each kind.
fn found(markdown: &str, list: &str) -> (Vec<String>, BTreeMap<&'static str, usize>) {
    let list = List::parse("l.toml", list).unwrap();
    let files = Files::new(Path::new(env!("CARGO_MANIFEST_DIR")), &list.files);
    let document = Document::read("a.md", markdown);
    let mut kinds = BTreeMap::new();
    let findings = compare(&document, &list, &files, &mut kinds);
    (findings.iter().map(ToString::to_string).collect(), kinds)
}

/// Golden counts change; the tests here ask for what they are now.
fn golden() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/golden.json");
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |n: u32| golden[format!("lightwait: request, of {n} connections")].to_string();
    (of(1), of(100))
}

fn document() -> String {
    let (one, hundred) = golden();
    DOCUMENT.replace("4,536", &one).replace("4018", &hundred)
}

#[test]
fn a_document_whose_figures_have_sources_passes() {
    let (findings, kinds) = found(&document(), LIST);
    assert_eq!(findings, [""; 0]);
    let expected = [("of stored results", 2), ("of the papers", 1), ("settings", 1)];
    assert_eq!(kinds, BTreeMap::from(expected));
    // Lines may break elsewhere.
    assert_eq!(found(&document().replace("takes ", "takes\n"), LIST).0, [""; 0]);
}

#[test]
fn a_changed_digit_fails_at_its_line() {
    let (findings, _) = found(&DOCUMENT.replace("4018", "9"), LIST);
    assert!(findings.iter().any(|f| f.starts_with("a.md:4: 9: is ")), "{findings:?}");
    let (findings, _) = found(&document().replace("has 28", "has 29"), LIST);
    assert!(findings[0].starts_with("a.md:4: 29: is 28 in the list"), "{findings:?}");
    // The number of a case as well: its passage is no more there.
    let (findings, _) = found(&document().replace("of 100", "of 101"), LIST);
    assert!(findings[0].starts_with("l.toml:4: a.md does not have"), "{findings:?}");
}

#[test]
fn a_figure_that_no_passage_has_fails() {
    let (findings, _) = found(&(document() + "And 7 more.\n"), LIST);
    assert_eq!(findings, ["a.md:5: 7: has no source: give it one in l.toml"]);
    let twice = LIST.to_owned() + "[[passage]]\npaper = 'p'\ntext = 'The paper has {paper 28}'\n";
    assert_eq!(found(&document(), &twice).0, ["a.md:4: 28: has 2 sources in l.toml"]);
}

#[test]
fn a_source_that_is_gone_fails() {
    let gone = LIST.replace("of 1 connections]", "of 2 connections]");
    let (findings, _) = found(&document(), &gone);
    assert!(findings[0].contains("nothing is at `lightwait: request, of 2"), "{findings:?}");
    let gone = LIST.replace("golden.json", "gold.json");
    assert!(found(&document(), &gone).0[0].contains("gold.json: No such file"));
}

#[test]
fn a_passage_stands_once_in_its_document() {
    let twice = document() + &document();
    assert!(found(&twice, LIST).0[0].contains("has it twice"));
    assert!(found("Nothing.", LIST).0[0].contains("does not have"));
}

#[test]
fn settings_and_figures_of_papers_need_a_reason() {
    let unsaid = LIST.replace("setting = 'a case'\n", "");
    assert!(found(&document(), &unsaid).0[0].contains("does not say why figures stand in"));
    // A reason without such a figure goes.
    let list = "document = 'a.md'\n[[passage]]\nsetting = 'a case'\ntext = 'of many'\n";
    assert!(found("of many", list).0[0].contains("no figure to speak of"));
    assert!(List::parse("l.toml", &list.replace("setting", "paper")).is_err());
    let unsaid = LIST.replace("paper = 'Fig. 3'\n", "");
    assert!(List::parse("l.toml", &unsaid).unwrap_err().contains("which paper"));
}

#[test]
fn figures_without_a_source_are_counted() {
    let list = "document = 'a.md'\n[unsourced]\nold = { figures = 2, why = 'lost' }\n\
                [[passage]]\ntext = 'Some {unsourced old 5} or {unsourced old 6}.'\n";
    let (findings, kinds) = found("Some 5 or 6.", list);
    assert_eq!((findings.len(), kinds[UNSOURCED]), (0, 2));
    let text = "a.md:1: 7: is 6 in the list: correct one of them (source: l.toml:4)";
    assert_eq!(found("Some 5 or 7.", list).0, [text]);
    let more = list.replace("figures = 2", "figures = 1");
    let text = "l.toml: unsourced `old`: 2 figures; `[unsourced]` says 1";
    assert_eq!(found("Some 5 or 6.", &more).0, [text]);
    assert!(List::parse("l.toml", &list.replace("why", "because")).is_err());
    assert!(List::parse("l.toml", &list.replace("document", "page")).is_err());
    assert!(List::parse("l.toml", &list.replace("old 5", "old")).is_err());
}

#[test]
fn a_document_is_covered_or_said_not_to_be() {
    let told = |covered: &[&str], left_out: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
        uncovered(&["a.md", "b.md"], &owned(covered), &owned(left_out)).len()
    };
    assert_eq!(told(&["a.md"], &["b.md"]), 0);
    assert_eq!(told(&["a.md"], &[]), 1);
    assert_eq!(told(&["a.md", "b.md"], &["b.md"]), 1);
    assert_eq!(told(&["a.md", "b.md"], &["c.md"]), 1);
}

#[test]
fn the_documents_with_figures_are_known() {
    assert!(has_figures("README.md") && has_figures("bench/notes/stacks.md"));
    assert!(!has_figures("docs/load.md") && !has_figures("specs/README.md"));
}
