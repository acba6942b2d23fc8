//! Examples in the docs.

use std::path::{Path, PathBuf};

use crate::boundaries::verdict;
use crate::source::{files, text, tokens};
use crate::steps::Outcome;

/// The libraries whose docs programmers read. Their tests compile the examples.
const LIBRARIES: [&str; 9] = [
    "softclock",
    "softclock-core",
    "softclock-http",
    "softclock-link",
    "softclock-linux",
    "softclock-net",
    "softclock-quinn",
    "softclock-tokio",
    "softclock-wire",
];

/// The docs of each public module have an example: those of the module, of one of its items, or of a module below it.
pub(crate) fn in_docs() -> Result<Outcome, String> {
    let files = files();
    let roots = LIBRARIES.map(|library| PathBuf::from(format!("crates/{library}/src/lib.rs")));
    let mut offences = Vec::new();
    let mut modules = Vec::from(roots);
    while let Some(module) = modules.pop() {
        let source = text(&module).ok_or_else(|| format!("cannot read {}", module.display()))?;
        let folder = folder(&module);
        let mut own = files.iter().filter(|file| file.starts_with(&folder));
        let is_below = |file: &PathBuf| text(file).is_some_and(|source| has_example(&source));
        if !has_example(&source) && !own.any(is_below) {
            offences.push(module.display().to_string());
        }
        let names = public_modules(&source);
        modules.extend(names.filter_map(|name| {
            let places = [format!("{name}.rs"), format!("{name}/mod.rs")];
            let places = places.map(|place| folder.join(place));
            places.into_iter().find(|place| files.contains(place))
        }));
    }
    verdict("an example in the docs of each public module", &offences)
}

/// The folder with the modules below a module.
fn folder(module: &Path) -> PathBuf {
    match module.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "mod.rs") => module.parent().unwrap_or(module).to_owned(),
        _ => module.with_extension(""),
    }
}

/// The names after `pub mod` in the source of a module, those of modules in the same file included.
fn public_modules(source: &str) -> impl Iterator<Item = String> {
    let tokens = tokens(source);
    let names = tokens.windows(3).filter_map(|window| match window {
        ["pub", "mod", name] => Some((*name).to_owned()),
        _ => None,
    });
    names.collect::<Vec<_>>().into_iter()
}

/// Whether the docs in this source have a block of code that is compiled.
fn has_example(source: &str) -> bool {
    let docs = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//! ").or(line.strip_prefix("/// "))
    });
    let fences = docs.filter_map(|line| line.trim_start().strip_prefix("```"));
    // Every second one closes a block.
    let mut languages = fences.step_by(2);
    languages.any(|language| matches!(language, "" | "rust" | "no_run" | "should_panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_modules_are_found_in_their_folders() {
        let source = "// pub mod a;\nmod b;\npub mod c;\n#[cfg(test)]\npub mod d;";
        assert_eq!(public_modules(source).collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(folder(Path::new("x/src/lib.rs")), Path::new("x/src"));
        assert_eq!(folder(Path::new("x/src/c/mod.rs")), Path::new("x/src/c"));
        assert_eq!(folder(Path::new("x/src/c.rs")), Path::new("x/src/c"));
    }

    #[test]
    fn an_example_is_code_in_docs() {
        let text = "/// ```text\n/// a b\n/// ```\n";
        assert!(!has_example(text));
        assert!(has_example(&format!(
            "{text}    /// ```\n    /// code();\n    /// ```"
        )));
        assert!(has_example("//! ```no_run\n//! code();\n//! ```"));
        assert!(!has_example("// ```\n// code();\n// ```"));
    }
}
