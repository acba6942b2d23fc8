//! Boundaries that the compiler does not enforce by itself.

use std::collections::BTreeSet;
use std::path::Path;

use crate::command::{cargo, output};
use crate::imports::{Imports, arrows, circles, imports, round};
use crate::source::{files, identifiers, text};
use crate::steps::Outcome;

/// The crates that may be unsafe and may use `libc`: the platform's interface, and the one for C.
const UNSAFE: [&str; 2] = ["crates/softclock-linux", "crates/softclock-c"];

/// The attribute that the root of every other crate has.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Each crate with the crates of this workspace that it may depend on, which stand above it in this table.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("xtask", &[]),
    ("softclock-testing", &[]),
    ("softclock-core", &[]),
    ("softclock-wire", &["softclock-core"]),
    ("softclock-linux", &["softclock-core", "softclock-wire"]),
    ("softclock-net", &["softclock-core", "softclock-wire"]),
    (
        "softclock-script",
        &["softclock-core", "softclock-wire", "softclock-net"],
    ),
    (
        "softclock",
        &[
            "softclock-core",
            "softclock-wire",
            "softclock-linux",
            "softclock-net",
        ],
    ),
    (
        "softclock-link",
        &[
            "softclock-core",
            "softclock-wire",
            "softclock-linux",
            "softclock",
        ],
    ),
    ("softclock-model", &["softclock-core", "softclock-net"]),
    ("softclock-http", &["softclock"]),
    ("softclock-c", &["softclock"]),
    ("softclock-tokio", &["softclock-core", "softclock-linux"]),
    (
        "softclock-quinn",
        &["softclock-linux", "softclock", "softclock-tokio"],
    ),
    ("softclock-cli", &[ALL]),
    ("softclock-bench", &[ALL]),
];

/// Stands for all crates above in the table, but `xtask`.
const ALL: &str = "*";

/// Crates with their modules from the bottom up: each imports from those before it only. Files at the root of a crate
/// that are not named are beside the layers; folders all have a place.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "softclock",
        &[
            "embed",
            "runtime",
            "time",
            "blocking",
            "fs",
            "net",
            "descriptor",
            "signal",
            "futures_io",
            "hyper",
            "tokio_io",
        ],
    ),
    (
        "softclock-http",
        &[
            "syntax", "net", "observe", "site", "client", "proxy", "exchange", "server",
        ],
    ),
];

/// Files that import each other in a circle are one file to a reader: three can be understood together.
const MAX_CIRCLE: usize = 3;

/// Workspaces of their own: for nightly compilers, for an example, and for peers of experiments.
const APART: [&str; 3] = ["fuzz", "examples/webrtc", "crates/softclock-bench/peers"];

/// `unsafe` and `libc` occur only in two crates, so that the rest needs no such review. The compiler forbids
/// the other crates to use unsafe code that comes from macros.
pub(crate) fn unsafe_code() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for file in files() {
        let may = UNSAFE.iter().any(|place| file.starts_with(place));
        if may || file.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let source = text(&file).unwrap_or_default();
        let found = identifiers(&source).into_iter().filter_map(|(line, name)| {
            let forbidden = matches!(name, "unsafe" | "libc");
            forbidden.then(|| format!("{}:{line}: {name}", file.display()))
        });
        offences.extend(found);
        if is_root(&file) && !source.lines().any(|line| line == FORBID) {
            offences.push(format!("{}: lacks {FORBID}", file.display()));
        }
    }
    verdict(
        "unsafe and libc belong in softclock-linux and softclock-c",
        &offences,
    )
}

/// Whether the file is the root of a library or program.
fn is_root(file: &Path) -> bool {
    file.ends_with("src/lib.rs") || file.ends_with("src/main.rs")
}

/// Each crate depends only on those it may, tests apart.
pub(crate) fn crate_dependencies() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for name in crates() {
        let Some(place) = MAY_DEPEND.iter().position(|(own, _)| *own == name) else {
            offences.push(format!(
                "{name} has no place in MAY_DEPEND (xtask/src/boundaries.rs)"
            ));
            continue;
        };
        let forbidden = own_dependencies(&name)?
            .into_iter()
            .filter(|dependency| !may_depend(place, dependency))
            .map(|dependency| format!("{name} -> {dependency}"));
        offences.extend(forbidden);
    }
    verdict("dependencies of crates point downwards only", &offences)
}

/// Whether the crate at `place` in the table may depend on `other`.
fn may_depend(place: usize, other: &str) -> bool {
    let (above, (_, allowed)) = (&MAY_DEPEND[..place], MAY_DEPEND[place]);
    let is_above = above.iter().any(|(name, _)| *name == other);
    let is_allowed = allowed.contains(&other) || (allowed.contains(&ALL) && other != "xtask");
    is_above && is_allowed
}

