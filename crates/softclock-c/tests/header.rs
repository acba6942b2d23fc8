//! The header declares the functions and structures that the library has, with the same types, and the values of its
//! enumerations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_header_and_the_library_agree_on_functions() {
    let declared: BTreeSet<String> = statements(&header())
        .filter(|text| text.contains('(') && !text.contains('{'))
        .collect();
    let defined: BTreeSet<String> = sources().flat_map(|source| functions(&source)).collect();
    assert!(defined.len() > 25, "{defined:#?}");
    assert_eq!(declared, defined);
}

#[test]
fn the_header_and_the_library_agree_on_structures() {
    let header = header();
    let declared: BTreeMap<String, String> = between(&header, "typedef struct ", "}")
        .filter_map(|text| text.split_once('{'))
        .filter(|(name, _)| !name.contains(';')) // a type without fields, and the text behind it
        .map(|(name, fields)| (squeezed(name), squeezed(fields)))
        .collect();
    let defined: BTreeMap<String, String> = sources()
        .flat_map(|source| structures(&source))
        .filter(|(_, fields)| !fields.contains("_opaque"))
        .collect();
    assert_eq!(defined.len(), 4, "{defined:#?}");
    assert_eq!(declared, defined);
}

#[test]
fn the_header_and_the_library_agree_on_constants() {
    let header = header();
    let declared = between(&header, "enum softclock_state {", "}").next();
    let declared = declared.expect("the enum of trigger states").split(',');
    // None has a value of its own, so that their places are their values.
    let declared: Vec<String> = declared.map(squeezed).collect();
    let source = sources().find(|source| source.contains("const STATES"));
    let source = source.expect("the table of trigger states");
    let table = between(&source, "const STATES: [TriggerState; 7] = [", "]").next();
    let table = table.expect("the table of trigger states");
    let defined: Vec<String> = between(table, "TriggerState::", ",")
        .map(constant)
        .collect();
    assert_eq!(defined.len(), 7, "{defined:#?}");
    assert_eq!(declared, defined);

    let rough = between(&source, "const ROUGH: u32 = ", ";").next();
    let macros = fs::read_to_string(path()).unwrap();
    let declared = between(&macros, "#define SOFTCLOCK_ROUGH ", "u\n").next();
    assert!(rough.is_some() && rough == declared, "{declared:?}");
}

/// `SystemCall` as `SOFTCLOCK_SYSTEM_CALL`.
fn constant(name: &str) -> String {
    let letters = name.chars().flat_map(|letter| {
        let gap = letter.is_uppercase().then_some('_');
        gap.into_iter().chain(letter.to_uppercase())
    });
    format!("SOFTCLOCK{}", letters.collect::<String>())
}

/// The header without comments and lines of the preprocessor.
fn header() -> String {
    let mut text = fs::read_to_string(path()).unwrap();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").expect("comments end") + 2;
        text.replace_range(start..end, "");
    }
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<&str> = lines.filter(|line| *line != "extern \"C\" {").collect();
    lines.join("\n")
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/softclock.h")
}

fn statements(text: &str) -> impl Iterator<Item = String> {
    text.split(';').map(squeezed)
}

fn sources() -> impl Iterator<Item = String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
}

/// The exported functions of a source file as declarations in C.
fn functions(source: &str) -> Vec<String> {
    let found = between(source, "extern \"C\" fn ", "{");
    let declarations = found.map(|text| {
        let (name, rest) = text.split_once('(').expect("parameters");
        let (parameters, result) = rest.split_once(") -> ").expect("a result");
        let parameters = parameters.split(',').map(squeezed);
        let parameters = parameters.filter(|parameter| !parameter.is_empty());
        let parameters: Vec<_> = parameters.map(|parameter| variable(&parameter)).collect();
        let parameters = match parameters.is_empty() {
            true => "void".to_owned(),
            false => parameters.join(", "),
        };
        squeezed(&format!("{}({parameters})", declared(name, result.trim())))
    });
    declarations.collect()
}

/// The structures of a source file with their fields in C.
fn structures(source: &str) -> Vec<(String, String)> {
    let found = between(source, "#[repr(C)]\npub struct ", "}");
    let fields_of = |text: &str| {
        let lines = text.lines().map(str::trim);
        let fields = lines.filter(|line| !line.is_empty() && !line.starts_with("///"));
        let fields =
            fields.map(|line| variable(line.trim_end_matches(',').trim_start_matches("pub ")));
        fields.map(|field| format!("{field}; ")).collect::<String>()
    };
    found
        .filter_map(|text| text.split_once('{'))
        .map(|(name, fields)| (squeezed(name), squeezed(&fields_of(fields))))
        .collect()
}

/// `name: *mut T` as `T *name`.
fn variable(text: &str) -> String {
    let (name, kind) = text.split_once(": ").expect("a type");
    declared(name, kind)
}

fn declared(name: &str, kind: &str) -> String {
    if let Some(target) = kind.strip_prefix("*mut ") {
        return declared(&format!("*{name}"), target);
    }
    if let Some(target) = kind.strip_prefix("*const ") {
        return format!("const {}", declared(&format!("*{name}"), target));
    }
    let kind = match kind {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "f64" => "double",
        own => own,
    };
    format!("{kind} {name}")
}

fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(start).skip(1);
    parts.map(move |part| part.split(end).next().unwrap_or_default())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
