//! Resource limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit};

use super::capabilities::{Capability, effective};
use super::check::Check;
use crate::descriptors::connections_for;

/// Checks the limit of pending signals. Each timer that sends signals needs one.
pub(super) fn pending_signals() -> Check {
    pending_signals_of(getrlimit(Resource::Sigpending).current)
}

fn pending_signals_of(limit: Option<u64>) -> Check {
    let found = match limit {
        Some(limit) => format!("up to {limit} for all of this user's processes"),
        None => "no limit".into(),
    };
    let enough = limit.is_none_or(|limit| limit >= ENOUGH_SIGNALS);
    let check = if enough { Check::ok } else { Check::note };
    check("pending signals", found).advice("ulimit -i 1024, or LimitSIGPENDING= in the unit")
}

/// Checks the limit of open descriptors, which bounds the number of connections.
pub(super) fn descriptors() -> Check {
    descriptors_of(getrlimit(Resource::Nofile))
}

fn descriptors_of(limit: Rlimit) -> Check {
    const NAME: &str = "open descriptors";
    let word = |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
    let Some(hard) = limit.maximum else {
        return Check::ok(NAME, "no limit").needed();
    };
    let connections = connections_for(hard);
    let found = format!(
        "{} soft, {hard} hard: serve raises it to the hard limit, enough for {connections} connections",
        word(limit.current)
    );
    let check = match hard {
        ENOUGH_DESCRIPTORS.. => Check::ok,
        LEAST_DESCRIPTORS.. => Check::note,
        _ => Check::missing,
    };
    check(NAME, found).needed().advice(
        "ulimit -Hn 65536 as root, LimitNOFILE=65536 in the unit, docker --ulimit nofile=65536",
    )
}

/// Checks the limit of locked memory. Rings shared with the kernel use it.
pub(super) fn locked_memory() -> Check {
    match effective(Capability::IpcLock) {
        true => Check::ok(LOCKED_MEMORY, "no limit, by CAP_IPC_LOCK"),
        false => locked_memory_of(getrlimit(Resource::Memlock).current),
    }
}

fn locked_memory_of(limit: Option<u64>) -> Check {
    match limit {
        None => Check::ok(LOCKED_MEMORY, "no limit"),
        Some(bytes) => {
            let found = format!("{} KiB; rings and packet memory count", bytes >> 10);
            let enough = bytes >= ENOUGH_LOCKED;
            let check = if enough { Check::ok } else { Check::note };
            check(LOCKED_MEMORY, found)
                .advice("ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit")
        }
    }
}

/// Three timers for each of a hundred threads.
const ENOUGH_SIGNALS: u64 = 300;

/// Below this, a connection and its file do not fit beside the descriptors of the thread itself.
const LEAST_DESCRIPTORS: u64 = 66;

/// As many as usual load tests open.
const ENOUGH_DESCRIPTORS: u64 = 4096;

/// The AF_XDP memory of a bridge: 12 MiB for the queue of each of its interfaces.
const ENOUGH_LOCKED: u64 = 24 << 20;

const LOCKED_MEMORY: &str = "locked memory";

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn descriptors(soft: u64, hard: u64) -> Check {
        descriptors_of(Rlimit {
            current: Some(soft),
            maximum: Some(hard),
        })
    }

    #[test]
    fn the_hard_limit_decides() {
        assert_eq!(descriptors(1024, 524_288).status, Status::Ok);
        assert_eq!(descriptors(1024, 1024).status, Status::Note);
        let few = descriptors(30, 30);
        assert_eq!((few.status, few.needed), (Status::Missing, true));
        let found = descriptors(1024, 1064).found;
        assert!(
            found.starts_with("1024 soft, 1064 hard:") && found.ends_with("500 connections"),
            "{found}"
        );
    }

    #[test]
    fn small_limits_are_noted() {
        assert_eq!(pending_signals_of(Some(10)).status, Status::Note);
        assert_eq!(pending_signals_of(None).status, Status::Ok);
        assert_eq!(locked_memory_of(Some(64 << 10)).status, Status::Note);
        // Enough for one queue of AF_XDP at most, and a bridge has two.
        for few in [8 << 20, 12 << 20] {
            assert_eq!(locked_memory_of(Some(few)).status, Status::Note);
        }
        assert_eq!(locked_memory_of(Some(24 << 20)).status, Status::Ok);
        assert_eq!(locked_memory_of(None).found, "no limit");
    }
}
