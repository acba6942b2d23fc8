//! Checks other mechanisms of event delivery, and the packet mechanisms of `softclock pace` and `softclock wan`.

use std::path::Path;

use softclock_linux::probe;

use super::check::Check;
use super::kernel_config::{KernelConfig, Presence};
use super::limits;
use super::proc::line;

pub(super) fn event_delivery() -> Vec<Check> {
    vec![
        Check::probed(
            "epoll_pwait2",
            probe::exact_waits(),
            "waits have nanosecond resolution",
            "waits are rounded up to a millisecond",
        )
        .optional()
        .advice("a kernel of 5.11 or later, or a seccomp profile that allows it"),
        io_uring(),
    ]
}

fn io_uring() -> Check {
    let advice = match line("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("2") => "sysctl -w kernel.io_uring_disabled=0",
        Some("1") => {
            "sysctl -w kernel.io_uring_disabled=0, or join the group of kernel.io_uring_group"
        }
        Some(_) => {
            "Linux 6.1, and a seccomp profile that allows io_uring_setup; containers often forbid it"
        }
        None => "Linux 6.1 with CONFIG_IO_URING, and a seccomp profile that allows io_uring_setup",
    };
    let no = "not available (epoll is used)";
    Check::probed("io_uring", probe::io_uring(), "available", no)
        .optional()
        .advice(advice)
}

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![
        Check::probed(
            "AF_XDP",
            probe::xdp_socket(),
            "sockets can be created",
            "cannot create sockets",
        )
        .advice("CAP_NET_RAW, and a kernel with CONFIG_XDP_SOCKETS"),
        Check::probed(
            "XDP programs",
            probe::xdp_program(),
            "can be loaded",
            "cannot be loaded",
        )
        .advice("CAP_BPF and CAP_NET_ADMIN, and a seccomp profile that allows bpf"),
        btf(Path::new("/sys/kernel/btf/vmlinux").exists()),
        Check::probed(
            "AF_PACKET",
            probe::packet_socket(),
            "sockets can be created",
            "cannot create sockets",
        )
        .advice("CAP_NET_RAW; pace, wan and echo need them"),
        Check::probed(
            "tc programs",
            probe::ingress_program(),
            "can be loaded and attached (tcx)",
            "cannot be attached (tcx)",
        )
        .advice("CAP_BPF and CAP_NET_ADMIN, and Linux 6.6; pace and wan need them"),
        Check::probed(
            "TUN and TAP",
            probe::tun_device(),
            "/dev/net/tun opens",
            "/dev/net/tun does not open",
        )
        .advice("modprobe tun; docker --device /dev/net/tun --cap-add NET_ADMIN"),
        limits::locked_memory(),
    ];
    checks.extend(qdiscs(&KernelConfig::find()));
    checks.into_iter().map(Check::optional).collect()
}

fn btf(there: bool) -> Check {
    if there {
        Check::ok("BTF", "/sys/kernel/btf/vmlinux")
    } else {
        Check::note("BTF", "the kernel does not describe its types")
            .advice("a kernel with CONFIG_DEBUG_INFO_BTF")
    }
}

/// Checks for the kernel's packet schedulers that pacing is compared with.
fn qdiscs(config: &KernelConfig) -> Vec<Check> {
    let check = |&(name, module, option)| qdisc(name, module, option, config);
    QDISCS.iter().map(check).collect()
}

fn qdisc(name: &'static str, module: &str, option: &str, config: &KernelConfig) -> Check {
    const UNKNOWN: &str =
        "unknown: neither the kernel's configuration nor its modules are readable";
    match config.has(module, option) {
        Some(Presence::There) => Check::ok(name, "there"),
        Some(Presence::NotInstalled) => Check::note(name, format!("{module} is not installed"))
            .advice("the package with all modules of this kernel, such as linux-modules-extra"),
        Some(Presence::Missing) => {
            Check::note(name, format!("not in this kernel ({})", config.source()))
                .advice(format!("a kernel with {option}"))
        }
        None => Check::note(name, UNKNOWN).advice(format!("as root, modprobe {module} shows it")),
    }
}

const QDISCS: [(&str, &str, &str); 6] = [
    ("qdisc fq", "sch_fq", "CONFIG_NET_SCH_FQ"),
    ("qdisc fq_codel", "sch_fq_codel", "CONFIG_NET_SCH_FQ_CODEL"),
    ("qdisc tbf", "sch_tbf", "CONFIG_NET_SCH_TBF"),
    ("qdisc netem", "sch_netem", "CONFIG_NET_SCH_NETEM"),
    ("qdisc etf", "sch_etf", "CONFIG_NET_SCH_ETF"),
    ("qdisc cake", "sch_cake", "CONFIG_NET_SCH_CAKE"),
];

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn nothing_that_serve_does_without_is_missed() {
        for check in event_delivery().into_iter().chain(checks()) {
            assert_ne!(check.status, Status::Missing, "{check:?}");
            assert_eq!(
                check.advice.is_some(),
                check.status == Status::Note,
                "{check:?}"
            );
        }
    }

    #[test]
    fn qdiscs_are_not_guessed() {
        let unknown = qdiscs(&KernelConfig::default());
        assert!(
            unknown
                .iter()
                .all(|check| check.found.starts_with("unknown"))
        );
        let config = KernelConfig::of("CONFIG_NET_SCH_FQ=m\n# CONFIG_NET_SCH_ETF is not set\n");
        let told = qdiscs(&config);
        assert_eq!((told[0].status, told[4].status), (Status::Ok, Status::Note));
    }
}
