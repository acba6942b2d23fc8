//! Load by `wrk`. SIGINT ends it, because its own durations are whole seconds.

use std::fs;
use std::io::{self, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use softclock_linux::child::end_with_parent;

use super::{Outcome, Target};

pub(super) fn is_installed() -> bool {
    let version = Command::new("wrk")
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok()
}

pub(super) fn run(target: &Target<'_>, over: impl Fn() -> bool) -> io::Result<Outcome> {
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(SCRIPT.as_bytes())?;
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "-d1h", "-c"])
        .arg(target.connections.to_string())
        .arg("-s")
        .arg(script.path());
    if !target.keep_alive {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(format!("http://{}{}", target.address, target.path));
    let mut wrk = Wrk(Some(
        end_with_parent(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?,
    ));
    // Poll rather than wait: `over` is the caller's condition. A signal before wrk handles it would leave no output.
    while !(wrk.is_connected() && over()) {
        if wrk.has_ended()? {
            break;
        }
        thread::sleep(LOOK_UP);
    }
    wrk.finish()
}

/// A process that is killed when this is dropped.
struct Wrk(Option<Child>);

impl Wrk {
    fn has_ended(&mut self) -> io::Result<bool> {
        let ended = self.0.as_mut().map(Child::try_wait).transpose()?;
        Ok(ended.flatten().is_some())
    }

    /// Whether the process handles SIGINT (proc(5): SigCgt). It does from its first connection on, for which it waits,
    /// and ends by itself if that fails.
    fn is_connected(&self) -> bool {
        let status = |child: &Child| fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = self.0.as_ref().and_then(|child| status(child).ok());
        status.is_some_and(|status| catches_interrupts(&status))
    }

    fn finish(mut self) -> io::Result<Outcome> {
        let mut child = self.0.take().ok_or(io::ErrorKind::NotFound)?;
        // If it has ended by itself, its output below has the reason. A signal that comes before wrk sleeps does not
        // end its sleep of an hour, so it is repeated. What wrk prints fits into the pipe.
        while child.try_wait()?.is_none() {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            thread::sleep(SIGNAL_PAUSE);
        }
        let output = child.wait_with_output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let outcome = stdout.lines().find_map(parse);
        outcome.unwrap_or_else(|| Err(failure(&output)))
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The error of a wrk that printed no results: [`io::ErrorKind::TimedOut`] if nothing answered its first connection.
fn failure(output: &Output) -> io::Error {
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let said = format!("{stdout} {stderr}").replace('\n', " ");
    let message = format!("wrk failed ({}): {}", output.status, said.trim());
    let is_unanswered =
        stderr.starts_with("unable to connect ") && stderr.ends_with("Connection timed out\n");
    match is_unanswered {
        true => io::Error::new(io::ErrorKind::TimedOut, message),
        false => io::Error::other(message),
    }
}

/// Whether a process catches SIGINT, by its `/proc/PID/status`.
fn catches_interrupts(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
}

/// Parses the line that [`SCRIPT`] prints.
fn parse(line: &str) -> Option<io::Result<Outcome>> {
    let numbers = line.strip_prefix("outcome ")?.split(' ');
    let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[bytes, elapsed_us, p50_us, p99_us, refused, errors] = numbers.as_slice() else {
        return None;
    };
    if refused > 0 {
        let message = format!("wrk: {refused} responses had an error status");
        return Some(Err(io::Error::other(message)));
    }
    Some(Ok(Outcome {
        bytes,
        elapsed: Duration::from_micros(elapsed_us),
        p50: Some(Duration::from_micros(p50_us)),
        p99: Some(Duration::from_micros(p99_us)),
        errors,
    }))
}

/// The pause between two signals to end.
const SIGNAL_PAUSE: Duration = Duration::from_millis(20);

/// A script of wrk that prints the results at the end.
const SCRIPT: &str = r#"
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("outcome %d %d %d %d %d %d\n", summary.bytes, summary.duration, latency:percentile(50),
    latency:percentile(99), e.status, e.connect + e.read + e.write + e.timeout))
end
"#;

const LOOK_UP: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn a_failure_is_told_with_status_and_output() {
        let failed = |status, stderr: &str| {
            failure(&Output {
                status: ExitStatus::from_raw(status),
                stdout: Vec::new(),
                stderr: stderr.as_bytes().to_vec(),
            })
        };
        let silent = failed(
            1 << 8,
            "unable to connect to 10.0.0.1:80 Connection timed out\n",
        );
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        let refused = failed(
            1 << 8,
            "unable to connect to 10.0.0.1:80 Connection refused\n",
        );
        assert_eq!(refused.kind(), io::ErrorKind::Other);
        let message =
            "wrk failed (exit status: 1): unable to connect to 10.0.0.1:80 Connection refused";
        assert_eq!(refused.to_string(), message);
        let killed = failed(Signal::SEGV.as_raw(), "");
        assert!(killed.to_string().contains("signal: 11"), "{killed}");
    }

    #[test]
    fn a_mask_of_signals_tells_whether_interrupts_are_caught() {
        let status =
            |mask: &str| format!("Name:\twrk\nSigIgn:\t0000000000000002\nSigCgt:\t{mask}\n");
        assert!(catches_interrupts(&status("0000000000000002")));
        assert!(!catches_interrupts(&status("0000000000001001")));
        assert!(!catches_interrupts("Name:\twrk\n"));
    }

    #[test]
    fn the_scripts_line_is_understood() {
        let outcome = parse("outcome 1000 2000000 100 300 0 4").unwrap().unwrap();
        assert_eq!((outcome.bytes, outcome.errors), (1000, 4));
        assert_eq!(outcome.elapsed, Duration::from_secs(2));
        assert_eq!(outcome.p50, Some(Duration::from_micros(100)));
        assert_eq!(outcome.p99, Some(Duration::from_micros(300)));
        assert!(parse("outcome 1000 2000000 100 300 1 0").unwrap().is_err());
        assert!(parse("Requests/sec: 1").is_none());
        assert!(parse("outcome 1 2").is_none());
    }
}
