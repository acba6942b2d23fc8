//! The commands beside `serve`, as their users see them: the real program.

mod burst;
mod configuration_page;
mod demo;
mod doctor;
mod generate;
mod help;
mod interrupts;
mod limits_page;
mod terminal;

use std::process::{Command, Output};

use terminal::Terminal;

/// The program, without options.
fn softclock() -> Command {
    Command::new(env!("CARGO_BIN_EXE_softclock"))
}

/// The program with these arguments on a terminal.
fn on_terminal(arguments: &str, environment: &[(&str, &str)]) -> Terminal {
    Terminal::start(Command::new("script"), arguments, environment)
}

/// Runs to the end; the output is text.
fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    (output, text)
}
