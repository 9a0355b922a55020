//! Checks the map's citations: paths exist, items are defined in them, and tests run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, Ident, ImplItem, Item, Macro, Type};

use super::about;
use super::entries::Map;
use crate::Finding;

/// Checks every citation of every map.
pub(super) fn check(root: &Path, maps: &[Map]) -> Vec<Finding> {
    let mut files = Files { root, read: BTreeMap::new() };
    let mut findings = Vec::new();
    for map in maps {
        for entry in &map.requirements {
            let code = entry.code.iter().filter_map(|cited| files.check_code(cited));
            let wrong: Vec<String> = code.collect();
            let tests = entry.test.iter().filter_map(|cited| files.check_test(cited));
            let wrong = wrong.into_iter().chain(tests);
            findings.extend(wrong.map(|text| about(map, entry, text)));
        }
    }
    findings
}

/// The files cited so far, each read once.
struct Files<'a> {
    root: &'a Path,
    read: BTreeMap<String, Result<Definitions, String>>,
}

impl Files<'_> {
    fn definitions(&mut self, path: &str) -> &Result<Definitions, String> {
        let root = self.root;
        self.read.entry(path.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(root.join(path));
            Definitions::of(&text.map_err(|_| format!("{path} does not exist"))?)
                .map_err(|why| format!("{path}: {why}"))
        })
    }

    /// The mistake in `path::item`, if there is one.
    fn check_code(&mut self, cited: &str) -> Option<String> {
        let Some((path, item)) = cited.split_once("::") else {
            return Some(format!("{cited}: cite code as path::item"));
        };
        match self.definitions(path) {
            Err(why) => Some(why.clone()),
            Ok(file) if file.items.contains(item) => None,
            Ok(_) => Some(format!("{path} defines no {item}")),
        }
    }

    /// The mistake in `path::function` or `path.pkt`, if there is one.
    fn check_test(&mut self, cited: &str) -> Option<String> {
        if cited.ends_with(".pkt") {
            let there = self.root.join(cited).is_file();
            return (!there).then(|| format!("{cited} does not exist"));
        }
        let Some((path, function)) = cited.split_once("::") else {
            return Some(format!("{cited}: cite a test as path::function"));
        };
        match self.definitions(path) {
            Err(why) => Some(why.clone()),
            Ok(file) if file.tests.contains(function) => None,
            Ok(file) if file.items.contains(function) => {
                Some(format!("{function} in {path} is no test that is run"))
            }
            Ok(_) => Some(format!("{path} has no test {function}")),
        }
    }
}

/// The items and tests of a file.
#[derive(Debug, Default)]
struct Definitions {
    /// Names of items; those inside a type also as `Type::name`.
    items: BTreeSet<String>,
    /// Functions that `cargo test` runs.
    tests: BTreeSet<String>,
}

impl Definitions {
    fn of(text: &str) -> Result<Definitions, String> {
        let file = syn::parse_file(text).map_err(|e| format!("not Rust: {e}"))?;
        let mut found = Definitions::default();
        found.visit_file(&file);
        Ok(found)
    }

    fn add(&mut self, name: &Ident) {
        self.items.insert(name.to_string());
    }

    fn add_member(&mut self, of: &str, name: &Ident) {
        self.add(name);
        self.items.insert(format!("{of}::{name}"));
    }

    fn add_fields(&mut self, of: &Ident, fields: &Fields) {
        let named = fields.iter().filter_map(|field| field.ident.as_ref());
        named.for_each(|name| self.add_member(&of.to_string(), name));
    }

    fn add_function(&mut self, attributes: &[Attribute], name: &Ident) {
        self.add(name);
        let has = |wanted: &str| {
            let last = |a: &Attribute| Some(a.path().segments.last()?.ident.to_string());
            attributes.iter().any(|a| last(a).as_deref() == Some(wanted))
        };
        if has("test") && !has("ignore") {
            self.tests.insert(name.to_string());
        }
    }

