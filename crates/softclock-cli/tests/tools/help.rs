//! The options of a command, as its help lists them.

use crate::{run, softclock};

/// An option.
pub(crate) struct HelpOption {
    /// The heading below which it is listed.
    pub(crate) heading: String,
    /// Its long name, without the dashes.
    pub(crate) name: String,
    /// Its description, on one line.
    description: String,
}

impl HelpOption {
    /// Its default, if the help names one: a value, or words.
    pub(crate) fn default(&self) -> Option<&str> {
        let (_, default) = self.description.split_once("[default: ")?;
        default.split(']').next()
    }
}

/// Returns the options in `softclock COMMAND --help`.
pub(crate) fn options(command: &str) -> Vec<HelpOption> {
    let (_, help) = run(softclock().args([command, "--help"]));
    let mut heading = "";
    let mut options: Vec<HelpOption> = Vec::new();
    for line in help.lines() {
        let title = line.strip_suffix(':');
        if let Some(title) = title.filter(|_| !line.starts_with(' ')) {
            heading = title;
        } else if let Some(name) = long_name(line) {
            options.push(HelpOption {
                heading: heading.to_owned(),
                name: name.to_owned(),
                description: String::new(),
            });
        } else if let (Some(text), Some(option)) = (line.strip_prefix(INDENT), options.last_mut()) {
            option.description += text.trim_start();
            option.description.push(' ');
        }
    }
    options
}

/// The name of the option that the line names, and does not describe.
fn long_name(line: &str) -> Option<&str> {
    let is_option = line.starts_with("  -") || line.starts_with("      --");
    let (_, name) = line.split_once("--").filter(|_| is_option)?;
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .next()
}

/// How the help indents descriptions, further than options.
const INDENT: &str = "          ";
