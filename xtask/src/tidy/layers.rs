//! Checks the layers inside `core`, and circles of files, by the text of the imports.
//!
//! ARCHITECTURE.md lists the layers, and no import points right. A file and its children are
//! one: a path that begins with the name of the file's own child is no edge.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Path, UseTree};

use super::map;
use crate::Finding;
use crate::sources::{Source, is_test_path};

/// Packages whose files are checked.
const ROOTS: [&str; 3] = ["crates/core/src", "conformance/src", "bench/src"];

/// The line before the layers.
const MARK: &str = "imports only from layers to its left";

/// Circles of files that are still there, each by its first file in the alphabet and its size. One
/// that is gone, or has become smaller, must be changed here as well.
const KNOWN: &[(&str, usize)] = &[];

/// A file's module, as the names from the package's root to it.
type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Checks all Rust sources against the page with the map.
pub(super) fn check(rust: &[Source], pages: &[Source]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let mut circles = Vec::new();
    for root in ROOTS {
        let graph = graph(rust, root)?;
        let name = |module: &Module| format!("{root}/{}.rs", module.join("/"));
        circles.extend(circles_in(&graph).iter().map(|it| it.iter().map(name).collect::<Vec<_>>()));
        if root == ROOTS[0] {
            let found = against_layers(&graph, &map::groups(map::block(pages, MARK)?)?);
            findings.extend(found.into_iter().map(|(at, text)| Finding::new(&name(&at), 0, text)));
        }
    }
    findings.extend(against_known(&circles, KNOWN));
    Ok(findings)
}

/// Imports from a layer above the importing one, and modules without a layer.
fn against_layers(graph: &Graph, layers: &[Vec<&str>]) -> Vec<(Module, String)> {
    let rank = |module: &Module| {
        let top = module.first()?.as_str();
        layers.iter().position(|names| names.contains(&top))
    };
    let mut findings = Vec::new();
    for (module, imports) in graph.iter().filter(|(module, _)| *module != &["lib"]) {
        let Some(own) = rank(module) else {
            findings.push((module.clone(), format!("stands in no layer of {}", map::PAGE)));
            continue;
        };
        let above = imports.iter().filter(|import| rank(import) > Some(own));
        findings
            .extend(above.map(|it| (module.clone(), format!("imports from {}", it.join("::")))));
        let beside = |import: &&Module| rank(import) == Some(own) && import[0] != module[0];
        let beside = imports.iter().filter(beside);
        findings.extend(beside.map(|it| {
            (module.clone(), format!("imports from {}, beside it in its layer", it.join("::")))
        }));
    }
    findings
}

/// Circles that are not known, and known circles that have changed.
fn against_known(circles: &[Vec<String>], known: &[(&str, usize)]) -> Vec<Finding> {
    let is_known = |circle: &Vec<String>| {
        known.iter().any(|(first, size)| circle[0] == *first && circle.len() == *size)
    };
    let new = circles.iter().filter(|circle| !is_known(circle));
    let mut findings: Vec<Finding> = new
        .map(|circle| Finding::new(&circle[0], 0, format!("a circle of files: {circle:?}")))
        .collect();
    let exists = |(first, size): &&(&str, usize)| {
        circles.iter().any(|circle| circle[0] == *first && circle.len() == *size)
    };
    let gone = known.iter().filter(|it| !exists(it));
    findings.extend(gone.map(|(first, size)| {
        let text = format!("known as the first of a circle of {size} files, which it is not");
        Finding::new(first, 0, text)
    }));
    findings
}

/// The imports between files, without tests.
fn graph(rust: &[Source], root: &str) -> Result<Graph, String> {
    let mut files = BTreeMap::new();
    for source in rust.iter().filter(|source| !is_test_path(&source.path)) {
        let inside = source.path.strip_prefix(root).and_then(|path| path.strip_prefix('/'));
        if let Some(path) = inside.and_then(|path| path.strip_suffix(".rs")) {
            let module: Module = path.split('/').map(str::to_owned).collect();
            files.insert(module, source);
        }
    }
    let mut graph = Graph::new();
    for (module, source) in &files {
        let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
        let mut found = Imports { paths: Vec::new() };
        found.visit_file(&file);
        let imports = found.paths.iter().filter_map(|path| resolve(module, path, &files));
        let imports = imports.filter(|import| import != module).collect();
        graph.insert(module.clone(), imports);
    }
    Ok(graph)
}

/// The file that a path leads to, if it begins with `crate`, `self` or `super`.
fn resolve(at: &Module, path: &[String], files: &BTreeMap<Module, &Source>) -> Option<Module> {
    let is_root = at == &["lib"] || at == &["main"];
    let mut module = if is_root { Module::new() } else { at.clone() };
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => module.clear(),
        "self" => {}
        "super" => drop(module.pop()),
        _ => return None,
    }
    for name in rest {
        if name == "super" {
            module.pop();
        } else {
            module.push(name.clone());
        }
    }
    while !module.is_empty() {
        if files.contains_key(&module) {
            return Some(module);
        }
        module.pop();
    }
    None
}

