//! Web servers and proxies as processes: softclock and its peers, each with one worker, started for a measurement and
//! ended with it.

mod caddy;
mod certificate;
pub(crate) mod haproxy;
pub(crate) mod nginx;
mod proxies;
mod softclock;

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};
use softclock_linux::child::end_with_parent;
use softclock_testing::lab::Namespace;

use crate::measure::accounts::Accounts;

pub use certificate::Certificate;
pub use proxies::{BESIDE_PEERS, ProxyKind};
pub(crate) use softclock::command as softclock_command;
pub use softclock::{ServeOptions, StackArguments, proxy, serve};

/// A web server to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server of `softclock serve` with its defaults, in another process of this program.
    Softclock,
    /// nginx, with a method of sending files.
    Nginx(nginx::Files),
    /// Caddy, with a frequency of garbage collection.
    Caddy(caddy::Garbage),
}

impl Kind {
    /// All servers, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Softclock,
        Self::Nginx(nginx::Files::Sendfile),
        Self::Nginx(nginx::Files::SendfileCached),
        Self::Nginx(nginx::Files::ReadCached),
        Self::Caddy(caddy::Garbage::Usual),
        Self::Caddy(caddy::Garbage::Seldom),
    ];

    /// Returns the name in tables: the program, and the settings in which its rows differ.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softclock => "softclock",
            Self::Nginx(nginx::Files::Sendfile) => "nginx, tcp_nopush on, sendfile on",
            Self::Nginx(nginx::Files::SendfileCached) => {
                "nginx, tcp_nopush on, sendfile on, open_file_cache"
            }
            Self::Nginx(nginx::Files::ReadCached) => "nginx, sendfile off, open_file_cache",
            Self::Caddy(caddy::Garbage::Usual) => "Caddy",
            Self::Caddy(caddy::Garbage::Seldom) => "Caddy, GOGC=1000",
        }
    }

    /// Returns the program's Debian package, or `None` for softclock.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Self::Softclock => None,
            Self::Nginx(_) => Some("nginx"),
            Self::Caddy(_) => Some("caddy"),
        }
    }

    /// Returns the version that the program prints, or `None` if it is not installed.
    pub fn version(self) -> Option<String> {
        let (program, argument) = match self {
            Self::Softclock => return Some(env!("CARGO_PKG_VERSION").to_owned()),
            Self::Nginx(_) => (nginx::program(), "-v"),
            Self::Caddy(_) => (caddy::PROGRAM, "version"),
        };
        version(program, argument)
    }

    /// Starts the server with the files of `root`, which all users must be able to read; it accepts connections when
    /// this returns. It stays on the processor that this thread is pinned to, and ends when this thread does.
    ///
    /// # Errors
    /// The program is not installed, does not start or does not listen; the error has its output.
    pub fn start(self, root: &Path) -> io::Result<Server> {
        Server::start(|address, directory| match self {
            Self::Softclock => softclock::command(Some(root), address),
            Self::Nginx(files) => nginx::command(files, root, address, directory),
            Self::Caddy(garbage) => caddy::command(garbage, root, address, directory),
        })
    }
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts the command that `command` returns for a free address and a new directory.
    pub(crate) fn start(
        command: impl FnOnce(SocketAddr, &Path) -> io::Result<Command>,
    ) -> io::Result<Self> {
        let [address] = free_addresses()?;
        let mut server = Self::spawn(address, |directory| command(address, directory))?;
        server.wait_until(PATIENCE, || TcpStream::connect(address).is_ok())?;
        Ok(server)
    }

    /// Starts the command that `command` returns for a new directory in a namespace, where it listens on `address`.
    /// Returns when `accepts` returns true.
    pub(crate) fn start_in(
        namespace: &Namespace,
        address: SocketAddr,
        command: impl FnOnce(&Path) -> io::Result<Command>,
        accepts: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let inside = |directory: &Path| {
            let command = command(directory)?;
            let program = command.get_program().to_string_lossy().into_owned();
            let mut inside = namespace.command(&program);
            inside.args(command.get_args());
            Ok(inside)
        };
        let mut server = Self::spawn(address, inside)?;
        server.wait_until(LONG_PATIENCE, accepts)?;
        Ok(server)
    }

    fn spawn(
        address: SocketAddr,
        command: impl FnOnce(&Path) -> io::Result<Command>,
    ) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        readable_by_all(directory.path())?;
        let mut command = command(directory.path())?;
        let log = File::create(directory.path().join(LOG))?;
        end_with_parent(&mut command)
            // softclock's servers end when this pipe is closed.
            .stdin(Stdio::piped())
            // A file rather than a pipe, which could fill and block the server.
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Self {
            child: command.spawn()?,
            address,
            directory,
        })
    }

    fn wait_until(&mut self, patience: Duration, accepts: impl Fn() -> bool) -> io::Result<()> {
        let start = Instant::now();
        while !accepts() {
            if self.child.try_wait()?.is_some() || start.elapsed() > patience {
                let said = fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
                let said = said.trim().replace('\n', " ");
                return Err(io::Error::other(format!(
                    "the server does not listen: {said}"
                )));
            }
            thread::sleep(LOOK_UP);
        }
        Ok(())
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the processor time of its processes, in user and kernel mode. The kernel counts it in steps of mostly 10
    /// ms.
    ///
    /// # Errors
    /// The server has ended.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.processes().into_iter().map(cpu_time).sum()
    }

    /// Returns the time for which its threads have run so far. Unlike [`cpu_time`](Self::cpu_time), it is exact.
    ///
    /// # Errors
    /// The server has ended, or the kernel does not count (CONFIG_SCHED_INFO).
    pub fn run_time(&self) -> io::Result<Duration> {
        self.processes().into_iter().map(run_time).sum()
    }

    /// Returns the memory of its processes that is resident, in bytes.
    ///
    /// # Errors
    /// The server has ended.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        self.processes().into_iter().map(resident_bytes).sum()
    }

    /// Returns the ids of its processes.
    pub fn processes(&self) -> Vec<u32> {
        processes(self.child.id())
    }

    /// Sends a signal to all of its processes.
    ///
    /// # Errors
    /// One of them has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pids = self.processes().into_iter();
        pids.filter_map(|id| Pid::from_raw(id.cast_signed()))
            .try_for_each(|pid| Ok(kill_process(pid, signal)?))
    }

    /// Returns the number of descriptors that its processes have open.
    ///
    /// # Errors
    /// The server has ended, or belongs to another user.
    pub fn descriptors(&self) -> io::Result<usize> {
        let count = |id| Ok(fs::read_dir(format!("/proc/{id}/fd"))?.count());
        self.processes().into_iter().map(count).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Before the signal: children cannot be found after their parent has ended.
        let all = processes(self.child.id());
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        // A stopped process ends when it goes on.
        let _ = self.signal(Signal::CONT);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK_UP);
        }
        // It did not end by SIGTERM: kill all of it.
        for process in all {
            if let Some(pid) = Pid::from_raw(process.cast_signed()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

/// Returns the version that a program prints, or `None` if it is not installed.
pub(crate) fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    // nginx prints its version on standard error.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let version = said.lines().next()?.trim();
    Some(version.replace("nginx version: nginx/", ""))
}

/// Returns a process and its children; these servers have no deeper descendants.
fn processes(id: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    std::iter::once(id).chain(children).collect()
}

pub(crate) fn cpu_time(id: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let ticks = cpu_ticks(&stat).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Duration::from_secs(ticks) / clock_ticks_per_second() as u32)
}

