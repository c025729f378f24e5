//! Which file of a crate uses items of which other file. Re-exports are followed to the file that defines the item;
//! `mod` and `pub use` declarations alone are no use. A call of a method counts if the method is in an inherent `impl`
//! outside the file of its type and no other method of the crate has its name: without types, other calls of methods
//! cannot be resolved, and their file is usually that of the type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::cycles::{Cycle, Edges};
use super::module_tree::{Binding, ModuleTree};

/// Files of a crate, and the items that each uses of others.
pub(super) struct ModuleGraph {
    files: Vec<String>,
    /// Names that the first file uses and the second defines.
    uses: BTreeMap<(usize, usize), BTreeSet<String>>,
}

/// What a path refers to.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item that this file defines.
    Item(usize),
}

/// Index of the crate root.
const ROOT: usize = 0;
/// Longest chain of re-exports that is followed; longer ones are circular.
const MAX_REEXPORTS: usize = 16;

// === impl ModuleGraph ===

impl ModuleGraph {
    /// Reads the crate with this root file.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub(super) fn of_crate(root: &Path) -> Result<Self> {
        let tree = ModuleTree::parse(root)?;
        let mut uses: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (index, module) in tree.modules.iter().enumerate() {
            for path in &module.paths {
                let Some((Target::Item(file), name)) = resolve(&tree, index, path, MAX_REEXPORTS) else { continue };
                if file != module.file {
                    uses.entry((module.file, file)).or_default().insert(name);
                }
            }
        }
        for (file, name) in outside_methods(&tree) {
            for module in tree.modules.iter().filter(|module| module.file != file && module.calls.contains(name)) {
                uses.entry((module.file, file)).or_default().insert(name.to_owned());
            }
        }
        let files = tree.files.iter().map(|file| file.display().to_string()).collect();
        Ok(Self { files, uses })
    }

    /// Returns the files that each file uses.
    pub(super) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, to) in self.uses.keys() {
            edges.entry(*from).or_default().insert(*to);
        }
        edges
    }

    /// Describes a cycle: its shortest path with the names in use, then the other uses among its files.
    pub(super) fn describe(&self, cycle: &Cycle) -> String {
        let mut text = format!("error: import cycle, {} files use each other:", cycle.members.len());
        let next = cycle.path.iter().cycle().skip(1);
        let on_path: Vec<_> = cycle.path.iter().zip(next).map(|(from, to)| (*from, *to)).collect();
        for edge in &on_path {
            self.describe_use(&mut text, "    ", *edge);
        }
        let among_members = |edge: &&(usize, usize)| {
            cycle.members.contains(&edge.0) && cycle.members.contains(&edge.1) && !on_path.contains(edge)
        };
        let others: Vec<_> = self.uses.keys().filter(among_members).collect();
        if !others.is_empty() {
            text += "\n  and among the same files:";
            others.into_iter().for_each(|edge| self.describe_use(&mut text, "    ", *edge));
        }
        text
    }

    fn describe_use(&self, text: &mut String, indent: &str, (from, to): (usize, usize)) {
        let names: Vec<&str> = self.uses[&(from, to)].iter().map(String::as_str).collect();
        *text += &format!("\n{indent}{} → {} ({})", self.files[from], self.files[to], names.join(", "));
    }
}

/// Returns file and name of the methods that are defined outside the file of their type, if the name is unique.
fn outside_methods(tree: &ModuleTree) -> Vec<(usize, &str)> {
    let mut files_by_name: BTreeMap<&str, Vec<Option<usize>>> = BTreeMap::new();
    for (index, module) in tree.modules.iter().enumerate() {
        for (type_path, name) in &module.methods {
            let type_file = match resolve(tree, index, type_path, MAX_REEXPORTS) {
                Some((Target::Item(file), _)) => file,
                _ => module.file,
            };
            let outside_file = (type_file != module.file).then_some(module.file);
            files_by_name.entry(name).or_default().push(outside_file);
        }
    }
    let single = files_by_name.into_iter().filter(|(_, files)| files.len() == 1);
    single.filter_map(|(name, files)| Some((*files.first()?.as_ref()?, name))).collect()
}

