//! Three network namespaces in a row, the program in the middle one:
//! left (`west` 10.77.0.1, fd77::1) -- `veA` [middle] `veB` -- `east` (10.77.0.2, fd77::2).

use std::io::{self, BufRead, BufReader, Read};
use std::process::{ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

/// The namespaces, which exist until this is dropped.
pub(crate) struct Lab {
    west: Namespace,
    middle: Namespace,
    east: Namespace,
}

/// A place in the lab.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    West,
    Middle,
    East,
}

impl Lab {
    /// Creates a lab for one test; an error gives the reason why this machine cannot have one.
    pub(crate) fn new() -> Result<Self, String> {
        let lab = Self {
            west: Namespace::new()?,
            middle: Namespace::new()?,
            east: Namespace::new()?,
        };
        lab.link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    fn link(&self) -> io::Result<()> {
        connect((&self.middle, "veA"), (&self.west, "west"))?;
        connect((&self.middle, "veB"), (&self.east, "east"))?;
        for (place, link, host) in [(&self.west, "west", 1), (&self.east, "east", 2)] {
            let addresses = format!(
                "addr add 10.77.0.{host}/24 dev {link}\naddr add fd77::{host}/64 dev {link} nodad\n"
            );
            place.batch("ip", &addresses)?;
        }
        Ok(())
    }

    /// Runs `ip` with these words at a place.
    pub(crate) fn configure(&self, place: Place, words: &str) {
        let done = self.namespace(place).run(&format!("ip {words}"));
        done.unwrap_or_else(|error| panic!("ip {words}: {error}"));
    }

    /// A command that runs at a place.
    pub(crate) fn command(&self, place: Place, program: &str) -> Command {
        self.namespace(place).command(program)
    }

    /// Runs a command line at a place to its end.
    pub(crate) fn run(&self, place: Place, words: &str) -> Output {
        let mut words = words.split(' ');
        let mut command = self.command(place, words.next().expect("a program"));
        command.args(words).output().expect("nsenter is installed")
    }

    /// The output of `ip link` about the middle's links, without their carrier: the kernel may notice that of a new
    /// link up to a second late.
    pub(crate) fn links(&self) -> Value {
        let output = self.run(Place::Middle, "ip -details -json link show");
        let mut links: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for link in links.as_array_mut().expect("a list of links") {
            link["operstate"].take();
            let flags = link["flags"].as_array_mut().expect("a list of flags");
            flags.retain(|flag| flag != "NO-CARRIER" && flag != "LOWER_UP");
        }
        links
    }

    /// Waits until the middle's links are as they were.
    pub(crate) fn await_links(&self, before: &Value) {
        let since = Instant::now();
        // The kernel closes the sockets of a dead process some time after its end.
        while self.links() != *before {
            let late = since.elapsed() > Duration::from_secs(20);
            assert!(!late, "{} is not {before}", self.links());
        }
    }

    /// Whether a place has an interface of this name.
    pub(crate) fn has_link(&self, place: Place, name: &str) -> bool {
        let output = self.run(place, &format!("ip link show {name}"));
        output.status.success()
    }

    /// Runs the program in the middle to its end.
    pub(crate) fn softclock(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(Place::Middle, env!("CARGO_BIN_EXE_softclock"));
        command
            .args(arguments)
            .output()
            .expect("nsenter is installed")
    }

    /// Starts `softclock COMMAND veA veB --json` with these arguments, and waits until it carries frames.
    pub(crate) fn bridge(&self, command: &str, arguments: &[&str]) -> Bridge {
        self.bridge_between(command, ["veA", "veB"], arguments)
    }

    /// Like `bridge`, between other interfaces.
    pub(crate) fn bridge_between(
        &self,
        command: &str,
        sides: [&str; 2],
        arguments: &[&str],
    ) -> Bridge {
        let mut child = self
            .command(Place::Middle, env!("CARGO_BIN_EXE_softclock"))
            .arg(command)
            .args(sides)
            .arg("--json")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter is installed");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("between ") {
            line.clear();
            let read = errors.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "it ended before it carried frames");
        }
        Bridge {
            child: KilledOnDrop::new(child),
            errors,
            greeting: line,
        }
    }

    /// Megabits per second that arrive in the east from iperf3 in the west.
    pub(crate) fn iperf(&self, port: u16, arguments: &str) -> f64 {
        self.iperf_from(Place::West, port, arguments)
    }

    /// Like `iperf`, from another place.
    pub(crate) fn iperf_from(&self, place: Place, port: u16, arguments: &str) -> f64 {
        let port = port.to_string();
        let server = self
            .command(Place::East, "iperf3")
            .args(["--server", "--one-off", "--forceflush", "--port", &port])
            .stdout(Stdio::piped())
            .spawn();
        let mut server = KilledOnDrop::new(server.expect("nsenter is installed"));
        let mut hello = [0; 1];
        let output = server.stdout.as_mut().expect("piped");
        output.read_exact(&mut hello).expect("it listens");
        // iperf3 would wait without limit for a connection that no bridge passes on.
        let client = self
            .command(place, "timeout")
            .args([
                "60",
                "iperf3",
                "--json",
                "--time",
                "2",
                "--connect-timeout",
                "3000",
                "--port",
                &port,
            ])
            .args(arguments.split(' '))
            .output()
            .expect("nsenter is installed");
        drop(server);
        let report: Value = serde_json::from_slice(&client.stdout).expect("JSON");
        let end = &report["end"];
        let received = end.get("sum_received").unwrap_or(&end["sum"]);
        let rate = received["bits_per_second"].as_f64();
        rate.unwrap_or_else(|| panic!("no result: {report}")) / 1e6
    }

    pub(crate) fn namespace(&self, place: Place) -> &Namespace {
        match place {
            Place::West => &self.west,
            Place::Middle => &self.middle,
            Place::East => &self.east,
        }
    }
}

