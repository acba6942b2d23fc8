//! The event bits that poll, epoll and io_uring have in common.

use super::Readiness;

/// Converts the bits that the kernel reported.
pub(super) fn readiness(bits: u32) -> Readiness {
    MEANING
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(Readiness::NONE, |all, (_, readiness)| all | *readiness)
}

/// Converts conditions to the bits to ask for. The kernel reports errors and the closing of both directions in any
/// case.
pub(super) fn bits(readiness: Readiness) -> u32 {
    ASKED
        .iter()
        .filter(|(_, asked)| readiness.intersects(*asked))
        .fold(0, |all, (bit, _)| all | bit)
}

/// POLLHUP: both directions are closed.
const HUNG_UP: Readiness =
    Readiness::from_bits(Readiness::READ_CLOSED.bits() | Readiness::WRITE_CLOSED.bits());

const ASKED: [(u32, Readiness); 4] = [
    (libc::POLLIN as u32, Readiness::READABLE),
    (libc::POLLOUT as u32, Readiness::WRITABLE),
    (libc::POLLRDHUP as u32, Readiness::READ_CLOSED),
    (libc::POLLPRI as u32, Readiness::PRIORITY),
];

const MEANING: [(u32, Readiness); 7] = [
    ASKED[0],
    ASKED[1],
    ASKED[2],
    ASKED[3],
    (libc::POLLHUP as u32, HUNG_UP),
    (libc::POLLERR as u32, Readiness::ERROR),
    // The descriptor was closed without being removed. The owner's next call on it fails with EBADF.
    (libc::POLLNVAL as u32, Readiness::ERROR),
];

const _: () = {
    assert!(libc::POLLIN as i32 == libc::EPOLLIN);
    assert!(libc::POLLOUT as i32 == libc::EPOLLOUT);
    assert!(libc::POLLRDHUP as i32 == libc::EPOLLRDHUP);
    assert!(libc::POLLPRI as i32 == libc::EPOLLPRI);
    assert!(libc::POLLHUP as i32 == libc::EPOLLHUP);
    assert!(libc::POLLERR as i32 == libc::EPOLLERR);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_back() {
        for readiness_asked in [
            Readiness::READABLE,
            Readiness::WRITABLE,
            Readiness::READ_CLOSED,
            Readiness::PRIORITY,
        ] {
            assert_eq!(readiness(bits(readiness_asked)), readiness_asked);
        }
        assert_eq!(bits(Readiness::ERROR), 0);
        assert_eq!(readiness(libc::POLLHUP as u32), HUNG_UP);
    }
}