/// Returns the run time of all threads of a process.
pub(crate) fn run_time(id: u32) -> io::Result<Duration> {
    let threads = Accounts::of_process(id)?;
    Ok(threads.iter().map(|thread| thread.ran).sum())
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident_bytes(id: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or(io::ErrorKind::InvalidData)? << 10)
}

/// Returns `utime` plus `stime`, fields 14 and 15 of `proc_pid_stat(5)`. The second field is the program's name, which
/// may contain any character, so parsing starts after it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Returns different free addresses. Another program may take one before it is used.
pub(crate) fn free_addresses<const N: usize>() -> io::Result<[SocketAddr; N]> {
    // All are bound at the same time, because the kernel may assign the port of a closed listener again.
    let mut listeners = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address)?;
        *address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addresses)
}

/// Makes a directory readable for all users: servers that root starts give up their rights in the workers.
///
/// # Errors
/// Those of `chmod(2)`.
pub fn readable_by_all(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
}

pub(crate) fn write_file(directory: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let path = directory.join(name);
    fs::write(&path, text)?;
    Ok(path)
}

const LOG: &str = "log";

/// The time within which a server must start or end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for a server that runs in an emulator.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

const LOOK_UP: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_a_name_that_may_hold_anything() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 98 0 0 0 12 30 0 0 20 0 1 0 900";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
        assert!(cpu_time(std::process::id()).is_ok());
        assert!(resident_bytes(std::process::id()).is_ok_and(|bytes| bytes > 0));
    }
}
