//! Rules that need Rust's grammar: the length of functions and of inline tests, macros that mark
//! unfinished code, and the places of `unsafe`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, ItemFn, ItemMod, Macro, Signature, TraitItemFn};

use crate::Finding;
use crate::sources::{Source, is_test_path};

/// Lines in a function from its `fn` to its closing brace, at most.
const FUNCTION_LINES: usize = 70;
/// Lines in a function of the tests, at most: a long script is clearer than a broken one.
const TEST_FUNCTION_LINES: usize = 150;
/// Lines of tests inside the file they test, at most; more go into a sibling `tests.rs`.
const INLINE_TEST_LINES: usize = 150;
/// Macros that must not stay in the code.
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
/// The files that may allow `unsafe`: the processor's instructions, devices, the clock, a call of
/// the C library's allocator, io_uring's queues, the C interface, the counting allocator, and the
/// calls of lwIP, which is in C.
const UNSAFE_PLACES: [&str; 12] = [
    "crates/processor/src/avx2",
    "crates/processor/src/prefetch",
    "crates/processor/src/sum",
    "crates/processor/src/which",
    "crates/lightwait/src/device/",
    "crates/lightwait/src/clock",
    "crates/lightwait/src/allocator",
    "crates/lightwait/src/bridge/kernel",
    "crates/http/src/files/source/thread_pool/ring",
    "conformance/src/abi",
    "bench/heap/src/counting",
    "bench/lwip/src/instance",
];
/// The crates that cannot forbid `unsafe` as a whole.
const UNSAFE_CRATES: [&str; 6] = [
    "crates/processor/",
    "crates/lightwait/",
    "crates/http/",
    "conformance/",
    "bench/heap/",
    "bench/lwip/",
];

/// Checks all rules of this module on one file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    let file = match syn::parse_file(&source.text) {
        Ok(file) => file,
        Err(e) => {
            let line = e.span().start().line;
            return vec![Finding::new(path, line, format!("not Rust: {e}"))];
        }
    };
    let mut walk = Walk { path, in_tests: is_test_path(path), findings: Vec::new() };
    walk.check_unsafe(&file.attrs);
    walk.visit_file(&file);
    walk.findings
}

