//! `docs/limits.md` against the program: its options, their defaults, and the names of limits in the metrics.

use std::collections::{BTreeMap, BTreeSet};

use crate::{run, softclock};

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// Options with their defaults, if the help names one, under the `headings` of a command's help.
fn options(command: &str, headings: &[&str]) -> BTreeMap<String, Option<String>> {
    let (_, help) = run(softclock().args([command, "--help"]));
    let mut options = BTreeMap::new();
    let (mut is_wanted, mut option) = (false, String::new());
    for line in help.lines() {
        let text = line.trim();
        if !line.starts_with(' ') && text.ends_with(':') {
            is_wanted = headings.contains(&text.trim_end_matches(':'));
        } else if is_wanted && line.starts_with(OPTION) {
            option = text.split([' ', '=']).next().unwrap_or_default().to_owned();
            options.insert(option.clone(), None);
        } else if is_wanted && let Some(default) = text.strip_prefix("[default: ") {
            let default = default.trim_end_matches(']').to_owned();
            options.insert(option.clone(), Some(default));
        }
    }
    options
}

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
        let all = options(command, &["Limits", "Upstreams"]);
        assert!(all.len() >= 10, "{command}: {all:?}");
        for (option, default) in all {
            if NO_LIMITS.contains(&option.as_str()) {
                continue;
            }
            let shown = on_page.get(option.as_str());
            let shown = shown.unwrap_or_else(|| panic!("{option} of {command} is missing"));
            // Defaults in words depend on the machine.
            let is_number = |default: &String| default.starts_with(|c: char| c.is_ascii_digit());
            if let Some(default) = default.filter(is_number) {
                let number = shown.replace(' ', "");
                let number = number.split(|c: char| !c.is_ascii_digit()).next();
                assert_eq!(number, Some(default.as_str()), "{option} of {command}");
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

/// How the help indents options, and not the text that may begin with one.
const OPTION: &str = "      --";

/// Options of these headings that limit nothing.
const NO_LIMITS: [&str; 3] = ["--upstream", "--rewrite-host", "--resolve"];
