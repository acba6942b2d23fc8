//! The sections of the manual that the definition of the command line does not have: configuration file, signals, exit
//! statuses, files.

#[cfg(test)]
mod tests;

use Part::{Item, Lines, Text};

/// A section of a manual page.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) parts: &'static [Part],
}

/// The parts of a section.
pub(super) enum Part {
    /// A paragraph.
    Text(&'static str),
    /// A term and its description.
    Item(&'static str, &'static str),
    /// Preformatted lines.
    Lines(&'static str),
}

/// Returns the sections of a command's page, in order.
pub(super) fn of(command: &str) -> &'static [Section] {
    match command {
        "softclock" => PROGRAM,
        "serve" => SERVE,
        "proxy" => PROXY,
        "top" => TOP,
        "burst" => BURST,
        "pace" => PACE,
        "wan" => WAN,
        "echo" => ECHO,
        "doctor" => DOCTOR,
        "demo" => DEMO,
        _ => &[],
    }
}

/// The page of a bridge command, with an example of its configuration file. A macro, since the slices that a function
/// builds would not be constants.
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
            "The command has succeeded. This includes --help and --version.",
        ),
        Item(
            "1",
            "The command has failed; one line on standard error gives the reason.",
        ),
        BAD_COMMAND_LINE,
        Text("The pages of the commands describe further statuses."),
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
                "directory stands for DIR. The file or the command line must set directory and listen: otherwise a \
                 truncated file could start a server of the bundled site.",
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
                "SOFTCLOCK_OPTIONS: the options that softclock.service passes to softclock serve.",
            ),
            Item(
                "/var/log/softclock, /run/softclock",
                "The directories that softclock.service may write to: for the file of --access-log and for unix:PATH \
                 sockets.",
            ),
            Item(
                "softclock.service, softclock.socket",
                "systemd units of softclock serve and of its socket, which queues the connections that arrive while \
                 the service restarts.",
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
            Text("The file or the command line must set upstream and listen."),
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
                "systemd units of softclock proxy and of its socket.",
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
            "On a terminal they end the display like the key q, and restore the terminal.",
        )],
    },
    Section {
        title: EXIT_STATUS,
        parts: &[
            Item(
                "0",
                "The user ended the display, or --once has printed its rates.",
            ),
            Item(
                "1",
                "No metrics can be read, the terminal cannot be used, or the output cannot be written.",
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
            "All files were read to their ends, and all output was written.",
        ),
        Item(
            "1",
            "A file cannot be read or written, or a capture is damaged or truncated; the packets before that are \
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
        Item("0", "softclock serve can run on this machine."),
        Item(
            "1",
            "A feature that softclock serve needs is missing, or the output cannot be written.",
        ),
        BAD_COMMAND_LINE,
    ],
}];

const DEMO: &[Section] = &[
    Section {
        title: SIGNALS,
        parts: &[Item("SIGINT, SIGTERM", "End the demo without a summary.")],
    },
    Section {
        title: EXIT_STATUS,
        parts: &[
            Item("0", "The demo ran to its end."),
            Item("1", "The server, its clients or a timer failed."),
            BAD_COMMAND_LINE,
            Item("130, 143", "SIGINT or SIGTERM ended the demo."),
        ],
    },
];

const SERVER_SIGNALS: Section = Section {
    title: SIGNALS,
    parts: &[
        Item(
            "SIGHUP",
            "Reads the settings again: the file of --config, the certificate, the served directory, the addresses of \
             upstreams. The server listens on added addresses and stops listening on removed ones; no connection is \
             dropped, and requests in progress are answered with the old settings. One line in the log lists the \
             changes. If the new settings have a mistake, the old ones stay, and one line gives the reason. \
             --threads, --spin-cap, --events, --busy-poll, --priority, --napi, --signalling and the options of the \
             stack (--dev, --tcp-memory and so on) change at the next start only; a line in the log says so. If the \
             terminal in which the server was started has been closed, SIGHUP ends the server like SIGTERM.",
        ),
        Item(
            "SIGUSR1",
            "Reopens the file of --access-log, for use after it was renamed, for instance by logrotate(8).",
        ),
        Item(
            "SIGUSR2",
            "Starts a new process from the same path with the same arguments, and passes the listening sockets to it. \
             When the new process is ready, the old one finishes its connections and ends as by SIGTERM; no \
             connection is refused meanwhile. If the new process is not ready within 60 s, the old one continues, and \
             one line in the log gives the reason. So does a server with a stack (--dev), at once: no other process \
             can take the stack over.",
        ),
        Item(
            "SIGTERM, SIGINT",
            "End the server: responses in progress, and tunnels after upgrades, may take the time of --drain; then \
             the rest are cut off. A second such signal ends the process at once.",
        ),
    ],
};

