//! `docs/configuration.md` against the program: it lists the options that a configuration file may set, and no others.

use std::collections::BTreeSet;

use crate::{run, softclock};

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// Options of the command line that a file cannot set.
const ONLY_FLAGS: [&str; 4] = ["check", "config", "help", "version"];

#[test]
fn the_page_lists_each_setting() {
    let mut settings = BTreeSet::from(["directory".to_owned()]);
    for command in ["serve", "proxy"] {
        let (_, help) = run(softclock().args([command, "--help"]));
        let names = help.lines().filter_map(|line| {
            // Descriptions are indented further than options.
            let is_option = line.starts_with("  -") || line.starts_with("      --");
            let (_, option) = line.split_once("--").filter(|_| is_option)?;
            let end = option.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            Some(option[..end.unwrap_or(option.len())].to_owned())
        });
        settings.extend(names.filter(|name| !ONLY_FLAGS.contains(&name.as_str())));
    }
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect();
    assert!(settings.len() > 50, "{settings:?}");
    assert_eq!(listed, settings);
}
