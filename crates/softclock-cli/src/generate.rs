//! `softclock generate`: writes the manual and shell completions from the definition of the command line.

mod sections;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::logging;
use sections::{Part, Section};

/// The options of `softclock generate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct GenerateOptions {
    /// Kind of files to write
    what: What,

    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Manual pages: softclock.1, softclock-serve.1 and so on
    Man,
    /// Completions for bash, fish and zsh
    Completions,
}

/// Writes the pages or completions of `definition`, the whole command line, and returns the exit code.
pub(crate) fn run(options: &GenerateOptions, definition: Command) -> ExitCode {
    let directory = &options.directory;
    let written = fs::create_dir_all(directory).and_then(|()| match options.what {
        What::Man => manual(definition, directory),
        What::Completions => completions(definition, directory),
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::complain(&format!("cannot write to {}: {error}", directory.display()));
            ExitCode::FAILURE
        }
    }
}

/// Writes one page for the program and one for each command that is not hidden.
fn manual(definition: Command, directory: &Path) -> io::Result<()> {
    let mut program = definition.disable_help_subcommand(true);
    // Gives the commands their full names, such as `softclock serve`.
    program.build();
    let commands = program.get_subcommands().filter(|c| !c.is_hide_set());
    for command in commands {
        page(command, directory)?;
    }
    page(&program, directory)
}

fn page(command: &Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone())
        .source(concat!("softclock ", env!("CARGO_PKG_VERSION")))
        .manual("softclock manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    for section in sections::of(command.get_name()) {
        page.extend(written_section(section).bytes());
    }
    if let Some(notes) = command.get_after_help() {
        page.extend(notes_and_examples(&notes.to_string()).bytes());
    }
    fs::write(directory.join(man.get_filename()), page)
}

fn written_section(section: &Section) -> String {
    let mut page = format!(".SH {}\n", section.title);
    for part in section.parts {
        page += &match part {
            Part::Text(text) => format!(".PP\n{}", escaped(text)),
            Part::Item(word, text) => format!(".TP\n.B {}{}", escaped(word), escaped(text)),
            Part::Lines(lines) => {
                let lines: String = lines.lines().map(escaped).collect();
                format!(".PP\n.nf\n.RS\n{lines}.RE\n.fi\n")
            }
        };
    }
    page
}

/// Converts the text below a command's help: paragraphs, which roff fills, and examples, which it does not.
fn notes_and_examples(text: &str) -> String {
    let (notes, examples) = text.split_once("Examples:\n").unwrap_or((text, ""));
    let mut page = ".SH NOTES\n".to_owned();
    for line in notes.trim().lines() {
        page += &if line.is_empty() {
            ".PP\n".to_owned()
        } else {
            escaped(line)
        };
    }
    if !examples.is_empty() {
        page += ".SH EXAMPLES\n.nf\n";
        page.extend(examples.lines().map(|line| escaped(line.trim_start())));
        page += ".fi\n";
    }
    page
}

/// Escapes a line for roff, with hyphens that can be copied.
fn escaped(line: &str) -> String {
    let line = line
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq");
    let guard = if line.starts_with('.') { "\\&" } else { "" };
    format!("{guard}{line}\n")
}

fn completions(mut definition: Command, directory: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut definition, "softclock", directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition;

    /// The writer of the help fills paragraphs to any width, so a break within one would show.
    #[test]
    fn paragraphs_are_not_broken_by_hand() {
        for command in definition().get_subcommands() {
            let notes = command.get_after_help().map(ToString::to_string);
            let notes = notes.unwrap_or_default();
            let lines: Vec<_> = notes.lines().collect();
            for pair in lines.windows(2) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let is_broken = is_text(pair[0]) && is_text(pair[1]);
                assert!(!is_broken, "{}: {pair:?}", command.get_name());
            }
        }
    }

    #[test]
    fn sections_are_paragraphs_items_and_lines() {
        let section = Section {
            title: "FILES",
            parts: &[
                Part::Text("Those of --config."),
                Part::Item("/etc/x", "A 'file'."),
                Part::Lines("a = 1\n.b\n"),
            ],
        };
        let expected = "\
.SH FILES
.PP
Those of \\-\\-config.
.TP
.B /etc/x
A \\(aqfile\\(aq.
.PP
.nf
.RS
a = 1
\\&.b
.RE
.fi
";
        assert_eq!(written_section(&section), expected);
    }

    #[test]
    fn examples_keep_their_lines() {
        let page = notes_and_examples("One\ntwo.\n\nThree-four.\n\nExamples:\n  a --b\n  .c 'd'\n");
        let expected = "\
.SH NOTES
One
two.
.PP
Three\\-four.
.SH EXAMPLES
.nf
a \\-\\-b
\\&.c \\(aqd\\(aq
.fi
";
        assert_eq!(page, expected);
    }
}
