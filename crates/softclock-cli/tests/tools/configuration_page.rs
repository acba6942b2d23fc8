//! `docs/configuration.md` against the program: it lists the options that a configuration file may set, with their
//! defaults, and no others.

use std::collections::BTreeMap;

use crate::help::options;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// Options of the command line that a file cannot set.
const ONLY_FLAGS: [&str; 4] = ["check", "config", "help", "version"];

/// Settings that have no default if there is a file.
const NEEDED: [&str; 3] = ["directory", "listen", "upstream"];

/// The settings of the page, with their cells of defaults.
fn listed() -> BTreeMap<&'static str, &'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    cells
        .map(|cells| (cells[0].trim_end_matches('`'), cells[2]))
        .collect()
}

#[test]
fn the_page_lists_each_setting_with_its_default() {
    let options: Vec<_> = ["serve", "proxy"].into_iter().flat_map(options).collect();
    let settings = options
        .iter()
        .map(|option| (option.name.as_str(), option.default()));
    let mut settings: BTreeMap<_, _> = settings.collect();
    settings.retain(|name, _| !ONLY_FLAGS.contains(name));
    settings.extend(NEEDED.map(|name| (name, Some("needed"))));
    assert!(settings.len() > 50, "{settings:?}");
    let listed = listed();
    assert!(listed.keys().eq(settings.keys()), "{listed:?} {settings:?}");
    // The page has names as code, without dashes.
    let plain = |text: &str| text.replace('`', "").replace("--", "");
    for (name, default) in settings {
        let shown = listed[name];
        match default {
            Some(default) => assert_eq!(plain(shown), plain(default), "{name}"),
            // Words may say what holds without the setting.
            None => assert!(!shown.contains('`'), "{name}: {shown}"),
        }
    }
}
