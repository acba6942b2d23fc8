//! The configuration file: TOML whose keys are the names of the flags.
//!
//! The file is translated to arguments, which are put before those of the command line. So each setting, its values and
//! its default are defined once, and the file accepts every flag that makes sense in it. Each key is checked
//! separately, so that an error can name its line.
//!
//! With a file, some settings have no default ([`NEEDED`]): an interrupted editor or copy leaves an empty or truncated
//! file, and a reload of that must not switch the server to other content or another address.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use softclock_http::{InputKind, read_input};
use toml::de::{DeInteger, DeTable, DeValue};

use crate::mistake::{mistake, suggestion};

/// Translates `file` to arguments of `command`, without those that the command line gives. Fails if neither the file
/// nor the command line gives a setting of [`NEEDED`].
///
/// An error is one line.
pub(crate) fn arguments(
    file: &Path,
    kind: InputKind,
    command: &clap::Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, String> {
    let text = read_text(file, kind).map_err(|error| unreadable(file, &error))?;
    let reader = Reader {
        file,
        text: &text,
        command,
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        reader.at(&error.span().unwrap_or_default(), &message)
    })?;
    let mut keys: Vec<_> = table.get_ref().iter().collect();
    // In the order of the file, so that the first error is the one at the top.
    keys.sort_by_key(|(key, _)| key.span().start);
    let mut all = Vec::new();
    let mut named = Vec::new();
    for (key, value) in keys {
        // Check the value even if the command line replaces it, so that an error shows at once.
        let arg = reader.arg(key.get_ref(), &key.span())?;
        let arguments = reader.values(arg, value.get_ref(), &value.span())?;
        reader.check(&arguments, &value.span())?;
        // An empty list does not count as a setting.
        if !arguments.is_empty() {
            named.push(arg.get_id());
        }
        if !is_given(given, arg, command) {
            all.extend(arguments.into_iter().map(OsString::from));
        }
    }
    // A setting must come from the file or the command line; a default does not count here.
    for needed in &NEEDED {
        let mut args = command.get_arguments();
        if let Some(arg) = args.find(|arg| name(arg) == needed.setting)
            && !named.contains(&arg.get_id())
            && !is_given(given, arg, command)
        {
            return Err(needed.missing(file));
        }
    }
    Ok(all)
}

/// A setting that the file or the command line must name.
struct Needed {
    setting: &'static str,
    what: &'static str,
    /// An example line for the file.
    example: &'static str,
    flag: &'static str,
}

impl Needed {
    fn missing(&self, file: &Path) -> String {
        let Self {
            what,
            example,
            flag,
            ..
        } = self;
        let file = file.display();
        format!("{file}: no {what}; write {example} in it, or give {flag}")
    }
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    command: &'a clap::Command,
}

