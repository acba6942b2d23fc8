//! `cargo xtask instructions`: the instructions that `serve` and `proxy` execute for each request.
//!
//! Instructions in user space are the same on a busy machine, which times are not, so versions can be compared to a
//! fraction of a percent. Each case runs under callgrind with few requests and with many: starting and ending cancel
//! out in the difference.
//!
//! Clients and upstreams speak only while the server waits for them, as how much it finds at once would else depend on
//! the load of the machine. The least of several rounds counts, as time-dependent work only adds: a connection whose
//! client pauses for 10 ms, say, is made small.

mod http;
mod quiescence;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::command::{output, program, run};
use http::{Connections, request, upstream};
use quiescence::Quiescence;

/// Measures every program named, and compares each with the first.
pub(crate) fn task(programs: &[String]) -> ExitCode {
    match measure_all(programs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(programs: &[String]) -> Result<(), String> {
    let programs: Vec<PathBuf> = programs
        .iter()
        .map(|path| fs::canonicalize(path).map_err(|error| format!("{path}: {error}")))
        .collect::<Result<_, _>>()?;
    output(program("valgrind", ["--version"]))?;
    let site = Site::new()?;
    println!("instructions a request, and what they are of the first program's:");
    let opens_files = programs
        .iter()
        .all(|program| site.can_be_opened_by(program));
    if !opens_files {
        println!("(this valgrind does not know openat2: of the files only the program's own)");
    }
    for case in Case::all().filter(|case| opens_files || !case.needs_files()) {
        let mut line = format!("{:<36}", case.name());
        let mut first = None;
        for program in &programs {
            let count = case.instructions(program, &site)?;
            let base = *first.get_or_insert(count);
            line += &format!("  {count:>8.0}  {:>7.2} %", count / base * 100.0);
        }
        println!("{line}");
    }
    Ok(())
}

/// One case: the command, the requested file, and whether connections are kept.
struct Case {
    command: &'static str,
    path: &'static str,
    connections: Connections,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let asked = [
            ("serve", BUNDLED),
            ("serve", "/1024"),
            ("serve", "/6144"),
            ("proxy", "/1024"),
            ("proxy", "/6144"),
        ];
        asked.into_iter().flat_map(|(command, path)| {
            [Connections::Kept, Connections::OneEach].map(|connections| Self {
                command,
                path,
                connections,
            })
        })
    }

    fn name(&self) -> String {
        let connections = match self.connections {
            Connections::Kept => "keep-alive",
            Connections::OneEach => "a connection each",
        };
        format!("{} {}, {connections}", self.command, self.path)
    }

    fn needs_files(&self) -> bool {
        self.command == "serve" && self.path != BUNDLED
    }

    fn instructions(&self, program: &Path, site: &Site) -> Result<f64, String> {
        let least = |requests| -> Result<u64, String> {
            let rounds = (0..ROUNDS).map(|_| self.total(program, site, requests));
            rounds.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(0))
        };
        let (few, many) = (least(FEW_REQUESTS)?, least(MANY_REQUESTS)?);
        Ok((many as f64 - few as f64) / f64::from(MANY_REQUESTS - FEW_REQUESTS))
    }

    /// The instructions of a whole process that answers so many requests.
    fn total(&self, program: &Path, site: &Site, requests: u32) -> Result<u64, String> {
        let counts = site.directory.join("callgrind.out");
        let messages = site.directory.join("valgrind.log");
        let quiescence = Quiescence::default();
        let address = free_address()?;
        let mut command = Command::new("valgrind");
        command
            .arg("--tool=callgrind")
            .arg(format!("--log-file={}", messages.display()))
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .arg(program)
            .args([self.command, "--threads", "1"])
            .arg(format!("--listen={address}"));
        if self.needs_files() {
            command.arg(&site.directory);
        } else if self.command == "proxy" {
            command.arg(format!("--upstream=http://{}", upstream(&quiescence)?));
        }
        let server = Server::start(command, address)?;
        quiescence.watch(server.0.id());
        request(address, self.path, requests, self.connections, &quiescence)
            .map_err(|error| format!("{}: {error}", self.name()))?;
        server.stop()?;
        let text = fs::read_to_string(&counts).map_err(|error| format!("callgrind: {error}"))?;
        total_of(&text).ok_or_else(|| "callgrind's output has no total".to_owned())
    }
}

/// The total of callgrind's output.
fn total_of(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
    total?.trim().parse().ok()
}

/// A directory with a file for each size, which is removed when dropped.
struct Site {
    directory: PathBuf,
}

impl Site {
    fn new() -> Result<Self, String> {
        let name = format!("softclock-instructions-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let site = Self { directory };
        let write = || {
            fs::create_dir_all(&site.directory)?;
            [1024, 6144].into_iter().try_for_each(|size: usize| {
                fs::write(site.directory.join(size.to_string()), vec![b'x'; size])
            })
        };
        write().map_err(|error| format!("{}: {error}", site.directory.display()))?;
        Ok(site)
    }

    /// Whether valgrind knows the system calls by which `program` opens files.
    fn can_be_opened_by(&self, program: &Path) -> bool {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=none"]).arg(program);
        command.args(["serve", "--check"]).arg(&self.directory);
        output(command).is_ok()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server under callgrind, which is killed when dropped.
struct Server(Child);

impl Server {
    /// Starts it, and returns when it accepts connections.
    fn start(mut command: Command, address: SocketAddr) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| format!("valgrind: {error}"))?;
        let mut server = Self(child);
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(format!("the server ended with {status}"));
            }
            if start.elapsed() > START_LIMIT {
                return Err("the server does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Ends it as a service manager would, so that callgrind writes its counts.
    fn stop(mut self) -> Result<(), String> {
        let process = self.0.id().to_string();
        run(program("kill", ["-TERM", &process]))?;
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the server ended with {status}")),
            Err(error) => Err(format!("the server: {error}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of the loopback interface that nothing listens on.
fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map_err(|error| format!("no free port: {error}"))
}

/// Of the site that `serve` shows without a directory.
const BUNDLED: &str = "/style.css";

const ROUNDS: u32 = 3;
const FEW_REQUESTS: u32 = 200;
const MANY_REQUESTS: u32 = 1200;

/// Callgrind slows a program down by a factor of fifty or so.
const START_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_stands_in_a_line_of_its_own() {
        assert_eq!(total_of("events: Ir\n1 2\ntotals: 123\n"), Some(123));
        assert_eq!(total_of("events: Ir\n"), None);
    }
}
