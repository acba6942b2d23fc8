//! `docs/limits.md` against the program: its options, their defaults, and the names of limits in the metrics.

use std::collections::{BTreeMap, BTreeSet};

use crate::help::options;
use crate::{run, softclock};

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// The cells of the page's tables, a row each, without the lines that head them.
fn rows() -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect());
    let is_head = |row: &Vec<&str>| row[0] == "Limit" || row[0].starts_with("--");
    cells.filter(|row| !is_head(row)).collect()
}

/// The code spans in a cell.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_limiting_option_is_on_the_page_with_its_default() {
    let rows = rows();
    let on_page: BTreeMap<&str, &str> = (rows.iter())
        .flat_map(|row| code(row[1]).map(|option| (option, row[2])))
        .collect();
    for command in ["serve", "proxy"] {
        let mut all = options(command);
        all.retain(|option| ["Limits", "Upstreams"].contains(&option.heading.as_str()));
        assert!(all.len() >= 10, "{command}");
        for option in all {
            let name = format!("--{}", option.name);
            if NO_LIMITS.contains(&name.as_str()) {
                continue;
            }
            let shown = on_page.get(name.as_str());
            let shown = shown.unwrap_or_else(|| panic!("{name} of {command} is missing"));
            // Defaults in words depend on the machine.
            let is_number = |default: &&str| default.starts_with(|c: char| c.is_ascii_digit());
            if let Some(default) = option.default().filter(is_number) {
                let number = shown.replace(' ', "");
                let number = number.split(|c: char| !c.is_ascii_digit()).next();
                assert_eq!(number, Some(default), "{name} of {command}");
            }
        }
    }
}

#[test]
fn every_option_on_the_page_exists() {
    let (_, serve) = run(softclock().args(["serve", "--help"]));
    let (_, proxy) = run(softclock().args(["proxy", "--help"]));
    for option in rows().iter().flat_map(|row| code(row[1])) {
        let defines = |line: &str| line.split_whitespace().next() == Some(option);
        assert!(serve.lines().chain(proxy.lines()).any(defines), "{option}");
    }
}

#[test]
fn every_limit_in_the_metrics_is_on_the_page() {
    let rows = rows();
    let on_page: BTreeSet<&str> = rows.iter().flat_map(|row| code(row[5])).collect();
    let counted: BTreeSet<&str> = softclock_http::limit_names().collect();
    assert_eq!(on_page, counted);
}

/// Options of these headings that limit nothing.
const NO_LIMITS: [&str; 3] = ["--upstream", "--rewrite-host", "--resolve"];