    /// Adds names in a macro's body, which has a grammar of its own: names after `fn`, `struct` and
    /// so on, and names between an attribute and a comma or a colon, as in declarations of counters
    /// and knobs. In braces they are members of the name before.
    fn add_tokens(&mut self, tokens: TokenStream, of: &str) {
        const DEFINING: [&str; 6] = ["fn", "struct", "enum", "const", "static", "type"];
        let (mut before, mut is_test) = (String::new(), false);
        let mut attributed: Option<Ident> = None;
        for token in tokens {
            let attribute = before == "#";
            before = match &token {
                TokenTree::Ident(name) => {
                    if DEFINING.contains(&before.as_str()) {
                        self.add(name);
                        if before == "fn" && std::mem::take(&mut is_test) {
                            self.tests.insert(name.to_string());
                        }
                    }
                    attributed = Some(name.clone()).filter(|_| before == "]");
                    name.to_string()
                }
                TokenTree::Group(group) => {
                    is_test |= attribute && group.stream().to_string() == "test";
                    self.add_tokens(group.stream(), &before);
                    if attribute { "]".to_owned() } else { String::new() }
                }
                TokenTree::Punct(sign) => {
                    let declares = matches!(sign.as_char(), ',' | ':');
                    if let Some(name) = attributed.take().filter(|_| declares) {
                        self.add_member(of, &name);
                    }
                    sign.to_string()
                }
                TokenTree::Literal(_) => String::new(),
            };
        }
    }
}

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(item) => self.add_function(&item.attrs, &item.sig.ident),
            Item::Struct(item) => {
                self.add(&item.ident);
                self.add_fields(&item.ident, &item.fields);
            }
            Item::Enum(item) => {
                self.add(&item.ident);
                let variants = item.variants.iter().map(|variant| &variant.ident);
                variants.for_each(|name| self.add_member(&item.ident.to_string(), name));
            }
            Item::Const(item) => self.add(&item.ident),
            Item::Static(item) => self.add(&item.ident),
            Item::Type(item) => self.add(&item.ident),
            Item::Trait(item) => self.add(&item.ident),
            Item::Impl(item) => {
                let of = name_of(&item.self_ty);
                for inner in &item.items {
                    match inner {
                        ImplItem::Fn(inner) => self.add_member(&of, &inner.sig.ident),
                        ImplItem::Const(inner) => self.add_member(&of, &inner.ident),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.add_tokens(call.tokens.clone(), "");
    }
}

/// The last name in a type's path.
fn name_of(of: &Type) -> String {
    match of {
        Type::Path(path) => {
            path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        pub struct Window { size: u32 }
        enum Step { Done }
        const LEAST: u32 = 1;
        impl Window { const SCALE: u8 = 0; fn announce(&self) { inner(); } }
        fn inner() { fn innermost() {} }
        counters! { /// Frames.
            frames_in,
            /// More.
            frames_out, }
        group! { /// Times.
            Patience { /// Until then.
                limit: u32 = 1, \"s\"; } }
        mod tests {
            #[test] fn windows_open() {}
            #[tokio::test] async fn windows_wait() {}
            #[test] #[ignore] fn windows_close() {}
            fn helper() {}
            proptest! { #[test] fn any_window_is_one(x: u8) {} fn strategy() {} }
        }";

    #[test]
    fn items_are_known_by_name_and_by_their_type() {
        let found = Definitions::of(FILE).unwrap();
        let defined = [
            "Window",
            "size",
            "Window::size",
            "Step::Done",
            "LEAST",
            "Window::SCALE",
            "announce",
            "Window::announce",
            "inner",
            "innermost",
            "frames_in",
            "frames_out",
            "limit",
            "Patience::limit",
            "strategy",
        ];
        for name in defined {
            assert!(found.items.contains(name), "{name}");
        }
        for name in ["x", "Step::size", "Frames", "self", "mod", "counters"] {
            assert!(!found.items.contains(name), "{name}");
        }
        assert!(Definitions::of("fn (").is_err());
    }

    #[test]
    fn tests_are_what_cargo_test_runs() {
        let found = Definitions::of(FILE).unwrap();
        let tests: Vec<&str> = found.tests.iter().map(String::as_str).collect();
        assert_eq!(tests, ["any_window_is_one", "windows_open", "windows_wait"]);
    }

    #[test]
    fn what_dangles_is_said_to() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Files { root, read: BTreeMap::new() };
        let (here, there) = ("src/specs/citations.rs", "src/nowhere.rs");
        assert_eq!(files.check_code(&format!("{here}::Files::check_code")), None);
        assert_eq!(files.check_test(&format!("{here}::what_dangles_is_said_to")), None);
        let code = files.check_code(&format!("{here}::no_such_item"));
        assert_eq!(code.as_deref(), Some("src/specs/citations.rs defines no no_such_item"));
        assert!(files.check_code(&format!("{there}::Files")).unwrap().ends_with("does not exist"));
        assert!(files.check_code(here).is_some());
        let helper = files.check_test(&format!("{here}::name_of")).unwrap();
        assert_eq!(helper, "name_of in src/specs/citations.rs is no test that is run");
        let test = files.check_test(&format!("{here}::no_such_test")).unwrap();
        assert_eq!(test, "src/specs/citations.rs has no test no_such_test");
        assert_eq!(files.check_test("a/b.pkt").as_deref(), Some("a/b.pkt does not exist"));
    }
}
