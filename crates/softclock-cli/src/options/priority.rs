//! Parses priorities: `nice:-10`, `fifo:1`, `rr:1`.

use softclock_linux::priority::Priority;

/// Parses a priority.
///
/// # Errors
/// The text is not a priority; the error lists the valid forms on one line.
pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    let (kind, number) = text.split_once(':').unwrap_or((text, ""));
    let realtime = || {
        number
            .parse()
            .ok()
            .filter(|number| (1..=99).contains(number))
    };
    let priority = match kind {
        "nice" => {
            let nice = number.parse().ok();
            let nice = nice.filter(|nice| (-20..=19).contains(nice));
            nice.map(Priority::Nice)
        }
        "fifo" => realtime().map(Priority::Fifo),
        "rr" => realtime().map(Priority::RoundRobin),
        _ => None,
    };
    priority.ok_or_else(|| "write nice:-20 to nice:19, fifo:1 to fifo:99, or rr:1 to rr:99".into())
}

/// Explains why the system refuses a priority, and which setting allows it.
pub(crate) fn refusal(priority: Priority, error: &std::io::Error) -> String {
    let limit = match priority {
        Priority::Nice(_) => "ulimit -e, LimitNICE= of systemd",
        _ => "ulimit -r, LimitRTPRIO= with RestrictRealtime=no of systemd",
    };
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "no permission for --priority {priority}: it needs root, CAP_SYS_NICE or a limit that allows it ({limit})"
        ),
        _ => format!("cannot set --priority {priority}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_written_by_kind() {
        for (text, expected) in [
            ("nice:-20", Priority::Nice(-20)),
            ("nice:19", Priority::Nice(19)),
            ("fifo:1", Priority::Fifo(1)),
            ("rr:99", Priority::RoundRobin(99)),
        ] {
            assert_eq!(priority(text), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
        for text in [
            "", "1", "nice", "nice:", "nice:20", "nice:-21", "fifo:0", "rr:100", "fast:1",
        ] {
            assert!(
                priority(text).unwrap_err().contains("nice:-20 to"),
                "{text}"
            );
        }
    }
}