/// A running bridge, killed when dropped.
pub(crate) struct Bridge {
    child: KilledOnDrop,
    errors: BufReader<ChildStderr>,
    /// The line that the bridge prints when it carries frames.
    pub(crate) greeting: String,
}

impl Bridge {
    /// Ends the bridge as an administrator would, and returns its summary.
    pub(crate) fn end(self) -> Value {
        self.end_by(Signal::TERM)
    }

    /// Ends the bridge by SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(self) -> Value {
        self.end_by(Signal::INT)
    }

    fn end_by(mut self, signal: Signal) -> Value {
        kill_process(self.pid(), signal).expect("our own child");
        let mut text = String::new();
        let output = self.child.stdout.as_mut().expect("piped");
        output.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("our own child").success());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Waits until the bridge fails, and returns its output.
    pub(crate) fn fail(mut self) -> String {
        let mut text = String::new();
        self.errors.read_to_string(&mut text).expect("text");
        assert!(!self.child.wait().expect("our own child").success());
        text
    }

    /// Kills the bridge, so that it cannot clean up.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child")
    }

    pub(crate) fn pid(&self) -> Pid {
        // nsenter executes the program, so the process ID is the same.
        Pid::from_child(&self.child)
    }
}

/// Creates a lab, or skips the test.
macro_rules! lab {
    () => {{
        softclock_testing::require!("ip", "unshare", "nsenter", "ping", "iperf3");
        match crate::lab::Lab::new() {
            Ok(lab) => lab,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(crate) use lab;

/// Creates a lab in which AF_XDP works, or skips the test.
macro_rules! xdp_lab {
    () => {{
        use softclock_linux::probe::{xdp_program, xdp_socket};
        if let Err(error) = xdp_socket().and_then(|()| xdp_program()) {
            softclock_testing::skip!("AF_XDP cannot be used here: {error}");
        }
        crate::lab::lab!()
    }};
}
pub(crate) use xdp_lab;
