//! Why a link cannot be opened.

use std::{fmt, io};

/// Why a link cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// The link has this many queues, more than one, and the settings choose none.
    Queues(usize),
    /// A system call of this step failed.
    Failed(XdpStep, io::Error),
}

/// The steps of opening a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum XdpStep {
    /// Counting the receive queues: see [`Link::receive_queues`](crate::link::Link::receive_queues).
    Queues,
    /// Promiscuous mode. Needs CAP_NET_RAW and an Ethernet link.
    Promiscuity,
    /// Creating the socket and its memory. Needs CAP_IPC_LOCK, or a limit of locked memory of at least 12 MiB for each
    /// socket. `InvalidInput` if the memory has no share left, or its first socket is not open.
    Socket,
    /// Binding to the queue. `EOPNOTSUPP` if the driver has no zero-copy mode, and
    /// [`Copies::Never`](super::Copies::Never) is set or the first socket of the memory has that mode; `EBUSY` if
    /// another socket has the queue; `EINVAL` if the link has no queue of this number.
    Queue,
    /// Loading the XDP program. Needs CAP_BPF. `InvalidInput` if the filter has more than
    /// [`XdpFilter::MOST_ENTRIES`](super::XdpFilter::MOST_ENTRIES) addresses or ports.
    Program,
    /// Attaching the program to the driver; see [`Program::attach_xdp`](crate::bpf::Program::attach_xdp).
    Driver,
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues(count) => write!(f, "the link has {count} queues"),
            Self::Failed(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

impl std::error::Error for XdpError {}

impl fmt::Display for XdpStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queues => "cannot count the receive queues",
            Self::Promiscuity => "cannot enter promiscuous mode",
            Self::Socket => "cannot create the socket",
            Self::Queue => "cannot bind to the queue",
            Self::Program => "cannot load the XDP program",
            Self::Driver => "cannot attach the XDP program to the driver",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_and_why() {
        let error = io::Error::from_raw_os_error(libc::EBUSY);
        let text = XdpError::Failed(XdpStep::Queue, error).to_string();
        assert!(
            text.starts_with("cannot bind to the queue: Device or resource busy"),
            "{text}"
        );
        assert_eq!(XdpError::Queues(4).to_string(), "the link has 4 queues");
    }
}