/// A walk through one file's syntax.
struct Walk<'a> {
    path: &'a str,
    in_tests: bool,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn report(&mut self, span: Span, text: String) {
        self.findings.push(Finding::new(self.path, span.start().line, text));
    }

    fn check_function(&mut self, signature: &Signature, block: &Block) {
        let limit = if self.in_tests { TEST_FUNCTION_LINES } else { FUNCTION_LINES };
        let start = signature.span().start().line;
        let lines = block.span().end().line + 1 - start;
        if lines > limit {
            let text = format!("`{}` has {lines} lines; at most {limit}", signature.ident);
            self.report(signature.ident.span(), text);
        }
    }

    /// Crate roots forbid `unsafe`; only the files of [`UNSAFE_PLACES`] may allow it.
    fn check_unsafe(&mut self, attributes: &[Attribute]) {
        let forbids = attributes.iter().any(|a| level_of_unsafe(a).as_deref() == Some("forbid"));
        let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|end| self.path.ends_with(end));
        if is_root && !UNSAFE_CRATES.iter().any(|at| self.path.starts_with(at)) && !forbids {
            let text = "a crate starts with `#![forbid(unsafe_code)]`";
            self.findings.push(Finding::new(self.path, 0, text));
        }
    }

    fn walk_function(&mut self, attributes: &[Attribute], walk: impl FnOnce(&mut Self)) {
        let outside = self.in_tests;
        self.in_tests |= is_test(attributes);
        walk(self);
        self.in_tests = outside;
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let allowed = UNSAFE_PLACES.iter().any(|place| self.path.starts_with(place));
        let allows = matches!(level_of_unsafe(attribute).as_deref(), Some("allow" | "expect"));
        if allows && !allowed && !is_test_path(self.path) {
            let text = "`unsafe` is for a few files alone".to_owned();
            self.report(attribute.span(), text);
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let outside = self.in_tests;
        if is_test(&item.attrs) {
            self.in_tests = true;
            let lines = item.span().end().line + 1 - item.mod_token.span.start().line;
            if !outside && item.content.is_some() && lines > INLINE_TEST_LINES {
                let text = format!(
                    "{lines} lines of tests; beyond {INLINE_TEST_LINES} they go to tests.rs beside"
                );
                self.report(item.ident.span(), text);
            }
        }
        visit::visit_item_mod(self, item);
        self.in_tests = outside;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.walk_function(&item.attrs, |walk| {
            walk.check_function(&item.sig, &item.block);
            visit::visit_item_fn(walk, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.walk_function(&item.attrs, |walk| {
            walk.check_function(&item.sig, &item.block);
            visit::visit_impl_item_fn(walk, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.check_function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let last = call.path.segments.last().map(|segment| segment.ident.to_string());
        if let Some(name) = last.filter(|name| UNFINISHED_MACROS.contains(&name.as_str())) {
            self.report(call.span(), format!("`{name}!` must not stay"));
        }
        visit::visit_macro(self, call);
    }
}

/// True if these attributes make an item part of the tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let last = path.segments.last().is_some_and(|segment| segment.ident == "test");
        let cfg_test = path.is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|inner| inner.is_ident("test"));
        last || cfg_test
    })
}

/// `forbid`, `deny`, `allow` … if the attribute sets the level of `unsafe_code`.
fn level_of_unsafe(attribute: &Attribute) -> Option<String> {
    let mut names_it = false;
    if matches!(attribute.meta, syn::Meta::List(_)) {
        // A reason (`reason = "…"`) is a name with a value: its value must be consumed.
        let _ = attribute.parse_nested_meta(|meta| {
            names_it |= meta.path.is_ident("unsafe_code");
            if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<syn::Lit>()?;
            }
            Ok(())
        });
    }
    let level = attribute.path().get_ident()?.to_string();
    (names_it && level != "cfg").then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<Finding> {
        check(&Source { path: path.to_owned(), text: text.to_owned() })
    }

    fn function(lines: usize) -> String {
        format!(
            "/// Documented.\n#[inline]\nfn long() {{\n{}}}\n",
            "    work();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_of_70_lines_passes_and_one_of_71_does_not() {
        assert_eq!(check_text("a.rs", &function(70)), []);
        let findings = check_text("a.rs", &function(71));
        assert_eq!(findings[0].to_string(), "a.rs:3: `long` has 71 lines; at most 70");
        let method = format!("impl A {{\n{}}}", function(71));
        assert_eq!(check_text("a.rs", &method).len(), 1);
        let provided = format!("trait A {{\n{}}}", function(71));
        assert_eq!(check_text("a.rs", &provided).len(), 1);
    }

    #[test]
    fn tests_may_be_longer_but_not_endless() {
        let module = |n| format!("#[cfg(test)]\nmod tests {{\n{}}}", function(n));
        assert_eq!(check_text("a.rs", &module(100)), []);
        assert_eq!(check_text("a/tests.rs", &function(150)), []);
        assert_eq!(check_text("a/tests.rs", &function(151)).len(), 1);
        assert_eq!(check_text("a.rs", &format!("#[test]\n{}", function(71))), []);
    }

    #[test]
    fn inline_tests_of_150_lines_pass_and_of_151_do_not() {
        let module = |n: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}", "\n".repeat(n - 2));
        assert_eq!(check_text("a.rs", &module(150)), []);
        assert_eq!(check_text("a.rs", &module(151)).len(), 1);
        assert_eq!(check_text("a/tests.rs", &module(151)), []);
    }

    #[test]
    fn unfinished_macros_are_found_and_like_names_are_not() {
        assert_eq!(check_text("a.rs", "fn todo() { note(\"dbg!\"); }"), []);
        assert_eq!(check_text("a.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(check_text("a.rs", "fn f() { std::dbg!(1); }").len(), 1);
    }

    #[test]
    fn crate_roots_forbid_unsafe() {
        assert_eq!(check_text("crates/x/src/lib.rs", "#![forbid(unsafe_code)]"), []);
        assert_eq!(check_text("crates/x/src/lib.rs", "#![deny(unsafe_code)]").len(), 1);
        assert_eq!(check_text("crates/lightwait/src/lib.rs", "//! Sockets."), []);
    }

    #[test]
    fn unsafe_is_allowed_in_the_devices_alone() {
        let text = "#![allow(unsafe_code, reason = \"ioctls\")]";
        assert_eq!(check_text("crates/lightwait/src/device/tap.rs", text), []);
        assert_eq!(check_text("crates/lightwait/src/shard.rs", text).len(), 1);
        assert_eq!(check_text("crates/lightwait/src/shard.rs", "#![allow(dead_code)]"), []);
    }

    #[test]
    fn what_is_not_rust_is_said_to_be_so() {
        assert!(check_text("a.rs", "fn (").first().unwrap().text.starts_with("not Rust"));
    }
}
