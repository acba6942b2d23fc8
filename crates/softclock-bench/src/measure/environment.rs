//! The machine and the versions that results depend on.

use std::collections::BTreeMap;
use std::fs;

use rustix::time::{ClockId, clock_getres};
use serde::Serialize;

use crate::peers::lock::Lock;

/// Properties that results depend on besides the code. A field that cannot be determined is `unknown`.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// System name, release and version.
    pub kernel: String,
    /// The processor's model name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Ticks of the kernel's clock per second.
    pub hz: String,
    /// The kernel's current clock source.
    pub clock_source: String,
    /// The frequency governor of the first processor.
    pub governor: String,
    /// Load averages over 1, 5 and 15 minutes at the start of the run.
    pub load_average: String,
    /// The compiler that built the program.
    pub rustc: &'static str,
    /// The build profile; numbers from `debug` mean nothing.
    pub profile: &'static str,
    /// Versions of the libraries that are measured beside softclock.
    pub peers: BTreeMap<String, String>,
}

impl Environment {
    /// Determines the environment of this process.
    pub fn detect() -> Self {
        Self {
            kernel: kernel(),
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            hz: tick_rate(),
            clock_source: read_line(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            governor: read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: load_average(),
            rustc: env!("SOFTCLOCK_BENCH_RUSTC"),
            profile: env!("SOFTCLOCK_BENCH_PROFILE"),
            peers: peers(include_str!("../../../../Cargo.lock")),
        }
    }

    /// Returns the environment as lines of name and value, for a terminal.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("kernel", self.kernel.clone()),
            ("cpu", format!("{}, {} cores", self.cpu, self.cores)),
            ("HZ", self.hz.clone()),
            ("clock source", self.clock_source.clone()),
            ("governor", self.governor.clone()),
            ("load average", self.load_average.clone()),
            ("rustc", format!("{}, {}", self.rustc, self.profile)),
        ];
        if !self.peers.is_empty() {
            let peers: Vec<String> = self
                .peers
                .iter()
                .map(|(name, version)| format!("{name} {version}"))
                .collect();
            lines.push(("peers", peers.join(", ")));
        }
        lines
    }
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    format!(
        "{} {} {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy()
    )
}

fn cpu_model() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or_else(unknown, |rest| {
            rest.trim_start_matches([' ', '\t', ':']).to_owned()
        })
}

/// Returns HZ from the resolution of the coarse clock, which advances once a tick; the kernel's configuration is often
/// not available.
fn tick_rate() -> String {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    match tick.tv_nsec {
        0 => unknown(),
        ns => ((1_000_000_000 + ns / 2) / ns).to_string(),
    }
}

fn load_average() -> String {
    let line = read_line("/proc/loadavg");
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Returns the direct dependencies of this crate that are peers: without the workspace's crates and those that the
/// framework and its tests use.
fn peers(lock: &str) -> BTreeMap<String, String> {
    const NOT_PEERS: [&str; 10] = [
        "bytes",
        "clap",
        "futures-lite",
        "proptest",
        "rcgen",
        "rustix",
        "rustls",
        "serde",
        "serde_json",
        "tempfile",
    ];
    let dependencies = Lock::new(lock).dependencies(env!("CARGO_PKG_NAME"));
    dependencies
        .filter(|(name, _)| !name.starts_with("softclock") && !NOT_PEERS.contains(name))
        .filter_map(|(name, version)| Some((name.to_owned(), version?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_come_from_the_lock_file() {
        let lock = r#"
[[package]]
name = "softclock-bench"
version = "0.1.0"
dependencies = [
 "clap",
 "one",
 "softclock-core",
 "two 2.1.0",
]

[[package]]
name = "one"
version = "1.2.3"
"#;
        let expected = [("one", "1.2.3"), ("two", "2.1.0")];
        let expected = expected.map(|(name, version)| (name.to_owned(), version.to_owned()));
        assert_eq!(peers(lock), BTreeMap::from(expected));
    }

    #[test]
    fn the_tick_is_a_plausible_one() {
        let hz: u32 = tick_rate().parse().expect("a number");
        assert!((24..=10_000).contains(&hz), "HZ {hz}");
    }
}
