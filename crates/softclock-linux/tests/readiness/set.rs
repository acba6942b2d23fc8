//! Tests of adding and removing descriptors.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use softclock_linux::file::raise_descriptor_limit;

use super::*;

pub(crate) fn a_removed_descriptor_is_silent(mut poller: Poller) {
    let (here, mut there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    poller.remove(here.as_fd()).unwrap();
    there.write_all(b"x").unwrap();
    assert_eq!(look(&mut poller), []);
    poller.rearm(here.as_fd(), Readiness::READABLE);
    assert_eq!(look(&mut poller), []);
}

pub(crate) fn removal_takes_back_what_waited(mut poller: Poller) {
    let mut pairs: Vec<_> = (0..2 * BATCH).map(|_| pair()).collect();
    for (token, (here, _)) in (0..).zip(&pairs) {
        poller.add(here.as_fd(), Token(token)).unwrap();
    }
    until_all(&mut poller, pairs.len(), Readiness::WRITABLE);
    for (_, there) in &mut pairs {
        there.write_all(b"x").unwrap();
    }
    // This wait may fetch events of more descriptors from the kernel than it returns.
    wait(&mut poller);
    for (here, _) in &pairs {
        poller.remove(here.as_fd()).unwrap();
    }
    assert_eq!(look(&mut poller), []);
}

pub(crate) fn a_descriptor_is_in_the_set_once(mut poller: Poller) {
    let (here, _there) = pair();
    let missing = poller.remove(here.as_fd()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    poller.add(here.as_fd(), Token(7)).unwrap();
    let again = poller.add(here.as_fd(), Token(8)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(wait(&mut poller), [(Token(7), Readiness::WRITABLE)]);
    poller.remove(here.as_fd()).unwrap();
    assert!(poller.remove(here.as_fd()).is_err());
}

pub(crate) fn closing_closes(mut poller: Poller) {
    for waited in [true, false] {
        let (here, mut there) = pair();
        let limit = Some(Duration::from_secs(20));
        there.set_read_timeout(limit).unwrap();
        poller.add(here.as_fd(), Token(7)).unwrap();
        if waited {
            wait(&mut poller);
        }
        poller.remove_closing(here.as_fd()).unwrap();
        drop(here);
        assert_eq!(there.read(&mut [0]).unwrap(), 0, "the file is still open");
        assert_eq!(look(&mut poller), []);
    }
}

pub(crate) fn a_number_used_again_is_another_descriptor(mut poller: Poller) {
    let (here, mut there) = pair();
    poller.add(here.as_fd(), Token(1)).unwrap();
    wait(&mut poller);
    there.write_all(b"x").unwrap();
    let (other, mut there) = pair();
    let number = here.as_raw_fd();
    poller.remove_closing(here.as_fd()).unwrap();
    drop(here);
    let here = other.try_clone().unwrap();
    assert_eq!(here.as_raw_fd(), number, "the lowest number is free");
    poller.add(here.as_fd(), Token(2)).unwrap();
    assert_eq!(wait(&mut poller), [(Token(2), Readiness::WRITABLE)]);
    there.write_all(b"x").unwrap();
    assert_eq!(wait(&mut poller)[0].0, Token(2));
    assert_eq!(look(&mut poller), []);
}

pub(crate) fn files_that_are_always_ready_are_refused(mut poller: Poller) {
    for path in ["/proc/self/exe", "/", "/dev/null"] {
        let file = File::open(path).unwrap();
        let error = poller.add(file.as_fd(), Token(7)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}");
        assert_eq!(look(&mut poller), []);
    }
}

pub(crate) fn only_select_refuses_high_descriptors(mut poller: Poller) {
    if raise_descriptor_limit() < 1100 {
        softclock_testing::skip!("no descriptor so high");
    }
    let (here, _there) = pair();
    let high = rustix::io::fcntl_dupfd_cloexec(&here, 1024).unwrap();
    match poller.add(high.as_fd(), Token(1)) {
        Ok(()) => assert_eq!(wait(&mut poller).len(), 1),
        Err(error) => {
            assert_eq!(poller.mechanism(), Mechanism::Select);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("1023"), "{error}");
        }
    }
}
