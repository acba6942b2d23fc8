//! Safe wrappers around the Linux interfaces that softclock uses.
//!
//! This is the only crate of the workspace with `unsafe` code, and the only one that uses `libc`, but for the border of
//! softclock-c.
//!
//! - [`clock`]: reads the processor's counter on the scale of CLOCK_MONOTONIC, and the kernel's other clocks.
//! - [`alarm`]: the backup timer and deadline alarms, and the handlers that may run inside their signals.
//! - [`bpf`]: loads BPF programs and attaches them to sockets and links.
//! - [`busy_poll`]: the kernel's receive work for a device inside the calls of the threads that wait for its frames.
//! - [`directory`]: lists the files in a directory.
//! - [`mod@file`]: opens and reads files below a directory, without waiting for the disk if the data is cached.
//! - [`handover`]: passes listening sockets to the process that replaces this one.
//! - [`inherited`]: takes over sockets that the service manager opened.
//! - [`link`]: sends and receives frames on network links.
//! - [`output`]: writes to files, pipes and terminals without waiting.
//! - [`page_cache`]: checks whether a part of a file is in memory.
//! - [`priority`]: sets the scheduling priority of a thread.
//! - [`probe`]: checks which kernel features this process may use.
//! - [`readiness`]: waits until descriptors are ready, by io_uring, epoll, poll or select; other threads can end a
//!   wait.
//! - [`socket`]: the kernel's TCP, UDP and Unix sockets.
//! - [`signal`]: reads SIGTERM and other signals from a descriptor.
//!
//! The feature `count-allocations` adds `allocations`, an allocator that counts. The feature `experiments`, for
//! softclock-bench only, adds `child`, which starts processes that end with the thread that started them;
//! `uring_timeout`, timeouts of an io_uring; `alarm::SyntheticHandler`; and in `link` `Polling` and `SharedXdpSocket`.

#[cfg(not(target_os = "linux"))]
compile_error!("softclock-linux runs on Linux only");

pub mod alarm;
#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod bpf;
pub mod busy_poll;
#[cfg(feature = "experiments")]
pub mod child;
pub mod clock;
pub mod directory;
pub mod file;
pub mod handover;
pub mod inherited;
pub mod link;
mod memory;
pub mod output;
pub mod page_cache;
pub mod priority;
pub mod probe;
pub mod readiness;
pub mod signal;
pub mod socket;
#[cfg(feature = "experiments")]
pub mod uring_timeout;
