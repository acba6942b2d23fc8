//! The limits of processor time that control groups set for this process.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit on processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quota {
    /// Processor time per period, in units of one processor.
    pub(super) processors: f64,
    /// The period; a process that has used up its time waits for the next one.
    pub(super) period_ms: f64,
}

/// The tightest limit of this process's group and its ancestors; `None` if there is no limit.
pub(super) fn tightest() -> Option<Quota> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let quotas = groups(&membership).into_iter().flat_map(|group| {
        let upwards: Vec<PathBuf> = group
            .below
            .ancestors()
            .map(|below| Path::new(group.root).join(below))
            .collect();
        upwards.into_iter().filter_map(move |path| {
            if group.unified {
                unified(&fs::read_to_string(path.join("cpu.max")).ok()?)
            } else {
                let value = |name| fs::read_to_string(path.join(name)).ok();
                legacy(&value("cpu.cfs_quota_us")?, &value("cpu.cfs_period_us")?)
            }
        })
    });
    quotas.min_by(|a, b| a.processors.total_cmp(&b.processors))
}

/// The group of this process in one hierarchy, relative to its mount point.
#[derive(Debug, PartialEq)]
struct Membership {
    root: &'static str,
    below: PathBuf,
    unified: bool,
}

/// Parses `/proc/self/cgroup`: lines of number, controllers and path; the unified hierarchy has no controllers.
fn groups(text: &str) -> Vec<Membership> {
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let unified = controllers.is_empty();
        let root = match controllers {
            "" if Path::new("/sys/fs/cgroup/unified").is_dir() => "/sys/fs/cgroup/unified",
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|one| one == "cpu") => "/sys/fs/cgroup/cpu",
            _ => return None,
        };
        Some(Membership {
            root,
            below: path.trim_start_matches('/').into(),
            unified,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Parses `cpu.max`: quota or `max`, and period, in microseconds.
fn unified(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_of(quota, period)
}

/// Parses the two files of version 1, where -1 means no limit.
fn legacy(quota: &str, period: &str) -> Option<Quota> {
    quota_of(quota.trim(), period.trim())
}

fn quota_of(quota_us: &str, period_us: &str) -> Option<Quota> {
    let (quota_us, period_us): (f64, f64) = (quota_us.parse().ok()?, period_us.parse().ok()?);
    (quota_us > 0.0 && period_us > 0.0).then(|| Quota {
        processors: quota_us / period_us,
        period_ms: period_us / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_understood() {
        let half = Quota {
            processors: 0.5,
            period_ms: 100.0,
        };
        assert_eq!(unified("50000 100000\n"), Some(half));
        assert_eq!(legacy("50000\n", "100000\n"), Some(half));
        assert_eq!(unified("max 100000\n"), None);
        assert_eq!(legacy("-1\n", "100000\n"), None);
        assert_eq!(unified("nonsense"), None);
    }

    #[test]
    fn the_group_of_the_cpu_controller_counts() {
        let found = groups("9:name=systemd:/\n4:memory:/m\n2:cpu,cpuacct:/a/b\n1:cpuset:/c\n");
        let expected = Membership {
            root: "/sys/fs/cgroup/cpu",
            below: "a/b".into(),
            unified: false,
        };
        assert_eq!(found, [expected]);
        let found = groups("0::/system.slice/softclock.service\n");
        assert!(found[0].unified);
        assert_eq!(found[0].below, Path::new("system.slice/softclock.service"));
    }
}
