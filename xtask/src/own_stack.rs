//! `cargo xtask test-stack`: runs suites of the program and of the sockets on network stacks of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{ExitCode, Stdio};

use crate::command::{cargo, output};
use crate::counts::Counts;
use crate::steps::{Outcome, Steps};
use crate::test::{Run, SkipLog, skipped};
use crate::{go_programs, packages};

/// A test program that runs on stacks with `SOFTCLOCK_TEST_STACK` in its environment.
struct Suite {
    step: &'static str,
    name: &'static str,
    /// Parts of the names of the tests to run; none for all of them.
    only: &'static [&'static str],
    /// The tests that do not apply, and the reasons.
    except: &'static [(&'static str, &'static str)],
}

const SERVE: Suite = Suite {
    step: "serve on a stack",
    name: "serve",
    only: &[],
    except: &[
        ("changes::permissions_revoked_while_serving", OTHER_USER),
        (
            "errors::a_port_taken_by_another_softclock",
            "two stacks have no address in common",
        ),
        (
            "handover::a_client_of_http_2_may_ask_the_old_process_too",
            HANDOVER,
        ),
        (
            "handover::a_client_that_has_connected_may_ask_the_old_process",
            HANDOVER,
        ),
        (
            "handover::a_replacement_is_one_line_at_the_default_level",
            HANDOVER,
        ),
        (
            "handover::clients_that_connect_all_the_time_notice_nothing",
            HANDOVER,
        ),
        ("handover::idle_connections_are_let_go_in_time", HANDOVER),
        ("handover::the_program_may_be_another_by_then", HANDOVER),
        (
            "handover::the_service_manager_learns_of_the_new_process",
            HANDOVER,
        ),
        ("hostile::files_that_may_not_be_read", OTHER_USER),
        (
            "stalled::an_error_of_the_socket_is_no_stall",
            "a connection makes no system calls, so none can fail",
        ),
    ],
};

const PROXY: Suite = Suite {
    step: "proxy on a stack",
    name: "proxy",
    only: &[],
    except: &[
        (
            "departures::an_end_counts_while_the_upstream_is_not_reached",
            "the test sees connections by their descriptors, which those of a stack do not take",
        ),
        (
            "failing::without_descriptors_the_answer_is_503_and_nobody_is_to_blame",
            "a connection to an upstream takes no descriptor",
        ),
        (
            "reload::a_new_process_takes_over_while_a_response_comes",
            HANDOVER,
        ),
        (
            "retries::a_try_on_a_connection_that_was_closed_counts",
            "the connections of a program that is killed are not ended",
        ),
    ],
};

const FUZZ: Suite = Suite {
    step: "connections at random on a stack",
    name: "fuzz",
    only: &[],
    except: &[],
};

const SOCKETS: Suite = Suite {
    step: "sockets of a stack",
    name: "sockets",
    only: &["soft_lrp", "early_demux", "bsd", "ni_lrp"],
    except: &[],
};

const OTHER_USER: &str = "the program must run as another user, who may not create devices";

const HANDOVER: &str = "a stack cannot be handed to another process";

/// Runs all suites. The last line has the counts.
pub(crate) fn task() -> ExitCode {
    let mut steps = Steps::default();
    steps.run("packages", packages::install_missing);
    steps.run("programs in Go", go_programs::install_missing);
    let mut counts = Counts::default();
    for suite in [&SERVE, &PROXY, &FUZZ, &SOCKETS] {
        steps.run(suite.step, || suite.run(&mut counts));
    }
    steps.summary();
    counts.print();
    steps.exit_code()
}

/// Runs the suite of `serve`, for `ci`: the quickest of those in which a server does all of TCP's work.
pub(crate) fn serve(counts: &mut Counts) -> Result<Outcome, String> {
    SERVE.run(counts)
}

impl Suite {
    /// Runs the tests, but for the exceptions, and adds to `counts`.
    fn run(&self, counts: &mut Counts) -> Result<Outcome, String> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !is_root {
            return skipped("needs root for network namespaces");
        }
        self.check_exceptions()?;
        for (test, reason) in self.except {
            println!("left out: {test}: {reason}");
        }
        let skips = self.except.iter().flat_map(|(test, _)| ["--skip", test]);
        // With `--exact` a name excludes no other test whose name begins with it.
        let exact = (!self.except.is_empty()).then_some("--exact");
        let words = self.command();
        let words = words.into_iter().chain(["--"]);
        let words = words
            .chain(self.only.iter().copied())
            .chain(exact)
            .chain(skips);
        let arguments: Vec<String> = words.map(str::to_owned).collect();
        let log = SkipLog::new();
        let run = Run {
            arguments: &arguments,
            environment: Some(("SOFTCLOCK_TEST_STACK", "1")),
            log: log.path(),
        };
        let result = run.count(counts);
        let outcome = log.outcome(counts);
        result.and(outcome)
    }

    /// Checks that each exception is a test of the suite.
    fn check_exceptions(&self) -> Result<(), String> {
        let list = ["--", "--list", "--format", "terse"];
        let mut command = cargo(["test", "--workspace", "--all-features", "--quiet"]);
        command.args(self.command()).args(list);
        command.stderr(Stdio::inherit());
        let listed = output(command)?;
        let tests: Vec<_> = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .collect();
        let mut names = self.except.iter().map(|(name, _)| *name);
        match names.find(|name| !tests.contains(name)) {
            Some(name) => Err(format!("{} has no test {name}", self.name)),
            None => Ok(()),
        }
    }

    /// Chooses the test program, of the workspace: its package alone would have other features, and be compiled anew.
    fn command(&self) -> [&'static str; 2] {
        ["--test", self.name]
    }
}
