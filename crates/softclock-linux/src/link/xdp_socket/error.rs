//! Why a link cannot be opened.

use std::io;

/// Why a link cannot be opened.
#[derive(Debug)]
pub enum XdpError {
    /// The link has this many queues, more than one, and the settings choose none.
    Queues(usize),
    /// A system call of this step failed.
    Failed(XdpStep, io::Error),
}

/// The steps of opening a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpStep {
    /// Promiscuous mode. Needs CAP_NET_RAW and an Ethernet link.
    Promiscuity,
    /// Creating the socket and its memory. Needs CAP_IPC_LOCK, or a limit of locked memory of at least 12 MiB for each
    /// socket. `InvalidInput` if the memory has no share left, or its first socket is not open.
    Socket,
    /// Binding to the queue. `EOPNOTSUPP` if the driver has no zero-copy mode, and
    /// [`Copies::Never`](super::Copies::Never) is set or the first socket of the memory has that mode; `EBUSY` if another
    /// socket has the queue; `EINVAL` if the link has no queue of this number.
    Queue,
    /// Loading the XDP program. Needs CAP_BPF. `InvalidInput` if the filter has more than
    /// [`XdpFilter::MOST_ENTRIES`](super::XdpFilter::MOST_ENTRIES) addresses or ports.
    Program,
    /// Attaching the program to the driver; see [`Program::attach_xdp`](crate::bpf::Program::attach_xdp).
    Driver,
}
