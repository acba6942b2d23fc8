//! Network code below HTTP: addresses, listeners, sockets, and the timers and buffers of connections.
//!
//! | subject | file |
//! |---|---|
//! | addresses to listen on, as text | `address.rs` |
//! | listening sockets, and handing them over to another process | `listener.rs` |
//! | connections over TCP, Unix sockets and TLS | `carrier.rs` |
//! | the socket interface that an HTTP connection uses | `socket.rs` |
//! | certificates and keys | `tls.rs` |
//! | rates at which responses are sent | `pace.rs` |
//! | files sent past hyper, without a copy | `file_lane.rs` |
//! | one timer for all deadlines of a connection | `late_timer.rs` |
//! | buffers that a thread reuses | `buffers.rs` |

pub(crate) mod address;
pub(crate) mod buffers;
pub(crate) mod carrier;
pub(crate) mod file_lane;
pub(crate) mod late_timer;
pub(crate) mod listener;
pub(crate) mod pace;
pub(crate) mod socket;
pub(crate) mod tls;
