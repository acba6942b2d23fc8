//! The program under test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use softclock_testing::KilledOnDrop;
pub(crate) use softclock_testing::{directory, noise};
use tempfile::NamedTempFile;

use crate::client::Client;
use crate::own_stack::Device;

/// Copies the program by another process. If this one had the copy open to write, so had the children that other tests
/// start at that moment, and it could not be executed until they are executed themselves (ETXTBSY).
pub(crate) fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_softclock")).arg(to);
    assert!(copy.status().expect("cp").success());
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: KilledOnDrop,
    addresses: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    log: NamedTempFile,
    /// Kept open, but not read further.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Serves `directory`, or the bundled site, on a free port of 127.0.0.1.
    pub(crate) fn start(directory: Option<&Path>, options: &[&str]) -> Self {
        let mut command = softclock();
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .args(directory);
        Self::spawn(&mut command)
    }

    /// Runs `command` until it has printed its addresses.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let log = NamedTempFile::new().expect("a temporary file");
        let errors = log.reopen().expect("its second handle");
        Self::spawn_with(command, log, errors.into())
    }

    /// Like `spawn`, with a standard error other than the file of [`log`](Self::log).
    pub(crate) fn spawn_with_stderr(command: &mut Command, errors: impl Into<Stdio>) -> Self {
        let log = NamedTempFile::new().expect("a temporary file");
        Self::spawn_with(command, log, errors.into())
    }

    fn spawn_with(command: &mut Command, log: NamedTempFile, errors: Stdio) -> Self {
        let mut on_device = Device::for_program(command);
        let command = match &mut on_device {
            Some((_, command)) => command,
            None => command,
        };
        let command = command.stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().expect("the program starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut text = String::new();
        while !text.contains("Ctrl-C") {
            assert_ne!(
                output.read_line(&mut text).expect("text"),
                0,
                "it ended after: {text:?} {:?}",
                fs::read_to_string(log.path())
            );
        }
        if let Some((device, _)) = &on_device {
            device.connect();
        }
        let address = |url: &str| {
            let (_, rest) = url.split_once("://")?;
            let address = rest.split('/').next()?.replace("localhost", "127.0.0.1");
            Some(address.parse().expect("an address"))
        };
        let sites = text.lines().filter(|line| line.starts_with("  http"));
        let addresses = sites.filter_map(address).collect();
        let metrics = text.lines().find(|line| line.contains("metrics"));
        Self {
            child: KilledOnDrop::new(child),
            addresses,
            metrics: metrics.and_then(address),
            log,
            _output: output,
        }
    }

    /// The address of its metrics.
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.metrics.expect("the option --metrics")
    }

    /// How many times a limit was reached, by its name in the metrics.
    pub(crate) fn reached(&self, limit: &str) -> f64 {
        let name = format!("softclock_limits_reached_total{{limit=\"{limit}\"}}");
        metric(self.metrics(), &name)
    }

    /// The log on stderr so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.path()).expect("the log")
    }

    /// Waits until the log contains `part`.
    pub(crate) fn until_logged(&self, part: &str) {
        until(part, || self.log().contains(part));
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a signal to our own child");
    }

    /// Stops the process, runs `meanwhile`, and continues the process.
    pub(crate) fn while_stopped<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
        self.signal(Signal::STOP);
        until("stopped", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()));
            let stat = stat.expect("a running process");
            let (_, behind_name) = stat.rsplit_once(") ").expect("a name");
            behind_name.starts_with('T')
        });
        let result = meanwhile();
        self.signal(Signal::CONT);
        result
    }

    /// Waits for the end, for ten seconds at most.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn has_thread(&self, name: &str) -> bool {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a running process");
        let mut names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        // The kernel keeps fifteen characters of a name.
        names.any(|comm| {
            name.starts_with(comm.trim_end()) && comm.trim_end().len() >= name.len().min(15)
        })
    }

    /// How many times each of its threads has been scheduled, by the thread's id.
    pub(crate) fn switches(&self) -> Vec<(String, String)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("a running process");
        let mut all: Vec<_> = tasks
            .filter_map(|task| {
                let task = task.ok()?;
                let status = fs::read_to_string(task.path().join("status")).ok()?;
                let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
                let id = task.file_name().to_string_lossy().into_owned();
                Some((id, lines.collect()))
            })
            .collect();
        all.sort();
        all
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The number of its open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let list = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        list.expect("a running process").count()
    }

    /// The peak of its resident memory so far.
    pub(crate) fn peak_resident_kb(&self) -> u64 {
        softclock_testing::peak_resident_kb(self.id()).expect("a running process")
    }

    /// Its resident memory.
    pub(crate) fn resident_kb(&self) -> u64 {
        softclock_testing::resident_kb(self.id()).expect("a running process")
    }
}

/// The mechanisms of readiness that work here.
pub(crate) fn mechanisms() -> Vec<&'static str> {
    let all = ["epoll", "io_uring", "poll", "select"].into_iter();
    let works = |name: &&str| {
        let mechanism = name.parse().expect("a name");
        softclock_linux::readiness::Poller::with_mechanism(mechanism).is_ok()
    };
    all.filter(works).collect()
}

/// A metric's value on the page at `address`, by its name and labels.
pub(crate) fn metric(address: SocketAddr, name: &str) -> f64 {
    let page = Client::connect(address).get("/metrics");
    let line = page.text().lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {}", page.text()))
}

/// The program, without options.
pub(crate) fn softclock() -> Command {
    Command::new(env!("CARGO_BIN_EXE_softclock"))
}

/// Waits until a condition holds, for ten seconds at most.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
