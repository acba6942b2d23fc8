//! Linux capabilities that features use, and whether this process has them.

use std::fs;

use super::check::Check;

/// A capability, with its number of capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capability {
    NetBindService = 10,
    NetAdmin = 12,
    NetRaw = 13,
    IpcLock = 14,
    SysNice = 23,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    const ALL: [Self; 7] = [
        Self::NetBindService,
        Self::NetAdmin,
        Self::NetRaw,
        Self::Bpf,
        Self::Perfmon,
        Self::SysNice,
        Self::IpcLock,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::NetBindService => "NET_BIND_SERVICE",
            Self::NetAdmin => "NET_ADMIN",
            Self::NetRaw => "NET_RAW",
            Self::IpcLock => "IPC_LOCK",
            Self::SysNice => "SYS_NICE",
            Self::Perfmon => "PERFMON",
            Self::Bpf => "BPF",
        }
    }

    const fn purpose(self) -> &'static str {
        match self {
            Self::NetBindService => "serve on ports below 1024",
            Self::NetAdmin => "pace, wan and echo: links, qdiscs, XDP on an interface",
            Self::NetRaw => "pace, wan and echo: receive and send frames",
            Self::IpcLock => "AF_XDP memory beyond the limit of locked memory",
            Self::SysNice => "real-time priority, for pace, wan and experiments",
            Self::Perfmon => "tracepoints and counters for experiments",
            Self::Bpf => "pace, wan and echo: the programs that take frames from the host",
        }
    }
}

pub(super) fn checks() -> Vec<Check> {
    let set = effective_set();
    Capability::ALL
        .into_iter()
        .map(|capability| check(capability, set))
        .collect()
}

/// Whether `capability` is in the effective set of this process.
pub(super) fn effective(capability: Capability) -> bool {
    effective_set().is_some_and(|set| has(set, capability))
}

fn check(capability: Capability, set: Option<u64>) -> Check {
    let (name, purpose) = (capability.name(), capability.purpose());
    match set {
        None => Check::note(name, format!("unknown; for: {purpose}")),
        Some(set) if has(set, capability) => Check::ok(name, purpose),
        Some(_) => Check::note(name, format!("not held; for: {purpose}")).advice(format!(
            "AmbientCapabilities=CAP_{name} in the unit, docker --cap-add {name}, or setcap"
        )),
    }
}

const fn has(set: u64, capability: Capability) -> bool {
    set >> capability as u32 & 1 == 1
}

fn effective_set() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Parses the line `CapEff:` of `/proc/self/status`.
fn parse(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn the_effective_set_counts() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000000400\n";
        let set = parse(status);
        assert_eq!(set, Some(1 << 10));
        assert_eq!(check(Capability::NetBindService, set).status, Status::Ok);
        let missing = check(Capability::Bpf, set);
        assert!(missing.advice.unwrap().contains("CAP_BPF"));
        assert!(check(Capability::Bpf, None).found.starts_with("unknown"));
    }
}
