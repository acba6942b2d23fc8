//! The softclock command.
//!
//! [`cli`] says what can be asked for; each command has a module of its own.

mod cli;
mod demo;
mod doctor;
mod generate;
mod limits;
mod logging;
mod serve;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(shown) => return shown.show(),
    };
    let result = match command {
        Command::Serve(options) => serve::run(options).map(|()| ExitCode::SUCCESS),
        Command::Doctor(options) => return doctor::run(&options),
        Command::Demo(options) => return demo::run(&options),
        Command::Generate(options) => return generate::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("softclock: {error}");
        ExitCode::FAILURE
    })
}
