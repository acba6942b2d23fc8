//! Two links in the namespace of this process.

use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

/// Two links joined by a cable, under names that no other process uses; they go when this is dropped.
#[derive(Debug)]
pub struct VethPair(String);

impl VethPair {
    /// Makes a pair whose ends are up.
    ///
    /// # Errors
    /// Why there can be none here, for [`skip!`](crate::skip).
    pub fn new() -> Result<Self, String> {
        Self::with_queues(1)
    }

    /// Makes a pair whose ends are up and have so many queues in each direction.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_queues(queues: u32) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            return Err("needs root for links of its own".into());
        }
        // Tests run at the same time, and a name has 15 bytes.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pair = Self(format!("sc{}c{number}", process::id()));
        let [a, b] = pair.names();
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let add = format!("link add name {a} {queues} type veth peer name {b} {queues}");
        match ip(&add) && ip(&format!("link set {a} up")) && ip(&format!("link set {b} up")) {
            true => Ok(pair),
            false => Err("links cannot be made here".into()),
        }
    }

    /// The names of both ends.
    pub fn names(&self) -> [String; 2] {
        ["a", "b"].map(|end| format!("{}{end}", self.0))
    }

    /// What `ip` shows of both ends.
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

    /// `ip link set` for one end.
    ///
    /// # Panics
    /// If that fails.
    pub fn set(&self, end: usize, words: &str) {
        let name = &self.names()[end];
        assert!(ip(&format!("link set {name} {words}")), "{name} {words}");
    }

    /// Gives the first end another name, which this does not know afterwards, and leaves it `up` or `down`.
    ///
    /// # Panics
    /// If that fails.
    pub fn rename_first(&self, name: &str, state: &str) {
        self.set(0, "down");
        self.set(0, &format!("name {name}"));
        assert!(ip(&format!("link set {name} {state}")), "{name} {state}");
    }
}

impl Drop for VethPair {
    /// By the end that keeps its name.
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.names()[1]));
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).status();
    status.is_ok_and(|status| status.success())
}
