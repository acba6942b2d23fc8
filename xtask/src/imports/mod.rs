//! Which file of a crate imports from which: `use` declarations and paths in code, tests left out.
//!
//! A name that a module re-exports is imported from the file that defines it, and re-exporting is no import. Macros are
//! not expanded, and a `use` of all names of a module is an import from that module's own file.

mod circles;
mod syntax;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use circles::{Arrows, circles, round};
use syntax::{Module, Names, Use, child, parse};

/// Each file's imports: the file that defines them, and their names.
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The imports of the crate whose root module is the file `root`; `text` reads the file of a given name, if there is
/// one.
pub(crate) fn imports(root: &str, text: impl Fn(&str) -> Option<String>) -> Imports {
    let tree = Tree::read(root, text);
    let mut imports = Imports::new();
    for (module, file) in tree.modules.values() {
        let names = imports.entry(file.clone()).or_default();
        for target in tree.targets(module) {
            if let Some((other, name)) = tree.definition(&target)
                && other != *file
            {
                names.entry(other).or_default().insert(name);
            }
        }
    }
    imports
}

/// The arrows from file to file. The names that a module's file defines for the files in its folder are their common
/// vocabulary and draws none: a parent and its children are read together.
pub(crate) fn arrows(imports: &Imports) -> Arrows<String> {
    let arrow = |(file, others): (&String, &BTreeMap<String, _>)| {
        let others = others
            .keys()
            .filter(|other| !file.starts_with(&folder(other)));
        (file.clone(), others.cloned().collect())
    };
    imports.iter().map(arrow).collect()
}

/// Where the children of the module in `file` are, up to and with the slash.
fn folder(file: &str) -> String {
    let directory = file.rfind('/').map_or(0, |slash| slash + 1);
    match &file[directory..] {
        "lib.rs" | "main.rs" | "mod.rs" => file[..directory].to_owned(),
        _ => format!("{}/", file.trim_end_matches(".rs")),
    }
}

/// The modules of a crate, each with its file.
struct Tree {
    modules: BTreeMap<Names, (Module, String)>,
}

/// The target of a path.
enum Target {
    Module(Names),
    Item(Names, String),
}

/// A chain of re-exports is no longer.
const MAX_HOPS: usize = 16;

impl Tree {
    fn read(root: &str, text: impl Fn(&str) -> Option<String>) -> Self {
        let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut modules = BTreeMap::new();
        let mut open = vec![Names::new()];
        while let Some(path) = open.pop() {
            let places = match path.join("/") {
                none if none.is_empty() => vec![root.to_owned()],
                name => vec![
                    format!("{directory}/{name}.rs"),
                    format!("{directory}/{name}/mod.rs"),
                ],
            };
            let found = places
                .into_iter()
                .find_map(|file| Some((text(&file)?, file)));
            let Some((text, file)) = found else {
                continue;
            };
            for module in parse(path, &text) {
                open.extend(module.children.iter().map(|name| child(&module.path, name)));
                modules.insert(module.path.clone(), (module, file.clone()));
            }
            open.retain(|path| !modules.contains_key(path));
        }
        Self { modules }
    }

    /// The imports of `module` from anywhere in the crate.
    fn targets(&self, module: &Module) -> Vec<Target> {
        let is_head = |name: &str| module.mentions.iter().any(|path| path[0] == name);
        let imported = module.uses.iter().filter_map(|one| {
            let used = !one.public || module.words.contains(&one.alias);
            let target = self.resolve(&module.path, &one.path, MAX_HOPS)?;
            // The paths through an imported module name the imported items.
            let through = matches!(target, Target::Module(_)) && is_head(&one.alias);
            (used && !through).then_some(target)
        });
        let mentioned = module.mentions.iter().filter_map(|path| {
            let target = self.resolve(&module.path, path, MAX_HOPS);
            target.filter(|target| matches!(target, Target::Item(..)))
        });
        imported.chain(mentioned).collect()
    }

    /// Follows `path` from the module `here`; `None` if it leads out of the crate, or to an item of `here`.
    fn resolve(&self, here: &[String], path: &[String], hops: usize) -> Option<Target> {
        let (head, mut rest) = path.split_first()?;
        let mut at = match head.as_str() {
            "crate" => Names::new(),
            "self" => here.to_vec(),
            "super" => here.split_last()?.1.to_vec(),
            _ => {
                return self
                    .item(here, path, hops)
                    .filter(|_| self.knows(here, head));
            }
        };
        while let Some(("super", behind)) = rest.split_first().map(|(name, r)| (name.as_str(), r)) {
            at.pop();
            rest = behind;
        }
        self.item(&at, rest, hops)
    }

    /// Whether `name` is a module or an import of the module at `path`.
    fn knows(&self, path: &[String], name: &str) -> bool {
        let Some((module, _)) = self.modules.get(path) else {
            return false;
        };
        module.children.contains(name) || imported(module, name).is_some()
    }

    /// Follows `path` down from the module `at`.
    fn item(&self, at: &[String], path: &[String], hops: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else {
            return Some(Target::Module(at.to_vec()));
        };
        let (module, _) = self.modules.get(at)?;
        if module.children.contains(name) && self.modules.contains_key(&child(at, name)) {
            return self.item(&child(at, name), rest, hops);
        }
        let Some(import) = imported(module, name) else {
            return Some(Target::Item(at.to_vec(), name.clone()));
        };
        let hops = hops.checked_sub(1)?;
        match self.resolve(at, &import.path, hops)? {
            Target::Module(module) => self.item(&module, rest, hops),
            item => Some(item),
        }
    }