/// Inside the crates whose layers are stated, imports lead from a layer to those below it.
pub(crate) fn module_layers() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for (name, layers) in LAYERS {
        let source = format!("crates/{name}/src/");
        for (file, others) in imports_of(&source) {
            let layer = match place(&source, &file, layers) {
                Place::Layer(layer) => layer,
                Place::Beside => continue,
                Place::None => {
                    offences.push(format!("{file} is in no layer (xtask/src/boundaries.rs)"));
                    continue;
                }
            };
            for (other, names) in others {
                if matches!(place(&source, &other, layers), Place::Layer(above) if above > layer) {
                    offences.push(format!("{file} -> {other}: {}", list(&names)));
                }
            }
        }
    }
    verdict("imports lead to lower layers only", &offences)
}

/// Where a file stands among the layers of its crate.
#[derive(Debug, PartialEq)]
enum Place {
    Layer(usize),
    Beside,
    None,
}

fn place(source: &str, file: &str, layers: &[&str]) -> Place {
    let file = file.strip_prefix(source).unwrap_or(file);
    let top = file.split_once('/').map(|(folder, _)| folder);
    let module = top.or_else(|| file.strip_suffix(".rs"));
    let layer = layers.iter().position(|layer| Some(*layer) == module);
    match (layer, top) {
        (Some(layer), _) => Place::Layer(layer),
        (None, Some(_)) => Place::None,
        (None, None) => Place::Beside,
    }
}

/// No more files than a reader can take in at once import each other in a circle.
pub(crate) fn import_circles() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for source in crates().iter().map(|name| source_of(name)) {
        let imports = imports_of(&source);
        let arrows = arrows(&imports);
        let large = circles(&arrows).into_iter();
        for circle in large.filter(|circle| circle.len() > MAX_CIRCLE) {
            let steps = round(&arrows, &circle);
            let steps = steps.windows(2).map(|step| {
                let names = imports
                    .get(&step[0])
                    .and_then(|others| others.get(&step[1]));
                let names = names.map(list).unwrap_or_default();
                format!("    {} takes {names} from", step[0])
            });
            let steps: Vec<String> = steps.collect();
            let first = circle.first().cloned().unwrap_or_default();
            offences.push(format!(
                "{} files, in a round:\n{}\n    {first}",
                circle.len(),
                steps.join("\n")
            ));
        }
    }
    let rule = "at most three files import each other in a circle (move what the lower file takes into a file \
                below both, or hand it down as an argument)";
    verdict(rule, &offences)
}

/// The imports of the crate whose files are in `source`: as a library, as a program, or as both.
fn imports_of(source: &str) -> Imports {
    let roots = ["lib.rs", "main.rs"].map(|root| format!("{source}{root}"));
    roots
        .iter()
        .flat_map(|root| imports(root, |file| text(Path::new(file))))
        .collect()
}

fn source_of(name: &str) -> String {
    match name {
        "xtask" => "xtask/src/".to_owned(),
        _ => format!("crates/{name}/src/"),
    }
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// The packages of the workspace, which are named like their directories.
fn crates() -> Vec<String> {
    let is_apart = |file: &Path| APART.iter().any(|place| file.starts_with(place));
    let manifests = files()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && !is_apart(file));
    manifests
        .filter_map(|file| Some(file.parent()?.file_name()?.to_str()?.to_owned()))
        .collect()
}

/// The crates of this workspace that `name` depends on, under any feature and on any target.
fn own_dependencies(name: &str) -> Result<Vec<String>, String> {
    let tree = cargo([
        "tree",
        "--package",
        name,
        "--edges",
        "normal,build",
        "--all-features",
        "--target",
        "all",
        "--depth",
        "1",
        "--prefix",
        "none",
    ]);
    let tree = output(tree)?;
    let packages = tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next());
    let own = packages.filter(|package| package.starts_with("softclock") || *package == "xtask");
    Ok(own.map(str::to_owned).collect())
}

/// The crate `name` is `no_std` at its root. A build for a target without std shows that its dependencies are.
pub(crate) fn declares_no_std(name: &str) -> Result<(), String> {
    let root = Path::new("crates").join(name).join("src/lib.rs");
    let root = text(&root).unwrap_or_default();
    if root.lines().any(|line| line == "#![no_std]") {
        Ok(())
    } else {
        Err(format!("{name} does not say #![no_std]"))
    }
}

/// The offences as a failure that begins with the rule they break.
pub(crate) fn verdict(rule: &str, offences: &[String]) -> Result<Outcome, String> {
    if offences.is_empty() {
        Ok(Outcome::Done)
    } else {
        let count = offences.len();
        Err(format!(
            "{rule}, broken {count} times:\n  {}",
            offences.join("\n  ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_itself_points_downwards() {
        for (place, (name, allowed)) in MAY_DEPEND.iter().enumerate() {
            for other in allowed.iter().filter(|other| **other != ALL) {
                assert!(may_depend(place, other), "{name} -> {other}");
            }
        }
    }

    #[test]
    fn a_file_has_the_place_of_its_folder() {
        let layers = ["low", "high"];
        let place = |file| place("crates/a/src/", file, &layers);
        assert_eq!(place("crates/a/src/high/x/y.rs"), Place::Layer(1));
        assert_eq!(place("crates/a/src/low.rs"), Place::Layer(0));
        assert_eq!(place("crates/a/src/lib.rs"), Place::Beside);
        assert_eq!(place("crates/a/src/other/low.rs"), Place::None);
    }
}
