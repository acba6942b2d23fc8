//! The modules of a file, with the names that each imports and mentions.

use std::collections::BTreeSet;

use crate::source::tokens;

/// The names of modules from the crate's root to an item, or the path to an item as it stands in code.
pub(super) type Names = Vec<String>;

/// A module as its text has it, without the parts that are compiled for tests only.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) path: Names,
    /// The modules declared in it, in this file or in files of their own.
    pub(super) children: BTreeSet<String>,
    pub(super) uses: Vec<Use>,
    /// The paths of two names or more in its code, `use` declarations apart.
    pub(super) mentions: BTreeSet<Names>,
    /// All names in its code, `use` declarations apart.
    pub(super) words: BTreeSet<String>,
}

/// One name that a `use` declaration brings into a module.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Names,
    /// Its name in the importing module: `*` for all names of a module.
    pub(super) alias: String,
    /// Whether it can be imported from here in turn.
    pub(super) public: bool,
}

/// The module at `path`, whose file contains `text`, and those that stand in the same file.
pub(super) fn parse(path: Names, text: &str) -> Vec<Module> {
    let mut parser = Parser {
        tokens: &tokens(text),
        modules: Vec::new(),
    };
    parser.module(path);
    parser.modules
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    modules: Vec<Module>,
}

impl Parser<'_> {
    /// Reads to the end of the text, or to the brace that closes the module.
    fn module(&mut self, path: Names) {
        let mut module = Module {
            path,
            ..Module::default()
        };
        let mut public = false;
        let mut depth = 0;
        loop {
            match self.tokens {
                [] => break,
                ["#", "[", ..] if self.is_for_tests() => self.skip_item(),
                ["mod", name, "{", ..] => {
                    self.skip(3);
                    self.module(child(&module.path, name));
                    module.children.insert((*name).to_owned());
                }
                ["mod", name, ";", ..] => {
                    self.skip(3);
                    module.children.insert((*name).to_owned());
                }
                ["use", ..] => {
                    self.skip(1);
                    self.use_tree(&[], public, &mut module.uses);
                    public = false;
                }
                ["pub", "(", ..] => {
                    public = true;
                    self.skip(1);
                    self.skip_group();
                }
                ["pub", ..] => {
                    public = true;
                    self.skip(1);
                }
                [name, ..] if is_name(name) => {
                    public = false;
                    self.mention(&mut module);
                }
                ["{", ..] => {
                    depth += 1;
                    self.skip(1);
                }
                ["}", ..] => {
                    self.skip(1);
                    if depth == 0 {
                        break;
                    }
                    depth -= 1;
                }
                _ => self.skip(1),
            }
        }
        self.modules.push(module);
    }

    /// The attribute here is a `#[cfg(…)]` without which there is no item but in tests.
    fn is_for_tests(&self) -> bool {
        let attribute = self.tokens.iter().take_while(|token| **token != "]");
        let names: Vec<&str> = attribute.copied().filter(|token| is_name(token)).collect();
        names.first() == Some(&"cfg")
            && names.contains(&"test")
            && !names.contains(&"any")
            && !names.contains(&"not")
    }

    /// Skips attributes and the item behind them, which ends with a semicolon or a block.
    fn skip_item(&mut self) {
        while let ["#", "[", ..] = self.tokens {
            self.skip(1);
            self.skip_group();
        }
        loop {
            match self.tokens {
                [] | ["}", ..] => return,
                [";", ..] => return self.skip(1),
                ["{", ..] => return self.skip_group(),
                ["(" | "[", ..] => self.skip_group(),
                _ => self.skip(1),
            }
        }
    }

    /// Skips from the bracket at this position to the one that closes it.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while let [token, ..] = self.tokens {
            self.skip(1);
            match *token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads the tree of a `use` declaration, or a branch of one that stands behind `prefix`.
    fn use_tree(&mut self, prefix: &[String], public: bool, uses: &mut Vec<Use>) {
        let mut path = prefix.to_vec();
        let mut alias = None;
        loop {
            match self.tokens {
                ["{", ..] => {
                    self.skip(1);
                    while !matches!(self.tokens, [] | ["}", ..]) {
                        self.use_tree(&path, public, uses);
                        if let [",", ..] = self.tokens {
                            self.skip(1);
                        }
                    }
                    self.skip(1);
                    return;
                }
                ["*", ..] => {
                    alias = Some("*".to_owned());
                    self.skip(1);
                }
                ["as", name, ..] => {
                    alias = Some((*name).to_owned());
                    self.skip(2);
                }
                // The module that the braces are behind.
                ["self", ..] if !path.is_empty() => self.skip(1),
                [name, ..] if is_name(name) => {
                    path.push((*name).to_owned());
                    self.skip(1);
                }
                [":", ..] => self.skip(1),
                _ => break,
            }
        }
        if let Some(alias) = alias.or_else(|| path.last().cloned()) {
            uses.push(Use {
                path,
                alias,
                public,
            });
        }
    }

    /// Reads a name, and the rest of the path if it begins one.
    fn mention(&mut self, module: &mut Module) {
        let mut path = Vec::new();
        while let [name, rest @ ..] = self.tokens
            && is_name(name)
        {
            module.words.insert((*name).to_owned());
            path.push((*name).to_owned());
            self.tokens = rest;
            match rest {
                [":", ":", next, ..] if is_name(next) => self.skip(2),
                _ => break,
            }
        }
        if path.len() > 1 {
            module.mentions.insert(path);
        }
    }

    fn skip(&mut self, count: usize) {
        self.tokens = self.tokens.get(count..).unwrap_or_default();
    }
}

