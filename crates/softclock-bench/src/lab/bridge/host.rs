//! A host of the lab: a network namespace, and programs in it.

use std::fs;
use std::io;
use std::ops::Deref;
use std::process::Command;

use softclock_linux::child::end_with_parent;
use softclock_testing::lab::Namespace;

/// A network namespace. It and its programs end with this process.
#[derive(Debug)]
pub struct Host(Namespace);

impl Host {
    /// Creates a namespace without IPv6, whose hosts would otherwise send packets unasked.
    ///
    /// # Errors
    /// Why the system refuses.
    pub fn new() -> Result<Self, String> {
        let namespace = Namespace::new()?;
        let quiet = namespace.disable_ipv6();
        quiet.map_err(|error| format!("IPv6 cannot be turned off: {error}"))?;
        Ok(Self(namespace))
    }

    /// Returns a command that runs in the namespace and is killed when this thread ends.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.0.command(program);
        end_with_parent(&mut command);
        command
    }

    /// Returns the counts of frames that a link in the namespace has received so far.
    ///
    /// # Errors
    /// There is no such link.
    pub fn received(&self, link: &str) -> io::Result<Received> {
        let links = fs::read_to_string(format!("/proc/{}/net/dev", self.id()))?;
        let found = links.lines().find_map(|line| parse(line, link));
        found.ok_or_else(|| io::Error::other(format!("the host has no link {link}")))
    }
}

impl Deref for Host {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.0
    }
}

/// Receive counts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of whole frames, without check sequences.
    pub bytes: u64,
    /// Frames; a joined segment counts once.
    pub frames: u64,
}

/// Parses a line of `/proc/net/dev`.
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
