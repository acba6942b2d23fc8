//! What the manual says beside the definition of the command line: configuration file, signals, exit statuses, files.

#[cfg(test)]
mod tests;

use Part::{Item, Lines, Text};

/// A section of a manual page.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) parts: &'static [Part],
}

/// A part of a section.
pub(super) enum Part {
    /// Text that is filled.
    Text(&'static str),
    /// A word, and what it means.
    Item(&'static str, &'static str),
    /// Lines that stay as they are.
    Lines(&'static str),
}

/// The sections of a command's page, in their order.
pub(super) fn of(command: &str) -> &'static [Section] {
    match command {
        "softclock" => PROGRAM,
        "serve" => SERVE,
        "proxy" => PROXY,
        "top" => TOP,
        "burst" => BURST,
        "pace" => PACE,
        "wan" => WAN,
        "doctor" => DOCTOR,
        "demo" => DEMO,
        _ => &[],
    }
}

/// The page of a command that bridges, with this example of its configuration file. No function: its slices would not be
/// constants.
macro_rules! bridge_page {
    ($example:expr) => {
        &[
            Section {
                title: CONFIGURATION,
                parts: &[
                    FORMAT,
                    VALUES,
                    PRECEDENCE,
                    BRIDGE_ONLY_FLAGS,
                    MISTAKES,
                    Text("For example:"),
                    Lines($example),
                ],
            },
            BRIDGE_SIGNALS,
            BRIDGE_EXIT_STATUS,
        ]
    };
}

const PROGRAM: &[Section] = &[Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "The command has done what it was asked for, such as --help.",
        ),
        Item("1", "It has failed; one line on standard error says why."),
        BAD_COMMAND_LINE,
        Text("The pages of the commands say more."),
    ],
}];

const SERVE: &[Section] = &[
    Section {
        title: CONFIGURATION,
        parts: &[
            FORMAT,
            VALUES,
            SWITCHES,
            PRECEDENCE,
            Text(
                "directory stands for DIR. The file or the command line must name directory and listen: else a file of \
                 which only the beginning was written would be taken for a server of the bundled site.",
            ),
            ONLY_FLAGS,
            MISTAKES,
            Text("For example:"),
            Lines(SERVE_EXAMPLE),
        ],
    },
    SERVER_SIGNALS,
    SERVER_EXIT_STATUS,
    Section {
        title: FILES,
        parts: &[
            CONFIGURATION_FILE,
            Item(
                "/etc/default/softclock",
                "SOFTCLOCK_OPTIONS: the options with which softclock.service runs softclock serve.",
            ),
            Item(
                "/var/log/softclock, /run/softclock",
                "Where softclock.service may write: the file of --access-log, and sockets of unix:PATH.",
            ),
            Item(
                "softclock.service, softclock.socket",
                "Units of systemd for softclock serve and for its socket, from which the service takes connections that \
                 came while it restarted.",
            ),
            LOGROTATE,
            SAMPLES,
            SOCKETS,
            Item(
                "FILE.br, FILE.zst, FILE.gz",
                "Compressed forms of FILE in DIR, sent to clients that accept them if they are not older than FILE; \
                 --precompressed=off sends FILE itself.",
            ),
        ],
    },
];

const PROXY: &[Section] = &[
    Section {
        title: CONFIGURATION,
        parts: &[
            FORMAT,
            VALUES,
            SWITCHES,
            PRECEDENCE,
            Text("The file or the command line must name upstream and listen."),
            ONLY_FLAGS,
            MISTAKES,
            Text("For example:"),
            Lines(PROXY_EXAMPLE),
        ],
    },
    SERVER_SIGNALS,
    SERVER_EXIT_STATUS,
    Section {
        title: FILES,
        parts: &[
            CONFIGURATION_FILE,
            Item(
                "softclock-proxy.service, softclock-proxy.socket",
                "Units of systemd for softclock proxy and for its socket.",
            ),
            LOGROTATE,
            SAMPLES,
            SOCKETS,
        ],
    },
];

const TOP: &[Section] = &[
    Section {
        title: SIGNALS,
        parts: &[Item(
            "SIGINT, SIGTERM, SIGHUP",
            "On a terminal they end it as the key q does, and the terminal is as it was before.",
        )],
    },
    Section {
        title: EXIT_STATUS,
        parts: &[
            Item(
                "0",
                "It was ended on a terminal, or has printed what --once asks for.",
            ),
            Item(
                "1",
                "No metrics can be read, or the terminal cannot be used.",
            ),
            BAD_COMMAND_LINE,
        ],
    },
];

const BURST: &[Section] = &[Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "All files were read to their ends, and all that was asked for is written.",
        ),
        Item(
            "1",
            "A file cannot be read or written, or a capture is damaged or cut off; what was read until then is \
             analysed.",
        ),
        BAD_COMMAND_LINE,
    ],
}];

const PACE: &[Section] = bridge_page!(PACE_EXAMPLE);

const WAN: &[Section] = bridge_page!(WAN_EXAMPLE);

const DOCTOR: &[Section] = &[Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "Nothing is missing that softclock serve cannot do without.",
        ),
        Item("1", "Something is."),
        BAD_COMMAND_LINE,
    ],
}];

const DEMO: &[Section] = &[
    Section {
        title: SIGNALS,
        parts: &[Item("SIGINT, SIGTERM", "End it without a summary.")],
    },
    Section {
        title: EXIT_STATUS,
        parts: &[
            Item("0", "The time is over."),
            Item("1", "The server, its clients or a timer failed."),
            BAD_COMMAND_LINE,
            Item("130, 143", "SIGINT or SIGTERM ended it."),
        ],
    },
];