impl<'a> Reader<'a> {
    /// Returns the flag, or the positional argument, of this name.
    fn arg(&self, key: &str, span: &Range<usize>) -> Result<&'a Arg, String> {
        let mut args = self.command.get_arguments();
        let found = args.find(|arg| name(arg) == key && is_setting(arg));
        found.ok_or_else(|| {
            let hint = self.similar(key).map_or_else(
                || format!("see softclock {} --help", self.command.get_name()),
                |similar| format!("did you mean {similar}?"),
            );
            self.at(span, &format!("unknown setting '{key}'; {hint}"))
        })
    }

    fn similar(&self, key: &str) -> Option<String> {
        let error = self.parse([format!("--{key}=")]).err()?;
        let similar = suggestion(&error)?.trim_start_matches("--").to_owned();
        (!ONLY_FLAGS.contains(&similar.as_str())).then_some(similar)
    }

    /// Returns the arguments that set `arg` to `value`.
    fn values(
        &self,
        arg: &Arg,
        value: &DeValue<'_>,
        span: &Range<usize>,
    ) -> Result<Vec<String>, String> {
        let key = name(arg);
        let flag = format!("--{key}");
        match (arg.get_action(), value) {
            (ArgAction::SetTrue, DeValue::Boolean(on)) => Ok(vec![flag; usize::from(*on)]),
            (ArgAction::SetTrue, _) => Err(self.at(span, &format!("{key} must be true or false"))),
            (ArgAction::Count, DeValue::Integer(count)) => {
                let count = self.integer(arg, count, span)?;
                let count = count.parse().ok().filter(|count| *count < 10);
                let count = count.ok_or_else(|| {
                    self.at(span, &format!("{key} must be a whole number from 0 to 9"))
                })?;
                Ok(vec![flag; count])
            }
            (ArgAction::Count, _) => {
                Err(self.at(span, &format!("{key} must be a whole number from 0 to 9")))
            }
            (ArgAction::Append, DeValue::Array(values)) => values
                .iter()
                .map(|value| self.argument(arg, value.get_ref(), &value.span()))
                .collect(),
            _ => Ok(vec![self.argument(arg, value, span)?]),
        }
    }

    fn argument(
        &self,
        arg: &Arg,
        value: &DeValue<'_>,
        span: &Range<usize>,
    ) -> Result<String, String> {
        let text = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => self.integer(arg, number, span)?.to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(on) if is_switch(arg) => if *on { "on" } else { "off" }.to_owned(),
            _ => {
                let message = format!("{} must be one string or number", name(arg));
                return Err(self.at(span, &message));
            }
        };
        Ok(match arg.get_long() {
            Some(long) => format!("--{long}={text}"),
            // Keep a file name that begins with a dash from being parsed as a flag.
            None if text.starts_with('-') => format!("./{text}"),
            None => text,
        })
    }

    /// Returns the digits of a number, which must be decimal, or octal for a mode: the arguments have no prefix that
    /// tells the radix.
    fn integer<'b>(
        &self,
        arg: &Arg,
        number: &'b DeInteger<'_>,
        span: &Range<usize>,
    ) -> Result<&'b str, String> {
        match number.radix() {
            10 => Ok(number.as_str()),
            8 if is_mode(arg) => Ok(number.as_str()),
            _ => Err(self.at(span, &format!("write {} in decimal", name(arg)))),
        }
    }

    /// Checks one setting by the definition of the flags. Required arguments may be missing here: they may be elsewhere
    /// in the file or on the command line.
    fn check(&self, arguments: &[String], span: &Range<usize>) -> Result<(), String> {
        match self.parse(arguments.iter().cloned()) {
            Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                Err(self.at(span, &mistake(&error).replace("'--", "'")))
            }
            _ => Ok(()),
        }
    }

    fn parse(
        &self,
        arguments: impl IntoIterator<Item = String>,
    ) -> clap::error::Result<ArgMatches> {
        let name = self.command.get_name().to_owned();
        let all = std::iter::once(name).chain(arguments);
        self.command.clone().try_get_matches_from(all)
    }

    /// Prefixes a message with the file and the line of `span`.
    fn at(&self, span: &Range<usize>, message: &str) -> String {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}: {message}", self.file.display())
    }
}

/// Whether the command line gives `arg`, or an argument that excludes it.
fn is_given(given: &ArgMatches, arg: &Arg, command: &clap::Command) -> bool {
    let is_set = |arg: &Arg| {
        let id = arg.get_id().as_str();
        given.value_source(id) == Some(ValueSource::CommandLine)
    };
    let excluded = |other: &&Arg| command.get_arg_conflicts_with(other).contains(&arg);
    let mut excluding = command.get_arguments().filter(excluded);
    is_set(arg)
        || command.get_arg_conflicts_with(arg).into_iter().any(is_set)
        || excluding.any(is_set)
}

/// Whether a file may set the argument. Required positional ones, such as the interfaces of a bridge, are always on the
/// command line.
fn is_setting(arg: &Arg) -> bool {
    let is_operand = arg.is_positional() && arg.is_required_set();
    !is_operand && !ONLY_FLAGS.contains(&name(arg))
}

