//! Tests in a sandbox: a mechanism that it forbids fails when the poller is created, not at the first wait.

use std::io::{self, ErrorKind};
use std::thread;

use libc::c_long;

use super::*;

#[test]
fn what_is_forbidden_is_told_at_once() {
    let _alone = alone();
    for (mechanism, call) in [
        (Mechanism::IoUring, libc::SYS_io_uring_setup),
        (Mechanism::IoUring, libc::SYS_io_uring_enter),
        (Mechanism::Epoll, libc::SYS_epoll_create1),
        (Mechanism::Epoll, libc::SYS_epoll_pwait),
        (Mechanism::Poll, libc::SYS_ppoll),
        (Mechanism::Select, libc::SYS_pselect6),
    ] {
        let allowed = Poller::with_mechanism(mechanism);
        if let Err(error) = allowed {
            softclock_testing::skip!("{error}");
        }
        let made = without(call, move || Poller::with_mechanism(mechanism).map(drop));
        let error = match made {
            Some(made) => made.unwrap_err(),
            None => softclock_testing::skip!("no seccomp"),
        };
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let start = format!("cannot use {mechanism}: ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

#[test]
fn there_is_a_way_without_epoll() {
    let _alone = alone();
    let made = without(libc::SYS_epoll_create1, || {
        waits::another_thread_ends_a_wait(Poller::new()?);
        let poller = Poller::new()?;
        let reason = poller.fallback_reason().map(str::to_owned);
        Ok((poller.mechanism(), reason))
    });
    let (mechanism, reason) = match made {
        Some(made) => made.unwrap(),
        None => softclock_testing::skip!("no seccomp"),
    };
    assert_eq!(mechanism, Mechanism::Poll);
    let reason = reason.unwrap();
    assert!(reason.starts_with("cannot use epoll: "), "{reason}");
}

/// Calls `f` in a thread in which the system call fails with EPERM. Returns `None` if seccomp is not available.
fn without<R: Send + 'static>(
    call: c_long,
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> Option<io::Result<R>> {
    let thread = thread::spawn(move || forbid(call).ok().map(|()| f()));
    thread.join().unwrap()
}

/// Makes a system call fail with EPERM in the calling thread and in the threads that it starts.
fn forbid(call: c_long) -> io::Result<()> {
    let instruction = |code: u32, if_not: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: if_not,
        k,
    };
    // The call's number is the first field of `struct seccomp_data`.
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let filter = libc::SECCOMP_MODE_FILTER;
    // SAFETY: both calls take integers; the second also takes a program that outlives it, whose jumps stay inside.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) == 0
    };
    done.then_some(()).ok_or_else(io::Error::last_os_error)
}
