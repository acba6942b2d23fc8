//! The definition of the command line, and the report of mistakes in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use softclock_http::InputKind;

use crate::burst::BurstOptions;
use crate::config;
use crate::demo::DemoOptions;
use crate::doctor::DoctorOptions;
use crate::echo::EchoOptions;
use crate::generate::GenerateOptions;
use crate::logging;
use crate::mistake::{mistake, suggestion};
use crate::options::{ProxyOptions, ServeOptions};
use crate::pace::PaceOptions;
use crate::top::TopOptions;
use crate::wan::WanCommandOptions;

/// Web server, reverse proxy and traffic tools on a network runtime with microsecond timers.
#[derive(Debug, Parser)]
#[command(name = "softclock", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the files of a directory over HTTP
    Serve(Box<ServeOptions>),
    /// Forward requests to other servers, and return their responses
    Proxy(Box<ProxyOptions>),
    /// Watch a running server: requests, connections, trigger states, timer lateness
    Top(TopOptions),
    /// Report how bursty the traffic in a capture is: queue, packet trains, gaps, peaks
    Burst(BurstOptions),
    /// Bridge two interfaces and pace the packets between them, each class at its rate
    Pace(Box<PaceOptions>),
    /// Bridge two interfaces and emulate a wide-area link: delay, loss, a bottleneck
    Wan(Box<WanCommandOptions>),
    /// Answer UDP and ping on a network stack of its own, which discards floods early
    Echo(Box<EchoOptions>),
    /// Check whether this machine can run softclock, and advise how to fix problems
    Doctor(DoctorOptions),
    /// Show how much an event every 20 us slows a busy server: as soft timer, timerfd, signal
    Demo(DemoOptions),
    /// Write manual pages or shell completions
    #[command(hide = true)]
    Generate(GenerateOptions),
}

/// Returns the definition of the whole command line.
pub(crate) fn definition() -> clap::Command {
    let mut command = Cli::command();
    for subcommand in command.get_subcommands_mut() {
        // Accept values like -5 here, so that the error names the option instead of an unexpected argument.
        let named = std::mem::take(subcommand).mut_args(|option| match option.get_long() {
            Some(_) if option.get_action().takes_values() => option.allow_negative_numbers(true),
            _ => option,
        });
        *subcommand = named;
    }
    command
}

/// Output in place of a command: help, or a mistake.
pub(crate) enum Shown {
    /// Help or version, as requested.
    Help(clap::Error),
    /// A mistake on the command line, as one line.
    Mistake(String),
    /// A mistake in the configuration file, as one line that names the file and the line in it.
    BadFile(String),
}

impl Shown {
    /// Prints it. The exit code is 0 for help, 2 for mistakes on the command line and 1 for mistakes in a file.
    pub(crate) fn show(self) -> ExitCode {
        match self {
            Self::Help(help) => {
                // Ignore the error: a closed standard output is not a mistake on the command line.
                let _ = help.print();
                ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(2))
            }
            Self::Mistake(line) => {
                logging::complain(&line);
                ExitCode::from(2)
            }
            Self::BadFile(line) => {
                logging::complain(&line);
                ExitCode::FAILURE
            }
        }
    }
}

/// Parses the command line, and the configuration file that it names.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Shown> {
    let command = parse_reading(arguments, InputKind::Any)?;
    let checked = match &command {
        Command::Pace(options) => options.check(),
        Command::Wan(options) => options.check(),
        _ => Ok(()),
    };
    checked.map_err(Shown::Mistake)?;
    Ok(command)
}

/// Like [`parse`], but accepts only a configuration file of the given kind.
pub(crate) fn parse_reading(
    arguments: impl IntoIterator<Item = OsString>,
    kind: InputKind,
) -> Result<Command, Shown> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    let definition = definition();
    let (given, lacking) = given(&definition, &arguments)?;
    if let Some((name, given)) = given.subcommand()
        && let Ok(Some(file)) = given.try_get_one::<PathBuf>("config")
        && let Some(command) = definition.find_subcommand(name)
    {
        let more = config::arguments(file, kind, command, given).map_err(Shown::BadFile)?;
        // The file's settings become arguments before those of the user, so that one parser checks both.
        arguments.splice(2..2, more);
        let all = definition.clone().try_get_matches_from(&arguments);
        let all = all.and_then(|all| Cli::from_arg_matches(&all));
        return Ok(all
            .map_err(|error| match error.kind() {
                // The file lacks what the command line needs.
                ErrorKind::MissingRequiredArgument
                    if missing(&error).iter().all(|name| lacking.contains(name)) =>
                {
                    shown(error, &arguments)
                }
                _ => Shown::BadFile(format!("{}: {}", file.display(), mistake(&error))),
            })?
            .command);
    }
    Ok(Cli::from_arg_matches(&given)
        .map_err(|error| shown(error, &arguments))?
        .command)
}

