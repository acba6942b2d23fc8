//! Checks busy polling, and the delay of interrupts of the interfaces here.

use std::fs;
use std::io;

use softclock_linux::link::{DelayHolder, InterruptDelay, InterruptDelays, Link};
use softclock_linux::probe;

use super::check::Check;
use super::proc::reason;
use crate::values::format_time;

pub(super) fn checks() -> Vec<Check> {
    let found: Vec<_> = links()
        .into_iter()
        .map(|link| (link.name().to_owned(), InterruptDelays::of(&link)))
        .collect();
    let checks = [
        Check::probed(
            "polling by epoll",
            probe::epoll_busy_poll(),
            "--busy-poll can be used",
            "--busy-poll cannot be used",
        )
        .advice("Linux 6.9, with CONFIG_NET_RX_BUSY_POLL"),
        Check::probed(
            "polling by io_uring",
            probe::io_uring_busy_poll(),
            "--busy-poll can be used with --events io_uring",
            "--busy-poll cannot be used with --events io_uring",
        )
        .advice("Linux 6.9, where io_uring is allowed"),
        Check::probed(
            "polling by AF_XDP",
            probe::xdp_busy_poll(),
            "a program's sockets can keep interrupts masked",
            "a program's sockets cannot keep interrupts masked",
        )
        .advice("Linux 5.11, and CAP_NET_ADMIN"),
        receive_work(&found),
        delays(&found),
    ];
    checks.into_iter().map(Check::optional).collect()
}

/// The interfaces, in the order of their names.
fn links() -> Vec<Link> {
    let entries = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
        .iter()
        .filter_map(|name| Link::named(name).ok())
        .collect()
}

/// Which interfaces have interrupts that could be delayed, and by which of the kernel's interfaces.
fn receive_work(found: &[(String, InterruptDelays)]) -> Check {
    const NAME: &str = "delayable interrupts";
    let is_unsupported = |(_, delays): &(String, InterruptDelays)| {
        let error = delays.instances.as_ref().err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::Unsupported)
    };
    if found.iter().any(is_unsupported) {
        let text = "settable for whole interfaces only (/sys), without suspension";
        return Check::note(NAME, text)
            .advice("Linux 6.13 has settings for each queue, and suspension");
    }
    if let Some(error) = found
        .iter()
        .find_map(|(_, delays)| delays.instances.as_ref().err())
    {
        return Check::note(NAME, format!("unknown: {}", reason(error)));
    }
    let having = found.iter().filter_map(|(name, delays)| {
        let queues = delays.instances.as_ref().map_or(0, Vec::len);
        (queues > 0).then(|| format!("{name} ({queues})"))
    });
    match &*having.collect::<Vec<_>>().join(", ") {
        "" => Check::note(
            NAME,
            "no interface has receive work of its own (NAPI): --napi cannot be used",
        ),
        names => Check::ok(
            NAME,
            format!("--napi can be used; interfaces and their queues: {names}"),
        ),
    }
}

/// The delays in force, and those that a process has left.
fn delays(found: &[(String, InterruptDelays)]) -> Check {
    const NAME: &str = "delayed interrupts";
    let all = || {
        found
            .iter()
            .filter_map(|(name, delays)| Some((name, delay_of(delays)?, delays.holder)))
    };
    let text = all().map(|(name, delay, holder)| {
        let by = match holder {
            DelayHolder::Process(process) => format!("by process {process}"),
            DelayHolder::Unknown => "by a softclock process".to_owned(),
            DelayHolder::None => "by no softclock process".to_owned(),
        };
        format!("{name}: {}, {by}", describe(delay))
    });
    let text: Vec<_> = text.collect();
    let left = all().find(|(_, _, holder)| *holder == DelayHolder::None);
    match (text.is_empty(), left) {
        (true, _) => Check::ok(NAME, "none"),
        (false, None) => Check::ok(NAME, text.join("; ")),
        (false, Some((name, ..))) => Check::note(NAME, text.join("; ")).advice(format!(
            "unless this is intended: echo 0 > /sys/class/net/{name}/gro_flush_timeout, and the same for \
             napi_defer_hard_irqs"
        )),
    }
}

/// The first delay of an interface that is in force: without a timeout there is none.
fn delay_of(delays: &InterruptDelays) -> Option<InterruptDelay> {
    let instances = delays.instances.iter().flatten();
    let mut all = instances.chain(&delays.interface).copied();
    all.find(|delay| !delay.timeout.is_zero())
}

fn describe(delay: InterruptDelay) -> String {
    let mut text = format!(
        "polled every {}, interrupts on after {} empty polls",
        format_time(delay.timeout),
        delay.rounds
    );
    if !delay.suspension.is_zero() {
        text += &format!(", suspended up to {}", format_time(delay.suspension));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::check::Status;
    use super::*;

    fn found(
        instances: io::Result<Vec<InterruptDelay>>,
        holder: DelayHolder,
    ) -> [(String, InterruptDelays); 1] {
        let delays = InterruptDelays {
            instances,
            interface: Ok(InterruptDelay::NONE),
            holder,
        };
        [("eth0".into(), delays)]
    }

    const DELAY: InterruptDelay = InterruptDelay {
        rounds: 2,
        timeout: Duration::from_micros(200),
        suspension: Duration::from_millis(20),
    };

    #[test]
    fn delays_that_were_left_are_noted() {
        let left = delays(&found(
            Ok(vec![InterruptDelay::NONE, DELAY]),
            DelayHolder::None,
        ));
        assert_eq!(left.status, Status::Note);
        let expected = "eth0: polled every 200us, interrupts on after 2 empty polls, suspended up to \
                        20ms, by no softclock process";
        assert_eq!(left.found, expected);
        assert!(
            left.advice
                .unwrap()
                .contains("/sys/class/net/eth0/gro_flush_timeout")
        );
        let held = delays(&found(Ok(vec![DELAY]), DelayHolder::Process(7)));
        assert_eq!((held.status, held.advice), (Status::Ok, None));
        assert!(held.found.ends_with("by process 7"), "{}", held.found);
        let none = delays(&found(Ok(vec![InterruptDelay::NONE]), DelayHolder::None));
        assert_eq!((none.status, &*none.found), (Status::Ok, "none"));
    }

    #[test]
    fn interfaces_with_receive_work_are_named() {
        let check = receive_work(&found(Ok(vec![DELAY; 2]), DelayHolder::None));
        assert!(check.found.ends_with(": eth0 (2)"), "{}", check.found);
        let check = receive_work(&found(Ok(Vec::new()), DelayHolder::None));
        assert_eq!(check.status, Status::Note);
        let old = Err(io::ErrorKind::Unsupported.into());
        let check = receive_work(&found(old, DelayHolder::None));
        assert!(check.found.contains("/sys") && check.advice.is_some());
    }
}
