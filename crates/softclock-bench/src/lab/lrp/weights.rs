//! Groups of the kernel's scheduler with equal weights (cgroups, version 1, `cpu.shares`): one for each receiver.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Groups, which are removed on drop: end their threads first.
#[derive(Debug)]
pub(super) struct Weights(Vec<PathBuf>);

impl Weights {
    /// Creates this number of groups.
    ///
    /// # Errors
    /// `NotFound` if no hierarchy of version 1 has the controller `cpu`; those of creating directories in it.
    pub(super) fn new(groups: usize) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let hierarchy = hierarchy().ok_or(io::ErrorKind::NotFound)?;
        let mut weights = Self(Vec::new());
        for _ in 0..groups {
            let number = NEXT.fetch_add(1, Relaxed);
            let group = hierarchy.join(format!("softclock-{}-{number}", process::id()));
            fs::create_dir(&group)?;
            weights.0.push(group.clone());
            fs::write(group.join("cpu.shares"), SHARES)?;
        }
        Ok(weights)
    }

    /// Moves the calling thread to the group of this number.
    ///
    /// # Errors
    /// Those of writing to the group's list.
    pub(super) fn join(&self, number: usize) -> io::Result<()> {
        // Zero is the thread that writes.
        fs::write(self.0[number].join("tasks"), "0")
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        for group in &self.0 {
            // A thread leaves its group a little after its end is known. A group that stays has no threads, and takes
            // no time.
            for _ in 0..TRIES {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        thread::sleep(PAUSE);
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Checks that there can be groups with weights.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn check_weights() -> Result<(), String> {
    match Weights::new(1) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("no cgroup hierarchy of version 1 with the controller cpu".into())
        }
        Err(error) => Err(format!("a cgroup cannot be made: {error}")),
    }
}

/// The directory of the hierarchy with the controller `cpu`.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let has_cpu = options.split(',').any(|option| option == "cpu");
        (kind == "cgroup" && has_cpu).then(|| path.into())
    })
}

/// The weight of each group; a thread outside of the groups has 1024 with nice 0.
const SHARES: &str = "8192";

const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_removed_when_their_threads_have_ended() {
        if let Err(reason) = check_weights() {
            softclock_testing::skip!("{reason}");
        }
        let weights = Weights::new(2).unwrap();
        let groups = weights.0.clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                weights.join(1).unwrap();
                let own = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
                let name = groups[1].file_name().unwrap().to_str().unwrap();
                assert!(own.contains(name), "{own}");
            });
        });
        drop(weights);
        assert!(groups.iter().all(|group| !group.exists()));
    }
}