/// Returns what `path` refers to in a module, and the name of the item. `None` for items of other crates and for local
/// variables.
fn resolve(tree: &ModuleTree, module: usize, path: &[String], depth: usize) -> Option<(Target, String)> {
    let depth = depth.checked_sub(1)?;
    let mut current = module;
    let mut last = None;
    for name in path {
        match name.as_str() {
            "crate" => current = ROOT,
            "self" => {}
            "super" => current = tree.modules[current].parent?,
            name => match lookup(tree, current, name, depth)? {
                Target::Module(child) => current = child,
                item @ Target::Item(_) => return Some((item, name.to_owned())),
            },
        }
        last = Some(name.clone());
    }
    Some((Target::Module(current), last?))
}

/// Returns what a name means inside a module.
fn lookup(tree: &ModuleTree, module: usize, name: &str, depth: usize) -> Option<Target> {
    let scope = &tree.modules[module];
    match scope.bindings.get(name) {
        Some(Binding::Item) => Some(Target::Item(scope.file)),
        Some(Binding::Module(child)) => Some(Target::Module(*child)),
        // `use name;` imports another crate.
        Some(Binding::Import(path)) if path.as_slice() == [name] => None,
        Some(Binding::Import(path)) => resolve(tree, module, path, depth).map(|(target, _)| target),
        None => scope.globs.iter().find_map(|glob| match resolve(tree, module, glob, depth)?.0 {
            Target::Module(source) if source != module => lookup(tree, source, name, depth.checked_sub(1)?),
            _ => None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cycles;
    use super::*;

    /// Returns the descriptions of the cycles of a crate with these files.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let graph = ModuleGraph::of_crate(&directory.path().join("lib.rs")).unwrap();
        let prefix = format!("{}/", directory.path().display());
        cycles::find(&graph.edges()).iter().map(|cycle| graph.describe(cycle).replace(&prefix, "")).collect()
    }

    #[test]
    fn module_and_reexport_declarations_are_no_use() {
        let lib = "mod a;\nmod b;\npub use a::A;";
        assert!(cycles_of(&[("lib.rs", lib), ("a.rs", "pub struct A;"), ("b.rs", "use crate::A;")]).is_empty());
    }

    #[test]
    fn reexports_are_followed_to_the_defining_file() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;"),
            ("a.rs", "use crate::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nimpl B { fn new() -> crate::A { todo!() } }"),
        ];
        let expected = "error: import cycle, 2 files use each other:\n    a.rs → b.rs (B)\n    b.rs → a.rs (A)";
        assert_eq!(cycles_of(&files), [expected]);
    }

    #[test]
    fn parent_and_child_that_use_each_other_are_a_cycle() {
        let files = [
            ("lib.rs", "mod parent;"),
            ("parent.rs", "mod child;\npub struct Type;\npub fn run() { child::step(); }"),
            ("parent/child.rs", "use super::Type;\npub fn step() { let _ = Type; }"),
        ];
        let expected = "error: import cycle, 2 files use each other:\n    parent.rs → parent/child.rs (step)\n    parent/child.rs → parent.rs (Type)";
        assert_eq!(cycles_of(&files), [expected]);
    }

    #[test]
    fn uses_in_macros_nested_imports_and_longer_cycles_are_found() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "pub fn a() -> String { format!(\"{}\", crate::b::b()) }"),
            ("b.rs", "pub fn b() -> u8 { use crate::c::{self, C}; c::c(C) }"),
            ("c.rs", "pub struct C;\npub fn c(_: C) -> u8 { super::a::a().len() as u8 }"),
        ];
        let cycles = cycles_of(&files);
        let path = ["a.rs → b.rs (b)", "b.rs → c.rs (C, c)", "c.rs → a.rs (a)"].map(|line| format!("\n    {line}"));
        assert_eq!(cycles, [format!("error: import cycle, 3 files use each other:{}", path.concat())]);
    }

    #[test]
    fn methods_outside_the_file_of_their_type_are_used_by_their_callers() {
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "pub struct A;\nimpl A { pub fn run(&self) { self.step(); } }"),
            ("b.rs", "use crate::a::A;\nimpl A { pub fn step(&self) {} }"),
        ];
        let expected = "error: import cycle, 2 files use each other:\n    a.rs → b.rs (step)\n    b.rs → a.rs (A)";
        assert_eq!(cycles_of(&files), [expected]);
    }

    #[test]
    fn tests_may_use_upper_modules() {
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "pub fn a() {}\n#[cfg(test)]\nmod tests { use crate::b::b; #[test] fn works() { b(); } }"),
            ("b.rs", "pub fn b() { crate::a::a(); }"),
        ];
        assert!(cycles_of(&files).is_empty());
    }
}