/// Whether the flag takes "on" or "off", which TOML writes as true or false.
fn is_switch(arg: &Arg) -> bool {
    has_value(arg, "on|off")
}

/// Whether the flag takes the permissions of a file, which are octal.
fn is_mode(arg: &Arg) -> bool {
    has_value(arg, "MODE")
}

fn has_value(arg: &Arg, value: &str) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.as_str() == value)
}

/// The name of a flag, or of a positional argument.
fn name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_else(|| arg.get_id().as_str())
}

fn read_text(file: &Path, kind: InputKind) -> io::Result<String> {
    let content = read_input(file, kind)?;
    String::from_utf8(content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn unreadable(file: &Path, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied; let this user read it".into(),
        io::ErrorKind::InvalidData => "not UTF-8 text".into(),
        _ => error.to_string(),
    };
    format!("cannot read {}: {reason}", file.display())
}

/// Flags that make sense on a command line only.
const ONLY_FLAGS: [&str; 4] = ["config", "check", "help", "version"];

const NEEDED: [Needed; 3] = [
    Needed {
        setting: "listen",
        what: "address to listen on",
        example: "listen = \"127.0.0.1:8080\"",
        flag: "--listen ADDR",
    },
    Needed {
        setting: "directory",
        what: "directory to serve",
        example: "directory = \"/srv/www\"",
        flag: "DIR",
    },
    Needed {
        setting: "upstream",
        what: "upstream",
        example: "upstream = \"http://127.0.0.1:3000\"",
        flag: "--upstream URL",
    },
];

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use softclock_http::ListenAddress;

    use crate::cli::{Command, Shown, parse};
    use crate::options::ServeOptions;

    /// Parses `file` with a command line that gives all settings of [`NEEDED`].
    fn complete(file: &str, arguments: &[&str]) -> Result<ServeOptions, String> {
        let needed = ["--listen", ":1", "dir"];
        serve(file, &[&needed, arguments].concat())
    }

    fn serve(file: &str, arguments: &[&str]) -> Result<ServeOptions, String> {
        match parsed("serve", file, arguments)? {
            Command::Serve(options) => Ok(*options),
            _ => unreachable!("serve was asked for"),
        }
    }

    fn parsed(command: &str, file: &str, arguments: &[&str]) -> Result<Command, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        fs::write(&path, file).unwrap();
        let own = ["softclock", command, "--config", path.to_str().unwrap()];
        parse(own.iter().chain(arguments).map(OsString::from)).map_err(|shown| match shown {
            Shown::Mistake(line) => line,
            Shown::BadFile(line) => {
                let name = format!("{}:", path.display());
                line.strip_prefix(&name).expect("the file's name").into()
            }
            Shown::Help(help) => help.to_string(),
        })
    }

    #[test]
    fn every_kind_of_value() {
        let options = serve(
            "# comment\ndirectory = \"/srv\"\nlisten = [\":1\", \"[::1]:2\"]\nthreads = 2\n\
             drain = 0.5\nverbose = 2\nspin-cap = \"10%\"\nmetrics = \":9\"\n",
            &[],
        );
        let options = options.unwrap();
        assert_eq!(options.directory, Some("/srv".into()));
        let options = options.server;
        assert_eq!((options.listen.len(), options.threads), (2, 2));
        assert_eq!((options.drain.as_millis(), options.verbose), (500, 2));
        assert_eq!(
            (options.spin_cap, options.operation.metrics.len()),
            (0.1, 1)
        );
        assert!(!complete("quiet = false", &[]).unwrap().server.quiet);
        assert!(complete("quiet = true", &[]).unwrap().server.quiet);
        for (value, ok) in [
            ("true", true),
            ("false", true),
            ("\"off\"", true),
            ("1", false),
        ] {
            assert_eq!(
                complete(&format!("precompressed = {value}"), &[]).is_ok(),
                ok,
                "{value}"
            );
        }
    }

    #[test]
    fn numbers_are_decimal_and_modes_octal() {
        for file in [
            "threads = 0x10",
            "threads = 0o10",
            "threads = 0b10",
            "verbose = 0x2",
        ] {
            let error = complete(&format!("# comment\n{file}"), &[]).unwrap_err();
            let name = file.split(' ').next().unwrap();
            assert_eq!(error, format!("2: write {name} in decimal"));
        }
        for file in [
            "socket-mode = 0o640",
            "socket-mode = 640",
            "socket-mode = \"640\"",
        ] {
            let options = complete(file, &[]).unwrap();
            assert_eq!(options.server.operation.socket_mode, 0o640, "{file}");
        }
        assert!(complete("socket-mode = 0x1a0", &[]).is_err());
    }

    #[test]
    fn flags_win() {
        let file = "directory = \"/srv\"\nlisten = [\":1\", \":2\"]\nquiet = true\nthreads = 2\n";
        let options = serve(file, &["--listen", ":3", "-v", "dir"]).unwrap();
        assert_eq!(options.directory, Some("dir".into()));
        let options = options.server;
        assert_eq!(options.listen, [":3".parse().unwrap()]);
        assert_eq!(
            (options.quiet, options.verbose, options.threads),
            (false, 1, 2)
        );
        let options = serve(file, &["--log-level", "debug"]).unwrap().server;
        assert!(!options.quiet && options.log_level.is_some());
    }

    /// The option that a flag needs may be in the file.
    #[test]
    fn flags_complete_the_file() {
        let options = complete("pace = \"2mbit\"", &["--pace-burst", "4mbit"]).unwrap();
        assert!(options.server.pace.pace_burst.is_some());
        let options = complete("tls-key = \"k\"", &["--tls-cert", "c"]).unwrap();
        assert_eq!(options.server.operation.tls_cert, Some("c".into()));
        let error = complete("threads = 2", &["--pace-burst", "4mbit"]).unwrap_err();
        assert!(error.contains("--pace <RATE>"), "{error}");
        let error = complete("threads = 0", &["--pace-burst", "4mbit"]).unwrap_err();
        assert!(error.starts_with("1: invalid value"), "{error}");
        let error = serve("threads = 2", &["--pace-burst", "4mbit"]).unwrap_err();
        assert!(error.contains("no address to listen on"), "{error}");
    }

    #[test]
    fn mistakes_tell_their_line() {
        for (file, line) in [
            (
                "lisen = \":1\"",
                "1: unknown setting 'lisen'; did you mean listen?",
            ),
            (
                "quux = 1",
                "1: unknown setting 'quux'; see softclock serve --help",
            ),
            ("\n\nthreads = 0", "3: invalid value '0' for 'threads <N>'"),
            ("drain = true", "1: drain must be one string or number"),
            ("drain = [1]", "1: drain must be one string or number"),
            ("quiet = 1", "1: quiet must be true or false"),
            (
                "verbose = -1",
                "1: verbose must be a whole number from 0 to 9",
            ),
            ("listen = [\n\":1\",\n8080]", "1: invalid value '8080'"),
            ("a b", "1: "),
            ("threads = 1\nthreads = 2", "2: duplicate key"),
            ("config = \"x\"", "1: unknown setting 'config'"),
            (
                "pace = \"5mb\"",
                "1: invalid value '5mb' for 'pace <RATE>': unknown unit",
            ),
            ("check = true", "1: unknown setting 'check'"),
            ("[serve]\nthreads = 1", "1: unknown setting 'serve'"),
        ] {
            let error = serve(file, &[]).unwrap_err();
            assert!(
                error.starts_with(line) && !error.contains('\n'),
                "{file}: {error}"
            );
        }
        let alone = complete("tls-cert = \"c\"", &[]).unwrap_err();
        assert!(alone.contains("--tls-key"), "{alone}");
    }

    #[test]
    fn the_interfaces_of_a_bridge_are_no_settings() {
        for command in ["pace", "wan"] {
            for name in ["a", "b"] {
                let file = format!("{name} = \"eth0\"");
                let error = parsed(command, &file, &["eth0", "eth1"]).unwrap_err();
                let expected =
                    format!("1: unknown setting '{name}'; see softclock {command} --help");
                assert_eq!(error, expected);
            }
        }
    }

    #[test]
    fn an_address_and_a_directory_are_named_by_the_file_or_the_flags() {
        let (listen, directory) = ("listen = \":1\"\n", "directory = \"d\"\n");
        let both = format!("{listen}{directory}");
        for (file, arguments, missing) in [
            (&*both, &[][..], None),
            (listen, &["d"], None),
            (directory, &["--listen", ":1"], None),
            ("", &["--listen", ":1", "d"], None),
            ("", &[], Some("listen = \"127")),
            ("# all gone\n", &["d"], Some("--listen")),
            (directory, &[], Some("no address to listen on")),
            ("listen = []", &["d"], Some("no address to listen on")),
            (listen, &[], Some("directory = \"/srv/www\"")),
            ("", &["--listen", ":1"], Some("no directory to serve")),
        ] {
            match (serve(file, arguments), missing) {
                (Ok(_), None) => {}
                (Err(line), Some(part)) => assert!(line.contains(part), "{line}"),
                (result, _) => panic!("{file:?} {arguments:?}: {result:?}"),
            }
        }
    }

    /// An interrupted write may end at any byte. Truncated numbers are other valid numbers.
    #[test]
    fn the_beginning_of_a_file_is_refused_or_says_all_that_it_serves() {
        let file = "# site\nthreads = 2\nmetrics = [\n  \"127.0.0.1:91\",\n  \"unix:/run/m\",\n]\n\
                    directory = \"/srv\"\nindex = \"start.htm\"\ntls-cert = \"/c.pem\"\n\
                    listen = [\n  \":8081\",\n  \"tls::8443\",\n]\ntls-key = \"/k.pem\"\n\
                    access-log = \"/log\"\nmax-connections = 100\n";
        let mut accepted = 0;
        for end in 0..=file.len() {
            let Ok(options) = serve(&file[..end], &[]) else {
                assert!(end < file.len());
                continue;
            };
            accepted += 1;
            assert_eq!(options.directory, Some("/srv".into()));
            assert_eq!(options.server.listen, addresses([":8081", "tls::8443"]));
            let operation = options.server.operation;
            let metrics = addresses(["127.0.0.1:91", "unix:/run/m"]);
            assert_eq!(operation.metrics, metrics);
            assert_eq!(operation.tls_cert, Some("/c.pem".into()));
            assert_eq!(operation.tls_key, Some("/k.pem".into()));
            let log = file[..end].contains("/log\"").then(|| "/log".into());
            assert_eq!(operation.access_log, log);
        }
        assert!(accepted > 1);
    }

    #[test]
    fn the_beginning_of_a_proxy_s_file_is_refused_or_names_all_upstreams() {
        let file = "# proxy\nlisten = [\n  \":8081\",\n  \":8082\",\n]\ntries = 1\n\
                    upstream = [\n  \"http://a:1\",\n  \"http://b:2\",\n]\nmax-fails = 1\n";
        let mut accepted = 0;
        for end in 0..=file.len() {
            let Ok(Command::Proxy(options)) = parsed("proxy", &file[..end], &[]) else {
                assert!(end < file.len());
                continue;
            };
            accepted += 1;
            let upstreams = ["http://a:1", "http://b:2"].map(|url| url.parse().unwrap());
            assert_eq!(options.upstreams.upstream, upstreams);
            assert_eq!(options.server.listen, addresses([":8081", ":8082"]));
        }
        assert!(accepted > 1);
    }

    fn addresses<const N: usize>(texts: [&str; N]) -> [ListenAddress; N] {
        texts.map(|text| text.parse().unwrap())
    }
}
