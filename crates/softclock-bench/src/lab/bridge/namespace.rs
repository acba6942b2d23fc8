//! A network namespace without a name: a process holds it, and it goes with that process.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use softclock_linux::child::end_with_parent;

/// A network namespace of its own, held by a child that ends with us, however we end. The kernel then removes it with
/// all its links: nothing has a name, and nothing is left to clean up.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes one, without IPv6, so that no host in it speaks unasked.
    ///
    /// # Errors
    /// What forbids it.
    pub fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", HOLD]);
        let holder = end_with_parent(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut namespace = Self { holder };
        let mut said = String::new();
        let output = namespace.holder.stdout.take().ok_or("no output")?;
        // It is made when the program in it speaks.
        match BufReader::new(output).read_line(&mut said) {
            Ok(1..) => Ok(namespace),
            _ => Err(format!(
                "network namespaces cannot be made here{}",
                namespace.complaint()
            )),
        }
    }

    /// What names it to `ip`.
    pub fn id(&self) -> u32 {
        self.holder.id()
    }

    /// A program that runs in it and ends with us.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.id()));
        command.arg("--").arg(program).stdin(Stdio::null());
        end_with_parent(&mut command);
        command
    }

    /// Runs words in it to their end.
    ///
    /// # Errors
    /// What they complain of.
    pub fn run(&self, words: &str) -> io::Result<()> {
        let mut words = words.split(' ');
        let program = words.next().unwrap_or_default();
        finish(self.command(program).args(words), "")
    }

    /// Has `ip` or `tc` run commands, one a line.
    ///
    /// # Errors
    /// What it complains of.
    pub fn batch(&self, program: &str, commands: &str) -> io::Result<()> {
        finish(self.command(program).args(["-batch", "-"]), commands)
    }

    /// What a link in it has received so far.
    ///
    /// # Errors
    /// There is no such link.
    pub fn received(&self, link: &str) -> io::Result<Received> {
        let links = fs::read_to_string(format!("/proc/{}/net/dev", self.id()))?;
        let found = links.lines().find_map(|line| parse(line, link));
        found.ok_or_else(|| io::Error::other(format!("there is no {link}")))
    }

    fn complaint(&mut self) -> String {
        let Some(errors) = self.holder.stderr.take() else {
            return String::new();
        };
        let mut line = String::new();
        let _ = BufReader::new(errors).read_line(&mut line);
        format!(": {}", line.trim())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Counts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Of whole frames, without check sequences.
    pub bytes: u64,
    /// Frames, joined ones counted once.
    pub frames: u64,
}

/// A line of `/proc/net/dev`.
fn parse(line: &str, link: &str) -> Option<Received> {
    let (name, counts) = line.split_once(':')?;
    if name.trim() != link {
        return None;
    }
    let mut counts = counts.split_whitespace().map(str::parse);
    Some(Received {
        bytes: counts.next()?.ok()?,
        frames: counts.next()?.ok()?,
    })
}

fn finish(command: &mut Command, input: &str) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Who does not read it says below what is wrong.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or("failed").to_owned();
    Err(io::Error::other(said))
}

/// It holds its namespace until standard input is closed.
const HOLD: &str = "for at in all default; do echo 1 >/proc/sys/net/ipv6/conf/$at/disable_ipv6; done 2>/dev/null; \
                    echo made; exec cat >/dev/null";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_name() {
        let line = "  eth0: 1500       2    0    0    0     0          0         0      60       1";
        let received = Received {
            bytes: 1500,
            frames: 2,
        };
        assert_eq!(parse(line, "eth0"), Some(received));
        assert_eq!(parse(line, "eth"), None);
        assert_eq!(parse("Inter-|   Receive", "eth0"), None);
    }
}