/// The path of the module `name` in the module at `path`.
pub(super) fn child(path: &[String], name: &str) -> Names {
    let mut path = path.to_vec();
    path.push(name.to_owned());
    path
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> Module {
        parse(Vec::new(), text)
            .pop()
            .expect("the module itself is last")
    }

    fn uses(text: &str) -> Vec<(String, String)> {
        let uses = root(text).uses.into_iter();
        uses.map(|one| (one.path.join("::"), one.alias)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(path, alias): &(&str, &str)| ((*path).to_owned(), (*alias).to_owned());
        expected.iter().map(own).collect()
    }

    #[test]
    fn each_leaf_of_a_use_tree_is_an_import() {
        assert_eq!(
            uses("use crate::a::{self, b::C, d as e, f::*};"),
            pairs(&[
                ("crate::a", "a"),
                ("crate::a::b::C", "C"),
                ("crate::a::d", "e"),
                ("crate::a::f", "*"),
            ])
        );
        assert_eq!(
            uses("fn f() { use self::a::B; }"),
            pairs(&[("self::a::B", "B")])
        );
    }

    #[test]
    fn a_reexport_is_told_by_its_visibility() {
        let module = root("pub use a::A; pub(in crate::x) use b::B; pub fn f() {} use c::C;");
        let public: Vec<bool> = module.uses.iter().map(|one| one.public).collect();
        assert_eq!(public, [true, true, false]);
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        let module = root(
            "#[cfg(test)] use a::A; #[cfg(test)] #[path = \"x\"] mod tests; \
             #[cfg(all(test, unix))] fn f<T, U>(t: [T; 2]) { b::c() } \
             #[cfg(test)] mod inline { use d::D; } \
             #[cfg(not(test))] use e::E; #[cfg(any(test, unix))] mod g;",
        );
        assert_eq!(module.uses.len(), 1);
        assert!(module.mentions.is_empty(), "{module:?}");
        assert_eq!(module.children, BTreeSet::from(["g".to_owned()]));
    }

    #[test]
    fn modules_in_a_file_are_modules_of_their_own() {
        let modules = parse(
            child(&[], "a"),
            "mod b { fn f() { super::g() } } fn g() { b::f() }",
        );
        let paths: Vec<String> = modules.iter().map(|m| m.path.join("::")).collect();
        assert_eq!(paths, ["a::b", "a"]);
        assert!(modules[1].mentions.contains(&child(&["b".to_owned()], "f")));
    }
}
