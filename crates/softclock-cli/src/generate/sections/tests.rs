use std::ffi::OsString;
use std::fs;

use super::*;
use crate::cli::{Shown, definition, parse};

/// The example of a configuration file on a command's page.
fn example(command: &str) -> Option<&'static str> {
    let parts = of(command).iter().flat_map(|section| section.parts);
    parts.into_iter().find_map(|part| match part {
        Lines(lines) => Some(*lines),
        _ => None,
    })
}

fn is_configured(command: &clap::Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "config")
}

#[test]
fn every_page_tells_the_exit_status_and_of_its_configuration() {
    let program = definition();
    let commands = program.get_subcommands().filter(|c| !c.is_hide_set());
    for command in commands.chain([&program]) {
        let name = command.get_name();
        let sections = of(name);
        let has = |title| sections.iter().any(|section| section.title == title);
        assert!(has(EXIT_STATUS), "{name}");
        assert_eq!(has(CONFIGURATION), is_configured(command), "{name}");
    }
    for command in ["serve", "proxy"] {
        let titles: Vec<_> = of(command).iter().map(|section| section.title).collect();
        assert_eq!(titles, [CONFIGURATION, SIGNALS, EXIT_STATUS, FILES]);
    }
}

#[test]
fn examples_of_configuration_files_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("softclock.toml");
    let parsed = |command: &str, text: &str| {
        fs::write(&file, text).unwrap();
        let interfaces: &[&str] = match command {
            "pace" | "wan" => &["eth0", "eth1"],
            _ => &[],
        };
        let all = ["softclock", command, "--config", file.to_str().unwrap()];
        let all = all.iter().chain(interfaces).map(OsString::from);
        parse(all).map_err(|shown| match shown {
            Shown::Mistake(line) | Shown::BadFile(line) => line,
            Shown::Help(help) => help.to_string(),
        })
    };
    let program = definition();
    for command in program.get_subcommands().filter(|c| is_configured(c)) {
        let (name, text) = (command.get_name(), example(command.get_name()).unwrap());
        assert!(
            parsed(name, text).is_ok(),
            "{name}: {:?}",
            parsed(name, text)
        );
        for (more, part) in [
            ("colour = 1\n", "unknown setting 'colour'"),
            ("config = \"x\"\n", "unknown setting 'config'"),
            ("help = true\n", "unknown setting 'help'"),
            ("[serve]\n", "unknown setting 'serve'"),
        ] {
            let line = parsed(name, &format!("{text}{more}")).unwrap_err();
            let number = text.lines().count() + 1;
            let place = format!("{}:{number}: ", file.display());
            assert!(line.contains(&place) && line.contains(part), "{line}");
        }
    }
}

/// Options that the text names exist, in this command or in that whose page it is.
#[test]
fn options_that_are_named_exist() {
    let program = definition();
    for command in program.get_subcommands() {
        let parts = of(command.get_name())
            .iter()
            .flat_map(|section| section.parts);
        let texts = parts.flat_map(|part| match part {
            Text(text) | Lines(text) => [*text, ""],
            Item(word, text) => [*word, *text],
        });
        let words = texts.flat_map(|text| text.split([' ', ',', '.', ';', ':', '=', '\n']));
        for option in words.filter_map(|word| word.strip_prefix("--")) {
            let exists = |arg: &clap::Arg| arg.get_long() == Some(option);
            let is_known = option == "help" || command.get_arguments().any(exists);
            assert!(is_known, "--{option} in {}", command.get_name());
        }
    }
}
