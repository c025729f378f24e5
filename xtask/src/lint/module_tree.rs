//! The modules of one crate, parsed from its files: what each module defines, imports and uses. Items under
//! `#[cfg(test)]` are left out, because tests may use everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, ExprMethodCall, ImplItem, Item, ItemImpl, ItemUse, Lit, Meta, Type, UseTree, Visibility,
};

use crate::workspace;

/// The modules of one crate; the crate root is the first.
pub(super) struct ModuleTree {
    pub(super) modules: Vec<Module>,
    /// Files relative to the workspace root.
    pub(super) files: Vec<PathBuf>,
}

/// One module: a file, or an inline `mod` of a file.
#[derive(Default)]
pub(super) struct Module {
    pub(super) parent: Option<usize>,
    /// Index of its file in [`ModuleTree::files`].
    pub(super) file: usize,
    pub(super) bindings: BTreeMap<String, Binding>,
    /// Paths of `use path::*`.
    pub(super) globs: Vec<Vec<String>>,
    /// Paths that the code of the module names, in `use` declarations that are not re-exports and elsewhere.
    pub(super) paths: Vec<Vec<String>>,
    /// Methods of inherent `impl` blocks, with the path of the type.
    pub(super) methods: Vec<(Vec<String>, String)>,
    /// Names of the methods that the code calls.
    pub(super) calls: BTreeSet<String>,
}

/// What a name means in a module.
pub(super) enum Binding {
    /// An item that this module defines.
    Item,
    /// A child module.
    Module(usize),
    /// A name imported from this path.
    Import(Vec<String>),
}

/// Returns the root files of the libraries, binaries, examples and integration tests of the workspace, limited to
/// `packages` unless it is empty.
pub(super) fn crate_roots(packages: &[&str]) -> Result<Vec<PathBuf>> {
    let mut directories = entries(&workspace::root().join("crates"))?;
    directories.push(workspace::root().join("xtask"));
    let is_selected = |directory: &&PathBuf| {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        packages.is_empty() || packages.contains(&&*name)
    };
    let mut roots = Vec::new();
    for directory in directories.iter().filter(is_selected) {
        roots.extend(["src/lib.rs", "src/main.rs"].map(|file| directory.join(file)));
        for targets in ["examples", "tests"] {
            let targets = entries(&directory.join(targets)).unwrap_or_default();
            roots.extend(targets.iter().map(|target| target.join("main.rs")));
        }
    }
    roots.retain(|root| root.is_file());
    Ok(roots)
}

/// Returns the entries of a directory, sorted.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

// === impl ModuleTree ===

impl ModuleTree {
    /// Parses a crate from its root file.
    pub(super) fn parse(root: &Path) -> Result<Self> {
        let mut tree = Self { modules: Vec::new(), files: Vec::new() };
        let directory = root.parent().unwrap_or(root).to_path_buf();
        tree.add_file(root, &directory, None)?;
        Ok(tree)
    }

    /// Parses a file and its child modules, which are in `directory`; returns the index of its module.
    fn add_file(&mut self, file: &Path, directory: &Path, parent: Option<usize>) -> Result<usize> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.files.push(file.strip_prefix(workspace::root()).unwrap_or(file).to_path_buf());
        self.add_module(self.files.len() - 1, &parsed.items, directory, parent)
    }

    fn add_module(&mut self, file: usize, items: &[Item], directory: &Path, parent: Option<usize>) -> Result<usize> {
        let index = self.modules.len();
        let source = workspace::root().join(&self.files[file]);
        self.modules.push(Module { parent, file, ..Module::default() });
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(item) = item {
                let name = item.ident.to_string();
                let directory = directory.join(&name);
                let child = match &item.content {
                    Some((_, items)) => self.add_module(file, items, &directory, Some(index))?,
                    None => {
                        let stated = path_attribute(&item.attrs).map(|path| source.with_file_name(path));
                        let file = stated.unwrap_or_else(|| module_file(&directory));
                        self.add_file(&file, &directory, Some(index))?
                    }
                };
                self.modules[index].bindings.insert(name, Binding::Module(child));
                continue;
            }
            let module = &mut self.modules[index];
            if let Some(name) = defined_name(item) {
                module.bindings.insert(name, Binding::Item);
            }
            if let Item::Impl(item) = item {
                module.add_methods(item);
            }
            module.visit_item(item);
        }
        Ok(index)
    }
}

/// Returns `directory.rs` or `directory/mod.rs`.
fn module_file(directory: &Path) -> PathBuf {
    let file = directory.with_extension("rs");
    if file.is_file() { file } else { directory.join("mod.rs") }
}

/// Returns the value of `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Reports whether `#[cfg(…)]` requires `test`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || (condition.starts_with("all") && condition.contains("test"))
        }
        _ => false,
    })
}

// === impl Module ===

impl Module {
    /// Adds the leaves of a use declaration below `prefix`. A re-export binds the name without using it.
    fn add_use(&mut self, prefix: &[String], tree: &UseTree, is_reexport: bool) {
        let with = |name: String| [prefix, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.add_use(&with(path.ident.to_string()), &path.tree, is_reexport),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(prefix, tree, is_reexport)),
            UseTree::Name(name) if name.ident == "self" => {
                self.add_import(prefix.last().cloned().unwrap_or_default(), prefix.to_vec(), is_reexport);
            }
            UseTree::Name(name) => {
                self.add_import(name.ident.to_string(), with(name.ident.to_string()), is_reexport);
            }
            UseTree::Rename(rename) => {
                let is_self = rename.ident == "self";
                let path = if is_self { prefix.to_vec() } else { with(rename.ident.to_string()) };
                self.add_import(rename.rename.to_string(), path, is_reexport);
            }
            UseTree::Glob(_) => self.globs.push(prefix.to_vec()),
        }
    }

    fn add_import(&mut self, name: String, path: Vec<String>, is_reexport: bool) {
        if !is_reexport {
            self.paths.push(path.clone());
        }
        self.bindings.entry(name).or_insert(Binding::Import(path));
    }

    /// Adds the methods of an inherent `impl`.
    fn add_methods(&mut self, item: &ItemImpl) {
        let (None, Type::Path(path)) = (&item.trait_, &*item.self_ty) else { return };
        for member in &item.items {
            if let ImplItem::Fn(method) = member {
                self.methods.push((segments(&path.path), method.sig.ident.to_string()));
            }
        }
    }

    /// Adds the paths in the tokens of a macro call, which `syn` does not parse.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            if let TokenTree::Ident(ident) = &token {
                self.calls.insert(ident.to_string());
            }
            match token {
                TokenTree::Ident(ident) if !path.is_empty() && colons == 2 => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.paths.extend((!path.is_empty()).then(|| std::mem::take(&mut path)));
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.add_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.paths.extend((!path.is_empty()).then_some(path));
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&[], &item.tree, is_reexport);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let path_segments = segments(path);
        self.calls.extend(path_segments.last().cloned());
        self.paths.push(path_segments);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.calls.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}
