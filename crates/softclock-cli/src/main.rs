//! The softclock command.
//!
//! [`cli`] says what can be asked for; each command has a module of its own.

mod cli;
mod config;
mod limits;
mod logging;
mod notify;
mod serve;
mod top;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let command = match cli::parse(arguments.iter().cloned()) {
        Ok(command) => command,
        Err(shown) => return shown.show(),
    };
    let result = match command {
        Command::Serve(options) => {
            serve::run(options, arguments).map_err(|error| error.to_string())
        }
        Command::Top(options) => top::run(&options).map_err(|error| error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softclock: {error}");
            ExitCode::FAILURE
        }
    }
}
