//! A new process of the program, perhaps of another version, that takes over the listeners.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use softclock::Instant;
use softclock::net::UnixStream;
use softclock_linux::handover::{self, Successor};

/// A starting process, while this one still serves.
#[derive(Debug)]
pub(crate) struct Replacement {
    child: Child,
    ready: UnixStream,
    deadline: Instant,
}

impl Replacement {
    /// Starts the program from the path that it was started from, which may hold another version by then.
    pub(crate) fn start(
        arguments: &[OsString],
        sockets: Vec<(String, OwnedFd)>,
    ) -> io::Result<Self> {
        let path = OsStr::from_bytes(rustix::param::linux_execfn().to_bytes());
        // A bare name would be searched for in PATH.
        let path = Path::new(".").join(path);
        let mut command = Command::new(&path);
        if let [name, arguments @ ..] = arguments {
            command.arg0(name).args(arguments);
        }
        Self::run(command, sockets, START_LIMIT).map_err(|error| {
            let message = format!("cannot start {}: {error}", path.display());
            io::Error::new(error.kind(), message)
        })
    }

    fn run(command: Command, sockets: Vec<(String, OwnedFd)>, limit: Duration) -> io::Result<Self> {
        let Successor { child, ready } = handover::start(command, sockets)?;
        tracing::info!(pid = child.id(), "a new process starts");
        Ok(Self {
            child,
            ready: UnixStream::from_std(ready)?,
            deadline: softclock::now() + limit,
        })
    }

    /// Waits until the new process is ready, and returns its process ID. On failure ends it, and returns the reason.
    /// Cancel-safe: the future may be dropped, and the method called again.
    pub(crate) async fn ready(&mut self) -> Result<u32, String> {
        let left = self.deadline.since(softclock::now());
        let mut byte = [0];
        let reason = match softclock::timeout(left, self.ready.read(&mut byte)).await {
            Ok(Ok(1..)) => return Ok(self.child.id()),
            Ok(Ok(0)) => "the new process has ended",
            Ok(Err(_)) => "the new process cannot be reached",
            Err(_) => "the new process was not ready in time and was ended",
        };
        Err(match self.stop() {
            Ok(status) => format!("{reason} ({status}); its own log gives the reason"),
            Err(error) => format!("{reason}: {error}"),
        })
    }

    /// Ends the new process.
    pub(crate) fn end(mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "cannot end the new process");
        }
    }

    fn stop(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

/// Time limit of the new process' start, which includes reading certificates and resolving names of upstreams.
const START_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(program: &str, argument: &str, limit_ms: u64) -> String {
        let runtime = softclock::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut command = Command::new(program);
            command.arg(argument);
            let limit = Duration::from_millis(limit_ms);
            let mut replacement = Replacement::run(command, Vec::new(), limit).unwrap();
            replacement.ready().await.unwrap_err()
        })
    }

    #[test]
    fn one_that_ends_or_takes_too_long_is_told() {
        let ended = outcome("false", "", 60_000);
        assert!(ended.contains("has ended (exit status: 1)"), "{ended}");
        let late = outcome("sleep", "3600", 50);
        assert!(late.contains("not ready in time"), "{late}");
    }
}
