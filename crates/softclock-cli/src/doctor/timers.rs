//! Checks the clocks and timers of the kernel.

use rustix::thread::sched_getaffinity;
use softclock_linux::clock::{ClockSource, Distrust, ThreadClock, tick_ns};
use softclock_linux::probe;

use super::check::Check;
use super::limits;
use super::proc::{line, reason};
use super::quota::{Quota, tightest};

pub(super) fn checks() -> Vec<Check> {
    vec![
        counter(ThreadClock::new().source()),
        clock_source(&read("current"), &read("available")),
        tick(tick_ns()),
        timer_slack(),
        cpu_clock_timers(),
        limits::pending_signals(),
        processors(),
        quota(tightest()),
    ]
}

fn counter(source: ClockSource) -> Check {
    const NAME: &str = "processor's counter";
    match source {
        ClockSource::Tsc { .. } | ClockSource::Cntvct { .. } => Check::ok(
            NAME,
            format!("{source}, trusted: the kernel uses it for its own time"),
        ),
        ClockSource::Monotonic { why } => {
            let advice = match why {
                Distrust::KernelUses(_) => {
                    "dmesg | grep -i -e tsc -e clocksource shows why; if the counter is good, boot with tsc=reliable"
                }
                _ => {
                    "nothing to set: use a machine whose counter has a constant rate for exact timers"
                }
            };
            let found = format!("not used, so each check takes about 20 ns longer: {why}");
            Check::note(NAME, found).advice(advice)
        }
        other => Check::ok(NAME, other.to_string()),
    }
}

fn read(which: &str) -> String {
    let path = format!("/sys/devices/system/clocksource/clocksource0/{which}_clocksource");
    line(&path).unwrap_or_else(|| "unknown".into())
}

fn clock_source(current: &str, available: &str) -> Check {
    const NAME: &str = "clock source";
    let is_counter = |name: &str| matches!(name, "tsc" | "arch_sys_counter");
    let better = available.split(' ').find(|name| is_counter(name));
    match better {
        _ if is_counter(current) => Check::ok(NAME, current),
        Some(better) => Check::note(NAME, format!("{current}, although {better} is available"))
            .advice(format!(
                "echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource"
            )),
        None => Check::note(NAME, format!("{current}; available: {available}")),
    }
}

fn tick(ns: u64) -> Check {
    let hz = (1_000_000_000 + ns / 2) / ns;
    let found = format!(
        "HZ {hz}: the backup timer can check for overdue events every {} ms",
        ns as f64 / 1e6
    );
    if hz >= 250 {
        Check::ok("kernel's tick", found)
    } else {
        Check::note("kernel's tick", found)
            .advice("a kernel with CONFIG_HZ=250 or more bounds lateness more tightly")
    }
}

fn timer_slack() -> Check {
    const NAME: &str = "timer slack";
    let before = rustix::thread::current_timer_slack().unwrap_or(0);
    let found = |now: &str| format!("{} us here, {now}", before as f64 / 1e3);
    let set = softclock_linux::clock::set_timer_slack_ns(1);
    // Restore the previous slack for the measurements that follow.
    let _ = softclock_linux::clock::set_timer_slack_ns(before);
    match set {
        Ok(()) => Check::ok(NAME, found("1 ns in each runtime")),
        Err(error) => {
            let why = format!("and cannot be set: {}", reason(&error));
            Check::note(NAME, found(&why)).advice("allow prctl(PR_SET_TIMERSLACK) in the sandbox")
        }
    }
}

fn cpu_clock_timers() -> Check {
    let yes = "POSIX timers can count a thread's processor time";
    let no = "no timer on a thread's processor time";
    Check::probed("backup timer", probe::cpu_clock_timer(), yes, no)
        .needed()
        .advice("ulimit -i 1024, or a sandbox that allows timer_create")
}

fn processors() -> Check {
    const NAME: &str = "processors";
    let usable = sched_getaffinity(None).map_or(1, |set| set.count()) as usize;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    processors_of(NAME, usable, in_ranges(&online).max(usable))
}

/// The number of processors in a list such as `0-3,6`.
fn in_ranges(list: &str) -> usize {
    let ranges = list.trim_end().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((first..=last).count())
    });
    ranges.sum()
}

fn processors_of(name: &'static str, usable: usize, all: usize) -> Check {
    match usable {
        1 if all > 1 => Check::note(
            name,
            format!("1 of {all}: any other load makes timers late"),
        )
        .advice("taskset, cpuset.cpus or docker --cpuset-cpus give more"),
        1 => Check::note(name, "1: any other load makes timers late")
            .advice("a machine with more processors, or with those online that it has"),
        _ if usable < all => Check::ok(name, format!("{usable} of {all}, by affinity")),
        _ => Check::ok(
            name,
            format!("{usable}: softclock serve can use as many --threads"),
        ),
    }
}

fn quota(quota: Option<Quota>) -> Check {
    const NAME: &str = "CPU quota";
    match quota {
        None => Check::ok(NAME, "none"),
        Some(Quota {
            processors,
            period_ms,
        }) => Check::note(
            NAME,
            format!(
                "{processors:.2} processors; after that, wait for the rest of {period_ms} ms"
            ),
        )
        .advice("cpu.max=max, docker without --cpus, systemd CPUQuota=: a quota makes timers late by milliseconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_distrusted_counter_comes_with_a_reason() {
        let why = Distrust::KernelUses("hpet");
        let check = counter(ClockSource::Monotonic { why });
        assert_eq!(check.status, Status::Note);
        assert!(check.found.contains("hpet") && check.advice.unwrap().contains("dmesg"));
        assert_eq!(counter(ClockSource::Tsc { hz: 1 }).status, Status::Ok);
    }

    #[test]
    fn a_better_clock_source_is_named() {
        let check = clock_source("hpet", "tsc hpet acpi_pm");
        assert!(check.advice.unwrap().starts_with("echo tsc > /sys/"));
        assert_eq!(clock_source("kvm-clock", "kvm-clock").advice, None);
        assert_eq!(clock_source("tsc", "tsc").status, Status::Ok);
    }

    #[test]
    fn slow_ticks_and_single_processors_are_noted() {
        assert_eq!(tick(10_000_000).status, Status::Note);
        assert_eq!(tick(4_000_000).status, Status::Ok);
        assert_eq!(processors_of("", 1, 8).status, Status::Note);
        assert_eq!(processors_of("", 2, 8).found, "2 of 8, by affinity");
        assert!(!processors_of("", 1, 1).advice.unwrap().contains("taskset"));
    }

    #[test]
    fn lists_of_processors_are_counted() {
        let lists = ["0-3\n", "0,2-3\n", "0\n", "", "3-1,x\n"];
        assert_eq!(lists.map(in_ranges), [4, 3, 1, 0, 0]);
    }

    #[test]
    fn quotas_are_told() {
        let half = Quota {
            processors: 0.5,
            period_ms: 100.0,
        };
        assert!(quota(Some(half)).found.starts_with("0.50 processors"));
        assert_eq!(quota(None).status, Status::Ok);
    }
}
