//! Boundaries that the compiler does not enforce by itself.

use std::path::Path;

use crate::command::{cargo, output};
use crate::source::{files, identifiers, text};
use crate::steps::Outcome;

/// The crate that may be unsafe and may call the C library.
const PLATFORM: &str = "crates/softclock-linux";

/// From the bottom up: a crate may depend on crates of the layers before its own.
const LAYERS: &[&[&str]] = &[
    &["softclock-core", "softclock-testing", "xtask"],
    &["softclock-wire"],
    &["softclock-linux", "softclock-net"],
    &["softclock", "softclock-sim"],
    &["softclock-http", "softclock-link"],
    &["softclock-cli"],
    &["softclock-bench"],
];

/// A workspace of its own, for nightly compilers.
const FUZZ: &str = "fuzz";

/// `unsafe` and `libc` occur only in the platform crate, which is what makes it reviewable.
pub(crate) fn unsafe_code() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for file in files() {
        if file.starts_with(PLATFORM) || file.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let source = text(&file).unwrap_or_default();
        let found = identifiers(&source).into_iter().filter_map(|(line, name)| {
            let forbidden = matches!(name, "unsafe" | "libc");
            forbidden.then(|| format!("{}:{line}: {name}", file.display()))
        });
        offences.extend(found);
    }
    verdict("unsafe and libc belong in softclock-linux", &offences)
}

/// No crate depends on one of its own layer or above, tests apart.
pub(crate) fn layers() -> Result<Outcome, String> {
    let mut offences = Vec::new();
    for name in crates() {
        let Some(layer) = layer_of(&name) else {
            offences.push(format!("{name} has no place among the layers"));
            continue;
        };
        let upwards = own_dependencies(&name)?
            .into_iter()
            .filter(|dependency| layer_of(dependency).is_none_or(|below| below >= layer))
            .map(|dependency| format!("{name} -> {dependency}"));
        offences.extend(upwards);
    }
    verdict("dependencies point downwards only", &offences)
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// The packages of the workspace, which are named like their directories.
fn crates() -> Vec<String> {
    let manifests = files()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && !file.starts_with(FUZZ));
    manifests
        .filter_map(|file| Some(file.parent()?.file_name()?.to_str()?.to_owned()))
        .collect()
}

/// The crates of this workspace that `name` depends on, whatever feature or target asks for them.
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
