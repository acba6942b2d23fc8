//! Profiles of processes, by samples that `perf` takes.

use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use softclock_linux::child::end_with_parent;
use softclock_testing::KilledOnDrop;

/// The program `perf`, known to be installed and allowed to sample.
#[derive(Debug)]
pub struct Perf(());

impl Perf {
    /// Checks that `perf` works here.
    ///
    /// # Errors
    /// The reason for which it does not, as a sentence for a report's notes.
    pub fn find() -> Result<Self, String> {
        let data = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        let tried = record()
            .arg("-o")
            .arg(data.path())
            .args(["--", "true"])
            .output();
        match tried {
            Ok(output) if output.status.success() => Ok(Self(())),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim().lines().next().unwrap_or_default().to_owned();
                Err(format!(
                    "perf may not sample here (see kernel.perf_event_paranoid): {said}"
                ))
            }
            Err(_) => Err("perf is not installed (Debian's package linux-perf)".to_owned()),
        }
    }

    /// Samples these processes while `during` runs.
    ///
    /// # Errors
    /// `perf` fails or ends early.
    pub fn profile<R>(
        &self,
        processes: &[u32],
        during: impl FnOnce() -> R,
    ) -> io::Result<(Profile, R)> {
        let data = tempfile::NamedTempFile::new()?;
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        let mut command = record();
        command.args(["-p", &processes.join(",")]);
        command.arg("-o").arg(data.path());
        let child = end_with_parent(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut recorder = Recorder(KilledOnDrop::new(child));
        let begun = Instant::now();
        // perf writes a header when it starts to sample.
        while data.as_file().metadata()?.len() == 0 && begun.elapsed() < PATIENCE {
            thread::sleep(START);
        }
        thread::sleep(START);
        let result = during();
        recorder.end()?;
        let script = Command::new("perf")
            // Inlined frames are slow to resolve, and callers match the names of outer functions.
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(data.path())
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&script.stdout);
        Ok((Profile::parse(&text), result))
    }
}

/// Returns a `perf record` that samples by the kernel's clock, since most virtual machines have no hardware counters.
fn record() -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", "1999", "-g"]);
    command
}

/// A running `perf record`.
struct Recorder(KilledOnDrop);

impl Recorder {
    /// Ends the recording, at which `perf` writes its data.
    fn end(&mut self) -> io::Result<()> {
        if let Some(status) = self.0.try_wait()? {
            return Err(io::Error::other(format!("perf ended early: {status}")));
        }
        kill_process(Pid::from_child(&self.0), Signal::INT)?;
        self.0.wait().map(drop)
    }
}

/// Samples: the names of the active functions, the innermost first.
#[derive(Debug, Default)]
pub struct Profile {
    stacks: Vec<Vec<String>>,
}

impl Profile {
    /// Parses the output of `perf script -F ip,sym`: a line per frame, and empty lines between samples.
    fn parse(text: &str) -> Self {
        let mut stacks = vec![Vec::new()];
        for line in text.lines() {
            match line.trim().split_once(' ') {
                Some((_, name)) => stacks.last_mut().expect("never empty").push(name.into()),
                None => stacks.push(Vec::new()),
            }
        }
        stacks.retain(|stack: &Vec<String>| !stack.is_empty());
        Self { stacks }
    }

    /// Returns the share of the samples for which `is_wanted` returns true, from 0 to 1, or `None` if there are no
    /// samples.
    pub fn share(&self, is_wanted: impl Fn(&[String]) -> bool) -> Option<f64> {
        let wanted = self.stacks.iter().filter(|stack| is_wanted(stack)).count();
        (!self.stacks.is_empty()).then(|| wanted as f64 / self.stacks.len() as f64)
    }
}

/// The longest time until perf starts to sample.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time from the file's header to the first sample.
const START: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_between_empty_ones() {
        let text = "\n\tffff81 do_poll\n\t  12 <impl a::B for C>::d\n\n\n\t 9 main\n\n";
        let profile = Profile::parse(text);
        assert_eq!(
            profile.stacks,
            [vec!["do_poll", "<impl a::B for C>::d"], vec!["main"]]
        );
        assert_eq!(profile.share(|stack| stack.len() == 2), Some(0.5));
        assert_eq!(Profile::parse("").share(|_| true), None);
    }
}