const SERVER_EXIT_STATUS: Section = Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "A signal ended the server, whether or not connections were cut off; or --check has found no mistake.",
        ),
        Item(
            "1",
            "The server could not start, for instance because of a mistake in the configuration file; --check has \
             found a mistake; or a second signal ended the server at once.",
        ),
        BAD_COMMAND_LINE,
    ],
};

const BRIDGE_SIGNALS: Section = Section {
    title: SIGNALS,
    parts: &[
        Item("SIGINT, SIGTERM", "End the bridge and print the summary."),
        Text(
            "When the bridge ends, even by SIGKILL, the host handles the frames of both interfaces again.",
        ),
    ],
};

const BRIDGE_EXIT_STATUS: Section = Section {
    title: EXIT_STATUS,
    parts: &[
        Item(
            "0",
            "SIGINT or SIGTERM ended the bridge, or the time of --duration is over.",
        ),
        Item(
            "1",
            "The bridge could not start, for instance because of a mistake in the configuration file; or an interface \
             failed or was removed; or the summary cannot be written.",
        ),
        BAD_COMMAND_LINE,
    ],
};

const ECHO: &[Section] = &[
    Section {
        title: SIGNALS,
        parts: &[
            Item("SIGINT, SIGTERM", "End the server and print the summary."),
            Text(
                "When the server ends, even by SIGKILL, nothing of it stays on the interface, and its TAP device is gone.",
            ),
        ],
    },
    Section {
        title: EXIT_STATUS,
        parts: &[
            Item(
                "0",
                "SIGINT or SIGTERM ended the server, or the time of --duration is over.",
            ),
            Item(
                "1",
                "The server could not start, its interface was removed, or the summary cannot be written.",
            ),
            BAD_COMMAND_LINE,
        ],
    },
];

const FORMAT: Part = Text(
    "The file of --config is TOML in UTF-8, at most 1 MiB, without tables. Its keys are the names of options without \
     the leading dashes.",
);

const VALUES: Part = Text(
    "A flag without a value takes true or false. A repeatable option takes one value or a list. Any other option \
     takes a string or a number, as on the command line.",
);

const SWITCHES: Part = Text(
    "Options with the values on and off also take true and false. verbose takes a whole number from 0 to 9.",
);

const PRECEDENCE: Part =
    Text("An option on the command line replaces the setting of the file, even a list.");

const ONLY_FLAGS: Part =
    Text("config, check, help and version can be given on the command line only.");

const BRIDGE_ONLY_FLAGS: Part =
    Text("config, help and the interfaces can be given on the command line only.");

const MISTAKES: Part = Text(
    "A mistake, such as an unknown key, is reported on one line, with the name of the file and, if it applies, the \
     line number.",
);

const CONFIGURATION_FILE: Part = Item(
    "/etc/softclock/serve.toml, /etc/softclock/proxy.toml",
    "The usual names of the configuration files. A file is read only if --config names it.",
);

const LOGROTATE: Part = Item(
    "/etc/logrotate.d/softclock",
    "Rotates the access logs of the units, and signals the servers to reopen them (SIGUSR1).",
);

const SAMPLES: Part = Item(
    "/usr/share/doc/softclock/examples",
    "Sample configuration files.",
);

const SOCKETS: Part = Item(
    "unix:PATH",
    "The server creates its socket with the permissions of --socket-mode and removes it at the end. It replaces a \
     socket that a killed server has left behind.",
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