/// Parses the command line alone. Also returns the options that it lacks, which may be in the configuration file, if it
/// names one.
fn given(
    definition: &clap::Command,
    arguments: &[OsString],
) -> Result<(ArgMatches, Vec<String>), Shown> {
    let error = match definition.clone().try_get_matches_from(arguments) {
        Ok(given) => return Ok((given, Vec::new())),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::MissingRequiredArgument && lacks_settings_only(&error) {
        let lenient = definition.clone().ignore_errors(true);
        if let Ok(given) = lenient.try_get_matches_from(arguments)
            && let Some((_, of_command)) = given.subcommand()
            && let Ok(Some(_)) = of_command.try_get_one::<PathBuf>("config")
        {
            return Ok((given, missing(&error).to_vec()));
        }
    }
    Err(shown(error, arguments))
}

/// Whether all that is missing are flags, or the directory. Other operands are not taken from a file.
fn lacks_settings_only(error: &clap::Error) -> bool {
    // A choice of flags is in angle brackets.
    let is_setting =
        |name: &String| name.starts_with("--") || name.starts_with("<--") || name == "<DIR>";
    let missing = missing(error);
    !missing.is_empty() && missing.iter().all(is_setting)
}

/// The names of the arguments that are missing.
fn missing(error: &clap::Error) -> &[String] {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) => names,
        _ => &[],
    }
}

fn shown(error: clap::Error, arguments: &[OsString]) -> Shown {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Shown::Help(error),
        _ => Shown::Mistake(one_line(&error, arguments)),
    }
}

/// Shortens clap's message, which is a paragraph, to its first line and adds a hint.
fn one_line(error: &clap::Error, arguments: &[OsString]) -> String {
    let mistake = mistake(error);
    let hint = match suggestion(error) {
        Some(suggestion) => format!("did you mean {suggestion}?"),
        None => match command_of(arguments) {
            Some(command) => format!("see softclock {command} --help"),
            None => "see softclock --help".into(),
        },
    };
    format!("{mistake}; {hint}")
}

