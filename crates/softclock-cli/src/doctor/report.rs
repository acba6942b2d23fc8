//! Formats the findings as aligned lines or as JSON.

use std::io::{self, IsTerminal};

use serde_json::json;

use super::check::{Check, Group, Status};

/// All findings.
pub(super) struct Report {
    /// The machine on one line.
    pub(super) system: String,
    pub(super) groups: Vec<Group>,
}

/// Whether to colour the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    On,
    Off,
}

impl Colours {
    /// Colours on a terminal, unless NO_COLOR is set (no-color.org).
    pub(super) fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if io::stdout().is_terminal() && !refused {
            Self::On
        } else {
            Self::Off
        }
    }

    fn paint(self, text: &str, code: &str) -> String {
        match self {
            Self::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Off => text.to_owned(),
        }
    }
}

impl Report {
    /// Whether `serve` has everything that it needs.
    pub(super) fn can_serve(&self) -> bool {
        self.lacking().next().is_none()
    }

    fn lacking(&self) -> impl Iterator<Item = &Check> {
        let checks = self.groups.iter().flat_map(|group| &group.checks);
        checks.filter(|check| check.needed && check.status == Status::Missing)
    }

    /// Formats one line for each check, and a second one if it has advice.
    pub(super) fn text(&self, colours: Colours) -> String {
        let checks = self.groups.iter().flat_map(|group| &group.checks);
        let width = checks.map(|check| check.name.len()).max().unwrap_or(0) + 2;
        let mut text = format!("softclock {}, {}\n", env!("CARGO_PKG_VERSION"), self.system);
        for group in &self.groups {
            text += &format!("\n{}\n", colours.paint(group.name, BOLD));
            for check in &group.checks {
                text += &line(check, width, colours);
            }
        }
        text + "\n" + &self.verdict(colours)
    }

    fn verdict(&self, colours: Colours) -> String {
        let names: Vec<_> = self.lacking().map(|check| check.name).collect();
        if names.is_empty() {
            return colours.paint("softclock serve can run here.", GREEN) + "\n";
        }
        let verdict = format!(
            "softclock serve cannot run here without: {}",
            names.join(", ")
        );
        colours.paint(&verdict, RED) + "\n"
    }

    /// Formats `{"softclock", "system", "serve", "checks": [{"group", "name", "status", "needed", "found",
    /// "advice"}]}`.
    pub(super) fn json(&self) -> String {
        let checks = self.groups.iter().flat_map(|group| {
            let in_group = |check: &Check| {
                json!({
                    "group": group.name,
                    "name": check.name,
                    "status": word(check.status),
                    "needed": check.needed,
                    "found": check.found,
                    "advice": check.advice,
                })
            };
            group.checks.iter().map(in_group)
        });
        let report = json!({
            "softclock": env!("CARGO_PKG_VERSION"),
            "system": self.system,
            "serve": self.can_serve(),
            "checks": checks.collect::<Vec<_>>(),
        });
        format!("{report:#}\n")
    }
}

fn line(check: &Check, width: usize, colours: Colours) -> String {
    let status = format!("{:<8}", word(check.status));
    let status = colours.paint(&status, colour(check.status));
    let mark = if check.needed { '*' } else { ' ' };
    let Check { name, found, .. } = check;
    let mut line = format!("  {status}{mark} {name:<width$}{found}\n");
    if let Some(advice) = &check.advice {
        let margin = INDENT + width;
        line += &format!("{:margin$}-> {advice}\n", "");
    }
    line
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Note => "note",
        Status::Missing => "missing",
    }
}

const fn colour(status: Status) -> &'static str {
    match status {
        Status::Ok => GREEN,
        Status::Note => YELLOW,
        Status::Missing => RED,
    }
}

/// Columns before a name: two spaces, the status, the mark and a space.
const INDENT: usize = 12;

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(needed: Check) -> Report {
        let checks = vec![
            Check::ok("clock", "good"),
            Check::note("a longer name", "so so").advice("do this"),
            needed.needed(),
        ];
        Report {
            system: "a machine".into(),
            groups: vec![Group {
                name: "timers",
                checks,
            }],
        }
    }

    #[test]
    fn lines_are_aligned() {
        let text = report(Check::ok("sockets", "yes")).text(Colours::Off);
        let (_, lines) = text.split_once('\n').unwrap();
        let expected = "
timers
  ok        clock          good
  note      a longer name  so so
                           -> do this
  ok      * sockets        yes

softclock serve can run here.
";
        assert_eq!(lines, expected);
    }

    #[test]
    fn only_what_is_needed_is_missed() {
        let whole = report(Check::ok("sockets", "yes"));
        assert!(whole.can_serve());
        let broken = report(Check::missing("sockets", "no"));
        assert!(!broken.can_serve());
        let text = broken.text(Colours::Off);
        assert!(
            text.ends_with("cannot run here without: sockets\n"),
            "{text}"
        );
        let optional = report(Check::missing("sockets", "no").optional());
        assert!(optional.can_serve());
    }

    #[test]
    fn colours_do_not_move_columns() {
        let report = report(Check::ok("sockets", "yes"));
        let (plain, coloured) = (report.text(Colours::Off), report.text(Colours::On));
        let mut stripped = coloured.clone();
        for code in [BOLD, RED, GREEN, YELLOW, "0"] {
            stripped = stripped.replace(&format!("\x1b[{code}m"), "");
        }
        assert_ne!(plain, coloured);
        assert_eq!(plain, stripped);
    }

    #[test]
    fn json_tells_the_same() {
        let json = report(Check::missing("sockets", "a \"quoted\" reason")).json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["serve"], false);
        assert_eq!(value["checks"][1]["advice"], "do this");
        assert_eq!(value["checks"][0]["advice"], serde_json::Value::Null);
        assert_eq!(value["checks"][2]["found"], "a \"quoted\" reason");
    }
}
