//! A veth pair in the network namespace of this process.

use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

/// A veth pair, under names that no other process uses. Deleted on drop.
#[derive(Debug)]
pub struct VethPair(String);

impl VethPair {
    /// Creates a pair with one queue in each direction. Both ends are up on return.
    ///
    /// # Errors
    /// The reason why the machine does not permit it, for [`skip!`](crate::skip!).
    pub fn new() -> Result<Self, String> {
        Self::with_queues(1)
    }

    /// Creates a pair with `queues` queues in each direction. Both ends are up on return.
    ///
    /// # Errors
    /// The reason why the machine does not permit it, for [`skip!`](crate::skip!).
    pub fn with_queues(queues: u32) -> Result<Self, String> {
        Self::with_queues_each(queues, queues)
    }

    /// Creates a pair whose first end has these numbers of receive and transmit queues; the other has them the other
    /// way round. Both ends are up on return.
    ///
    /// # Errors
    /// The reason why the machine does not permit it, for [`skip!`](crate::skip!).
    pub fn with_queues_each(receive: u32, transmit: u32) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            return Err("needs root for links of its own".into());
        }
        // The names must differ between concurrent tests, within 15 bytes.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pair = Self(format!("sc{}c{number}", process::id()));
        let [a, b] = pair.names();
        let queues = |receive, transmit| format!("numrxqueues {receive} numtxqueues {transmit}");
        let (first, other) = (queues(receive, transmit), queues(transmit, receive));
        let add = format!("link add name {a} {first} type veth peer name {b} {other}");
        let is_added = ip(&add);
        for end in [&a, &b].into_iter().filter(|_| is_added) {
            // Without link-local addresses the kernel sends no frames of its own, which tests would count. Fails
            // without IPv6, which is as good.
            ip(&format!("link set {end} addrgenmode none"));
        }
        match is_added && ip(&format!("link set {a} up")) && ip(&format!("link set {b} up")) {
            true => Ok(pair),
            false => Err("links cannot be made here".into()),
        }
    }

    /// The names of both ends.
    pub fn names(&self) -> [String; 2] {
        ["a", "b"].map(|end| format!("{}{end}", self.0))
    }

    /// The output of `ip -details link show` for both ends.
    ///
    /// # Panics
    /// If `ip` cannot be started.
    pub fn state(&self) -> [String; 2] {
        self.names().map(|name| {
            let words = ["-details", "link", "show", &name];
            let output = Command::new("ip").args(words).output().expect("ip starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    /// Runs `ip link set` with these words on one end, 0 or 1.
    ///
    /// # Panics
    /// If the command fails.
    pub fn set(&self, end: usize, words: &str) {
        let name = &self.names()[end];
        assert!(ip(&format!("link set {name} {words}")), "{name} {words}");
    }

    /// Renames the first end and leaves it `up` or `down`. [`names`](Self::names) still returns the old name.
    ///
    /// # Panics
    /// If a command fails.
    pub fn rename_first(&self, name: &str, state: &str) {
        self.set(0, "down");
        self.set(0, &format!("name {name}"));
        assert!(ip(&format!("link set {name} {state}")), "{name} {state}");
    }
}

impl Drop for VethPair {
    /// Deletes both ends by the name of the second, which is never renamed.
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.names()[1]));
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).status();
    status.is_ok_and(|status| status.success())
}