const SERVER_SIGNALS: Section = Section {
    title: SIGNALS,
    parts: &[
        Item(
            "SIGHUP",
            "Reads the settings again: the file of --config, the certificate, the directory that is served, the \
             addresses of upstreams. Addresses that are new are listened on, those that are gone are not; no \
             connection is dropped, and requests in progress are answered by the settings before. One line in the log \
             says what has changed. After a mistake everything stays as it was, and one line says why. --threads, \
             --spin-cap, --events and --priority change at the next start only. After the terminal was closed in which \
             it was started, SIGHUP ends the server as SIGTERM does.",
        ),
        Item(
            "SIGUSR1",
            "Opens the file of --access-log again, after it was renamed, for instance by logrotate(8).",
        ),
        Item(
            "SIGUSR2",
            "Starts the program anew, by the same path and with the same arguments, and passes the listening sockets to \
             it. When the new process is ready, this one ends as by SIGTERM, but for connections, which it lets go without \
             refusing any. If the new one does not start within 60 s, this one goes on, and one line says why.",
        ),
        Item(
            "SIGTERM, SIGINT",
            "End the server: responses in progress, and tunnels after upgrades, have the time of --drain; then those \
             that are left are cut. The second such signal ends the process at once.",
        ),
    ],
};

const SERVER_EXIT_STATUS: Section = Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "A signal ended it, whether or not connections were cut; or --check has found no mistake.",
        ),
        Item(
            "1",
            "It could not start, --check has found a mistake, or a second signal ended it at once. A mistake in the \
             configuration file counts here.",
        ),
        BAD_COMMAND_LINE,
    ],
};

const BRIDGE_SIGNALS: Section = Section {
    title: SIGNALS,
    parts: &[
        Item("SIGINT, SIGTERM", "End the bridge, and print the summary."),
        Text(
            "However it ends, by SIGKILL, too, the host handles the frames of both interfaces again.",
        ),
    ],
};

const BRIDGE_EXIT_STATUS: Section = Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "SIGINT or SIGTERM ended it, or the time of --duration is over.",
        ),
        Item(
            "1",
            "It could not start, for instance as the configuration file has a mistake, or an interface failed or is \
             gone.",
        ),
        BAD_COMMAND_LINE,
    ],
};

const FORMAT: Part = Text(
    "The file of --config is TOML in UTF-8, of 1 MiB at most, without tables. Its keys are the names of options \
     without their dashes.",
);

const VALUES: Part = Text(
    "An option without a value is true or false. One that is repeatable has a value, or a list of values. Any other \
     has a text or a number, as on the command line.",
);

const SWITCHES: Part = Text(
    "An option with on or off is true or false, too, and verbose is a whole number from 0 to 9.",
);

const PRECEDENCE: Part = Text(
    "An option of the command line wins over the file: nothing of a list in the file is added to it.",
);

const ONLY_FLAGS: Part = Text("config, check, help and version are for the command line only.");

const BRIDGE_ONLY_FLAGS: Part = Text(
    "config and help are for the command line only, and the interfaces are always named there.",
);

const MISTAKES: Part = Text(
    "A mistake, such as a key that is no option, is told in one line, with the name of the file and, where there is \
     one, the number of the line.",
);

const CONFIGURATION_FILE: Part = Item(
    "/etc/softclock/serve.toml, /etc/softclock/proxy.toml",
    "The customary names of the configuration files. One is read only if --config names it.",
);

const LOGROTATE: Part = Item(
    "/etc/logrotate.d/softclock",
    "Rotates the access logs of the units, and has the servers open them again by SIGUSR1.",
);

const SAMPLES: Part = Item(
    "/usr/share/doc/softclock/examples",
    "Configuration files to begin with.",
);

const SOCKETS: Part = Item(
    "unix:PATH",
    "A socket that is listened on is made with the permissions of --socket-mode and removed at the end. A socket that \
     a killed server has left behind is replaced.",
);

const BAD_COMMAND_LINE: Part = Item("2", "The command line has a mistake.");

const SERVE_EXAMPLE: &str = "\
directory = \"/srv/www\"
listen = [\":80\", \"tls::443\"]
tls-cert = \"/etc/ssl/chain.pem\"
tls-key = \"/etc/ssl/key.pem\"
access-log = \"/var/log/softclock/access.log\"
error-page = \"404=/errors/404.html\"
header = [\"/assets/*=Cache-Control: max-age=86400\"]
precompressed = false
threads = 2
verbose = 1
";

const PROXY_EXAMPLE: &str = "\
upstream = [\"http://127.0.0.1:3000\", \"unix:/run/app.sock\"]
listen = \":80\"
rewrite-host = true
max-fails = 5
metrics = \"127.0.0.1:9180\"
";

const PACE_EXAMPLE: &str = "\
class = [\"name voice rate 1mbit dscp ef\", \"default rate 20mbit\"]
link = \"1gbit\"
";

const WAN_EXAMPLE: &str = "\
delay = \"40ms,10ms\"
rate = \"50mbit\"
loss = \"0.1%\"
seed = 7
";

const CONFIGURATION: &str = "CONFIGURATION FILE";
const SIGNALS: &str = "SIGNALS";
const EXIT_STATUS: &str = "EXIT STATUS";
const FILES: &str = "FILES";
