//! The commands beside `serve`, as their users see them: the real program.

mod burst;
mod demo;
mod doctor;
mod generate;
mod terminal;

use std::process::{Command, Output};

/// The program, without options.
fn softclock() -> Command {
    Command::new(env!("CARGO_BIN_EXE_softclock"))
}

/// Runs to the end; the output is text.
fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    (output, text)
}
