//! Summarises the changes of a reload for the log.

use super::program::Program;

/// Formats one line: the file that was read, the number of addresses, and the changed settings, by their names or the
/// headings of their groups in the help. Settings that change at the next start only are left out.
pub(super) fn summary(
    [old, new]: [&Program; 2],
    has_new_certificate: bool,
    addresses: usize,
) -> String {
    let file = match &new.server().config {
        Some(file) => format!(" {}", file.display()),
        None => String::new(),
    };
    let noun = match addresses {
        1 => "address",
        _ => "addresses",
    };
    let changed = match &*changed(old, new, has_new_certificate) {
        [] => "no setting has changed".to_owned(),
        names => format!("changed: {}", names.join(", ")),
    };
    format!("reloaded{file}: {addresses} {noun}; {changed}")
}

fn changed(old: &Program, new: &Program, has_new_certificate: bool) -> Vec<&'static str> {
    let served = match (old, new) {
        (Program::Site(old), Program::Site(new)) => vec![
            ("directory", old.directory != new.directory),
            ("index", old.index != new.index),
            ("content", old.content != new.content),
        ],
        (Program::Proxy(old), Program::Proxy(new)) => {
            vec![("upstreams", old.upstreams != new.upstreams)]
        }
        _ => Vec::new(),
    };
    let (old, new) = (old.server(), new.server());
    let common = [
        ("listen", old.listen != new.listen),
        ("certificate", has_new_certificate),
        ("pacing", old.pace != new.pace),
        ("operation", old.operation != new.operation),
        ("limits", old.limits != new.limits),
        ("drain", old.drain != new.drain),
        ("log level", old.level() != new.level()),
    ];
    let all = served.into_iter().chain(common);
    all.filter(|(_, has_changed)| *has_changed)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::parse;

    fn program(command: &str, options: &str) -> Program {
        let options = options.split_whitespace();
        let all = ["softclock", command].into_iter().chain(options);
        let command = parse(all.map(OsString::from)).ok();
        command.and_then(Program::of).expect("a server's options")
    }

    #[test]
    fn changed_settings_are_named() {
        for (command, old, new, expected) in [
            ("serve", "", "", "no setting has changed"),
            ("serve", "", "--threads=2", "no setting has changed"),
            ("serve", "", "/srv --index=x", "changed: directory, index"),
            ("serve", "--listen=:1", "-v", "changed: listen, log level"),
            (
                "serve",
                "--pace=1mbit --metrics=:9",
                "/srv --listing",
                "changed: directory, content, pacing, operation",
            ),
            (
                "proxy",
                "--upstream=http://a",
                "--upstream=http://b --max-line=300 --drain=1",
                "changed: upstreams, limits, drain",
            ),
        ] {
            let [old, new] = [old, new].map(|options| program(command, options));
            let line = summary([&old, &new], false, 2);
            assert_eq!(line, format!("reloaded: 2 addresses; {expected}"));
        }
    }

    #[test]
    fn a_certificate_is_named_and_one_address_is_one() {
        let site = program("serve", "");
        let line = summary([&site, &site], true, 1);
        assert_eq!(line, "reloaded: 1 address; changed: certificate");
    }
}