/// Collects the paths that a file names.
struct Imports {
    paths: Vec<Vec<String>>,
}

impl Imports {
    fn add_tree(&mut self, prefix: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| {
            let mut path = prefix.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.paths.push(with(&name.ident)),
            UseTree::Rename(name) => self.paths.push(with(&name.ident)),
            UseTree::Glob(_) => self.paths.push(prefix.to_vec()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(prefix, tree));
            }
        }
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg") && it.parse_args::<Path>().is_ok_and(|cfg| cfg.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The circles: sets of files in which each leads to all others (Tarjan's strongly connected
/// components of more than one).
fn circles_in(graph: &Graph) -> Vec<Vec<Module>> {
    let mut search =
        Search { graph, found: BTreeMap::new(), stack: Vec::new(), circles: Vec::new() };
    for module in graph.keys() {
        if !search.found.contains_key(module) {
            search.visit(module);
        }
    }
    search.circles
}

struct Search<'a> {
    graph: &'a Graph,
    /// The order in which each was found, and the earliest one that it leads back to.
    found: BTreeMap<&'a Module, (usize, usize)>,
    stack: Vec<&'a Module>,
    circles: Vec<Vec<Module>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, module: &'a Module) -> usize {
        let number = self.found.len();
        self.found.insert(module, (number, number));
        self.stack.push(module);
        let mut earliest = number;
        for import in self.graph.get(module).into_iter().flatten() {
            match self.found.get(import) {
                None => earliest = earliest.min(self.visit(import)),
                Some((when, _)) if self.stack.contains(&import) => earliest = earliest.min(*when),
                Some(_) => {}
            }
        }
        if earliest == number {
            let begin = self.stack.iter().rposition(|it| *it == module).unwrap_or(0);
            let mut circle: Vec<Module> = self.stack.drain(begin..).cloned().collect();
            circle.sort();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
        self.found.insert(module, (number, earliest));
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(files: &[(&str, &str)]) -> Graph {
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("r/{path}.rs"),
            text: (*text).to_owned(),
        };
        graph(&files.iter().map(source).collect::<Vec<_>>(), "r").unwrap()
    }

    #[test]
    fn a_file_imports_from_layers_below_its_own() {
        let layers = [vec!["a", "b"], vec!["c"]];
        let findings = |files: &[(&str, &str)]| against_layers(&graph_of(files), &layers).len();
        assert_eq!(findings(&[("a", ""), ("c", "use crate::a::X;"), ("c/d", "use super::E;")]), 0);
        assert_eq!(findings(&[("a", "use crate::c::X;"), ("c", "")]), 1);
        assert_eq!(findings(&[("a", "fn f() { crate::c::g() }"), ("c", "")]), 1);
        assert_eq!(findings(&[("a/x", "use super::super::c::Y;"), ("c", "")]), 1);
        assert_eq!(findings(&[("a", "use crate::b::X;"), ("b", "")]), 1, "beside it");
        assert_eq!(findings(&[("z", "")]), 1, "in no layer");
        let in_tests = "#[cfg(test)] mod tests { use crate::c::X; }";
        assert_eq!(findings(&[("a", in_tests), ("a/tests", "use crate::c::X;"), ("c", "")]), 0);
    }

    #[test]
    fn circles_are_found_through_any_kind_of_path() {
        let circles = |files: &[(&str, &str)]| circles_in(&graph_of(files)).len();
        assert_eq!(circles(&[("a", "use crate::b::{X, c::Y};"), ("b", ""), ("b/c", "")]), 0);
        assert_eq!(circles(&[("a", "use crate::b::X;"), ("b", "fn f(_: crate::a::Y) {}")]), 1);
        let three = [("a", "use super::b;"), ("b", "use self::c::X;"), ("b/c", "use crate::a::*;")];
        assert_eq!(circles(&three), 1);
    }

    #[test]
    fn a_known_circle_must_be_as_it_was() {
        let circle = vec!["r/a.rs".to_owned(), "r/b.rs".to_owned()];
        let findings =
            |known: &[(&str, usize)]| against_known(std::slice::from_ref(&circle), known).len();
        assert_eq!(findings(&[("r/a.rs", 2)]), 0);
        assert_eq!(findings(&[]), 1);
        assert_eq!(findings(&[("r/a.rs", 3)]), 2);
        assert_eq!(findings(&[("r/a.rs", 2), ("r/z.rs", 2)]), 1);
    }
}
