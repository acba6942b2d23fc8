//! The softclock command.
//!
//! [`cli`] defines the command line; each subcommand has a module.
#![forbid(unsafe_code)]

mod bar;
mod bridge;
mod burst;
mod cli;
mod config;
mod demo;
mod descriptors;
mod doctor;
mod echo;
mod generate;
mod logging;
mod mistake;
mod notify;
mod options;
mod pace;
mod serve;
mod stdout;
mod top;
mod values;
mod wan;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::Command;
use serve::Program;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let command = match cli::parse(arguments.iter().cloned()) {
        Ok(command) => command,
        Err(shown) => return shown.show(),
    };
    let result = match command {
        Command::Serve(options) => serve(Program::Site(options), arguments),
        Command::Proxy(options) => serve(Program::Proxy(options), arguments),
        Command::Top(options) => top::run(&options)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        Command::Burst(options) => return burst::run(&options),
        Command::Pace(options) => pace::run(&options)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        Command::Wan(options) => wan::run(&options)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        Command::Echo(options) => echo::run(&options)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        Command::Doctor(options) => return doctor::run(&options),
        Command::Demo(options) => return demo::run(&options),
        Command::Generate(options) => return generate::run(&options, cli::definition()),
    };
    result.unwrap_or_else(|error| {
        logging::complain(&error);
        ExitCode::FAILURE
    })
}

fn serve(program: Program, arguments: Vec<OsString>) -> Result<ExitCode, String> {
    match serve::run(program, arguments) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.to_string()),
    }
}