/// Returns the name of the subcommand, if the first argument is a valid one.
fn command_of(arguments: &[OsString]) -> Option<String> {
    let name = arguments.get(1)?.to_str()?;
    let command = definition().find_subcommand(name)?.get_name().to_owned();
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use softclock::Mechanism;
    use softclock_http::ListenAddress;

    fn serve(arguments: &[&str]) -> Result<ServeOptions, String> {
        let arguments = ["softclock", "serve"]
            .iter()
            .chain(arguments)
            .map(OsString::from);
        match parse(arguments) {
            Ok(Command::Serve(options)) => Ok(*options),
            Ok(other) => Err(format!("{other:?}")),
            Err(Shown::Mistake(line) | Shown::BadFile(line)) => Err(line),
            Err(Shown::Help(help)) => Err(help.to_string()),
        }
    }

    #[test]
    fn definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn mistakes_name_the_help_that_helps() {
        let line = |arguments: &[&str]| {
            let all = ["softclock"].iter().chain(arguments);
            match parse(all.map(OsString::from)) {
                Err(Shown::Mistake(line)) => line,
                _ => panic!("no mistake in {arguments:?}"),
            }
        };
        assert!(line(&["doctor", "x"]).ends_with("see softclock doctor --help"));
        assert!(line(&["--quux"]).ends_with("see softclock --help"));
        assert!(line(&["serv"]).contains("did you mean serve"));
        let names = line(&["serve", "--events", "kqueue"]);
        assert!(names.contains("'kqueue'") && names.contains(": not one of io_uring, epoll"));
    }

    #[test]
    fn defaults() {
        let options = serve(&[]).unwrap().server;
        assert_eq!((options.threads, options.drain.as_secs()), (1, 10));
        assert_eq!(options.spin_cap, softclock_http::DEFAULT_SPIN_CAP);
        assert_eq!(options.listen, [ListenAddress::DEFAULT]);
    }

    #[test]
    fn values() {
        let options = serve(&[
            "--listen",
            ":1",
            "--listen",
            "[::1]:2",
            "--spin-cap",
            "0",
            "--events",
            "io_uring",
            "dir",
        ]);
        let options = options.unwrap().server;
        assert_eq!((options.listen.len(), options.spin_cap), (2, 0.0));
        assert_eq!(options.events, Some(Mechanism::IoUring));
        let drain = serve(&["--drain", "0.5"]).unwrap().server.drain;
        assert_eq!(drain.as_millis(), 500);
    }

    /// `echo` shares options with `serve` and `proxy`, and lacks others that their help names.
    #[test]
    fn the_help_of_echo_names_its_own_options_only() {
        let definition = definition();
        let echo = definition.find_subcommand("echo").expect("a command");
        for option in echo.get_arguments() {
            let help = [option.get_help(), option.get_long_help()];
            for help in help.into_iter().flatten().map(ToString::to_string) {
                assert!(
                    !help.contains("suspend") && !help.contains("without --dev"),
                    "{help}"
                );
                let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                for name in words.filter_map(|word| word.strip_prefix("--")) {
                    let mut options = echo.get_arguments();
                    assert!(
                        options.any(|option| option.get_long() == Some(name)),
                        "{help}"
                    );
                }
            }
        }
    }

    /// The errors of the standard library's parsers of numbers do not.
    #[test]
    fn mistakes_say_what_to_write() {
        for command in definition().get_subcommands() {
            for option in command.get_arguments() {
                let Some(long) = option
                    .get_long()
                    .filter(|_| option.get_action().takes_values())
                else {
                    continue;
                };
                for written in ["1x!", "-1"] {
                    let flag = format!("--{long}");
                    let all = ["softclock", command.get_name(), &flag, written];
                    if let Err(Shown::Mistake(line)) = parse(all.map(OsString::from)) {
                        let is_raw = line.contains("digit") || line.contains(" is not in ");
                        let is_named = line.contains(long) || !line.starts_with("invalid value");
                        assert!(is_named && !is_raw, "{line}");
                        assert!(!line.contains("unexpected argument"), "{line}");
                    }
                }
            }
        }
    }

    /// A user need not make a mistake to learn the range of a number.
    #[test]
    fn the_help_has_the_ranges_of_numbers() {
        let mut ranges = 0;
        for command in definition().get_subcommands() {
            for option in command.get_arguments() {
                let Some(long) = option.get_long() else {
                    continue;
                };
                let flag = format!("--{long}");
                let all = ["softclock", command.get_name(), &flag, "-1"];
                let Err(Shown::Mistake(line)) = parse(all.map(OsString::from)) else {
                    continue;
                };
                let Some((_, range)) = line.split_once("write a whole number from ") else {
                    continue;
                };
                let range = range
                    .split(';')
                    .next()
                    .and_then(|range| range.split_once(" to "));
                let (least, most) = range.expect("two numbers");
                let help = option
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let mut words = help.split(|c: char| !c.is_ascii_digit());
                let has_least = least == "0" || words.clone().any(|word| word == least);
                // The largest number of a type is no limit.
                let is_any =
                    [u32::MAX.to_string(), u64::MAX.to_string()].contains(&most.to_owned());
                let has_most = is_any || words.any(|word| word == most);
                assert!(has_least && has_most, "{flag}, {least} to {most}: {help}");
                ranges += 1;
            }
        }
        assert!(ranges > 10, "{ranges}");
    }

    #[test]
    fn a_proxy_needs_upstreams_that_can_be_understood() {
        for (arguments, part) in [
            (&[][..], "--upstream"),
            (&["--upstream", "https://a"], "without TLS"),
            (&["--upstream", "a:80"], "write http://a:80"),
            (&["--upstream", "http://a", "--tries", "0"], "--tries"),
            (&["--upstream", "http://a", "x"], "'x'"),
        ] {
            let all = ["softclock", "proxy"].iter().chain(arguments);
            let Err(Shown::Mistake(line)) = parse(all.map(OsString::from)) else {
                panic!("no mistake in {arguments:?}");
            };
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn mistakes_are_one_line_that_helps() {
        for (arguments, part) in [
            (&["--lisen", ":1"][..], "did you mean --listen"),
            (&["--port", "80"], "see softclock serve --help"),
            (&["--drain", "1d"], "500ms, 10s, 2m"),
            (
                &["--pace", "50"],
                "a rate needs a unit: 50bit, 50kbit or 50mbit",
            ),
            (
                &["--pace", "50Mbps"],
                "write 50mbit for bits a second, or 50mbyte for bytes",
            ),
            (&["--threads", "0"], "a whole number from 1 to 1024"),
            (&["--threads", "x"], "--threads"),
            (&["--listen", "8080"], "write :8080"),
            (&["--listen", "localhost:80"], "write 127.0.0.1:80"),
            (&["--spin-cap", "101"], "percentage"),
            (&["--events", "kqueue"], "'kqueue'"),
            (&["--drain", "-1"], "--drain"),
            (&["--drain", "1e30"], "0 or more"),
            (&["--index", "a/b"], "not a file name"),
            (&["--max-line", "10"], "from 256 to 65000"),
            (&["--max-head", "2M"], "--max-head"),
            (&["--max-connections", "0"], "--max-connections"),
            (&["--idle-timeout", "-1"], "--idle-timeout"),
            (&["--min-rate", "fast"], "--min-rate"),
            (&["a", "b"], "'b'"),
            (&["-q", "-v"], "cannot be used with"),
            (&["-q", "--log-level", "info"], "cannot be used with"),
            (&["--log-level", "loud"], "loud"),
            (&["--log-format", "xml"], "common, combined or json"),
            (&["--socket-mode", "888"], "octal"),
            (&["--tls-cert", "c"], "--tls-key"),
            (&["--metrics", "9100"], "write :9100"),
            (&["--pace", "fast"], "it does not begin with a number"),
            (&["--pace", "5mb"], "rates are written 100mbit"),
            (&["--pace", "0"], "out of range"),
            (&["--pace-total", "9600bit"], "less than 64kbit"),
            (&["--pace-burst", "1mbit"], "--pace <RATE>"),
            (&["--mechanism", "auto"], "--dev <IF>"),
            (&["--architecture", "bsd"], "--dev <IF>"),
            (&["--config", "/does/not/exist"], "no such file"),
        ] {
            let line = serve(arguments).unwrap_err();
            assert!(
                line.contains(part) && !line.contains('\n'),
                "{arguments:?}: {line}"
            );
        }
    }
}