    /// The file of the imported item, and the item's name.
    fn definition(&self, target: &Target) -> Option<(String, String)> {
        let (module, name) = match target {
            Target::Module(path) => (path, path.last().map_or("crate", String::as_str)),
            Target::Item(path, name) => (path, name.as_str()),
        };
        let (_, file) = self.modules.get(module)?;
        Some((file.clone(), name.to_owned()))
    }
}

fn imported<'a>(module: &'a Module, name: &str) -> Option<&'a Use> {
    module.uses.iter().find(|one| one.alias == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows of a crate, as "file -> file: names" without directory and ending.
    fn drawn(files: &[(&str, &str)]) -> Vec<String> {
        let text = |name: &str| {
            let file = files
                .iter()
                .find(|(file, _)| format!("src/{file}.rs") == name);
            file.map(|(_, text)| (*text).to_owned())
        };
        let short = |file: &str| file.replace("src/", "").replace(".rs", "");
        let mut drawn = Vec::new();
        for (file, others) in imports("src/lib.rs", text) {
            for (other, names) in others {
                let names: Vec<String> = names.into_iter().collect();
                drawn.push(format!(
                    "{} -> {}: {}",
                    short(&file),
                    short(&other),
                    names.join(" ")
                ));
            }
        }
        drawn
    }

    #[test]
    fn imports_lead_to_the_file_that_defines() {
        let files = [
            (
                "lib",
                "mod a; mod b; pub use a::inner::Thing; pub use core::Other;",
            ),
            (
                "a/mod",
                "pub(crate) mod inner; pub(crate) use inner::{Thing, Way as Path};",
            ),
            ("a/inner", "pub struct Thing; pub struct Way;"),
            (
                "b",
                "use crate::{Thing, Other}; use crate::a::Path; use std::fmt;",
            ),
        ];
        assert_eq!(drawn(&files), ["b -> a/inner: Thing Way"]);
    }

    #[test]
    fn a_module_that_uses_what_it_reexports_imports_it() {
        let files = [
            ("lib", "mod a; mod b; pub use a::A; use b::B; fn f(_: A) {}"),
            ("a", "pub struct A;"),
            ("b", "pub struct B; fn f() { super::g() }"),
        ];
        assert_eq!(drawn(&files), ["b -> lib: g", "lib -> a: A", "lib -> b: B"]);
    }

    #[test]
    fn paths_in_code_are_imports_too() {
        let files = [
            (
                "lib",
                "mod a; mod b; mod c { pub fn f() { super::b::g() } }",
            ),
            (
                "a",
                "use crate::b; fn f() { b::g(); b::deep::h(); crate::c::f(); std::mem::drop(1) }",
            ),
            ("b/mod", "pub mod deep; pub fn g() {}"),
            ("b/deep", "use super::super::a; pub fn h() { if a { } }"),
        ];
        let expected = [
            "a -> b/deep: h",
            "a -> b/mod: g",
            "a -> lib: f",
            "b/deep -> a: a",
            "lib -> b/mod: g",
        ];
        assert_eq!(drawn(&files), expected);
    }

    #[test]
    fn tests_import_nothing() {
        let files = [
            ("lib", "mod a; #[cfg(test)] mod tests; fn f() {}"),
            ("a", "#[cfg(test)] mod tests { use crate::f; }"),
            ("tests", "use crate::a::A;"),
        ];
        assert!(drawn(&files).is_empty());
    }

    #[test]
    fn what_children_take_from_their_parent_draws_no_arrow() {
        let files = [
            ("src/lib.rs", "mod a; mod c; mod d; fn f() { a::b::h() }"),
            (
                "src/a/mod.rs",
                "pub mod b; pub struct A; fn g() { b::h(); crate::c::i() }",
            ),
            ("src/a/b.rs", "use super::A; use crate::f; pub fn h() {}"),
            ("src/c.rs", "mod e; pub fn i() { crate::a::b::h(); e::j() }"),
            ("src/c/e.rs", "pub fn j() { super::i() }"),
            ("src/d.rs", "pub fn k() { crate::f() }"),
        ];
        let text = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name);
            file.map(|(_, text)| (*text).to_owned())
        };
        let arrows = arrows(&imports("src/lib.rs", text));
        let from = |file: &str| arrows[file].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(from("src/lib.rs"), ["src/a/b.rs"]);
        assert_eq!(from("src/a/mod.rs"), ["src/a/b.rs", "src/c.rs"]);
        assert!(from("src/a/b.rs").is_empty());
        assert_eq!(from("src/c.rs"), ["src/a/b.rs", "src/c/e.rs"]);
        assert!(from("src/c/e.rs").is_empty());
        assert!(from("src/d.rs").is_empty());
    }

    #[test]
    fn imports_in_a_ring_end() {
        let files = [
            ("lib", "mod a; mod b;"),
            ("a", "pub use crate::b::X;"),
            ("b", "pub use crate::a::X;"),
        ];
        assert!(drawn(&files).is_empty());
    }
}
