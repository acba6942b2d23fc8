//! The softclock command.
//!
//! [`cli`] says what can be asked for; each command has a module of its own.

mod cli;
mod limits;
mod logging;
mod options;
mod serve;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(shown) => return shown.show(),
    };
    let result = match command {
        Command::Serve(options) => serve::run(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softclock: {error}");
            ExitCode::FAILURE
        }
    }
}
