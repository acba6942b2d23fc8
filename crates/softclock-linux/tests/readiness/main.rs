//! Conformance tests of the readiness mechanisms. The suite is a list of functions that take a poller; each mechanism
//! runs all of them.

mod ends;
mod sandbox;
mod set;
mod states;
mod waits;

use std::collections::HashSet;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softclock_linux::readiness::{BATCH, Mechanism, Poller, Readiness, ReadyEvent, Timeout, Token};

macro_rules! conformance {
    ($($name:ident => $mechanism:ident;)*) => {$(
        mod $name {
            use super::*;
            conformance!(@tests $mechanism;
                states::a_new_descriptor_reports_its_state
                states::reading_is_reported_by_edges
                states::writing_is_reported_by_edges
                states::events_come_in_batches
                states::many_descriptors
                states::what_may_be_pending_is_pending
                set::a_removed_descriptor_is_silent
                set::removal_takes_back_what_waited
                set::a_descriptor_is_in_the_set_once
                set::closing_closes
                set::a_number_used_again_is_another_descriptor
                set::files_that_are_always_ready_are_refused
                set::only_select_refuses_high_descriptors
                waits::waits_are_as_long_as_asked
                waits::a_signal_ends_a_wait
                waits::another_thread_ends_a_wait
                waits::no_wake_up_is_lost
                waits::a_timer_ends_waits_once_it_is_due
                ends::a_closed_peer_is_reported
                ends::a_half_closed_peer_is_reported
                ends::a_reset_is_reported
                ends::an_error_is_reported_once
            );
        }
    )*};
    (@tests $mechanism:ident; $($file:ident::$test:ident)*) => {$(
        #[test]
        fn $test() {
            let _alone = alone();
            match Poller::with_mechanism(Mechanism::$mechanism) {
                Ok(poller) => $file::$test(poller),
                Err(error) => softclock_testing::skip!("{error}"),
            }
        }
    )*};
}

conformance! {
    io_uring => IoUring;
    epoll => Epoll;
    poll => Poll;
    select => Select;
}

/// Keeps other tests from running at the same time: they could take the descriptor numbers that a test counts on.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_mechanism_is_known() {
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        let Ok(poller) = Poller::with_mechanism(mechanism) else {
            softclock_testing::skip!("no {mechanism}");
        };
        assert_eq!(poller.mechanism(), mechanism);
    }
    let named = std::env::var("SOFTCLOCK_EVENTS").map(|name| name.parse().unwrap());
    let default = named.unwrap_or(Mechanism::Epoll);
    assert_eq!(Poller::new().unwrap().mechanism(), default);
}

fn pair() -> (UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (here, there)
}

/// Whether the mechanism reports ends and errors as such. select reports them as READABLE or WRITABLE.
fn tells_ends(poller: &Poller) -> bool {
    poller.mechanism() != Mechanism::Select
}

/// Waits for events, and fails if none comes.
fn wait(poller: &mut Poller) -> Vec<(Token, Readiness)> {
    let events = wait_for(poller, Timeout::After(Duration::from_secs(20)));
    assert!(!events.is_empty(), "nothing came");
    events
}

/// Returns the events that are there, without blocking.
fn look(poller: &mut Poller) -> Vec<(Token, Readiness)> {
    wait_for(poller, Timeout::Now)
}

fn wait_for(poller: &mut Poller, timeout: Timeout) -> Vec<(Token, Readiness)> {
    let stale = ReadyEvent {
        token: Token(0),
        readiness: Readiness::NONE,
    };
    let mut events = vec![stale];
    let found = poller.wait(timeout, &mut events).unwrap();
    assert_eq!(found, events.len());
    assert!(found <= BATCH);
    let events = events.iter();
    events.map(|event| (event.token, event.readiness)).collect()
}

/// Waits until `readiness` has been reported for each token below `end`.
fn until_all(poller: &mut Poller, end: usize, readiness: Readiness) {
    let mut missing: HashSet<_> = (0..end as u64).collect();
    while !missing.is_empty() {
        for (token, found) in wait(poller) {
            if found.contains(readiness) {
                missing.remove(&token.0);
            }
        }
    }
}
