//! What softclock asks of Linux. The only crate of the workspace with `unsafe` code and the only one that uses `libc`.
//!
//! - [`clock`]: the processor's counter on the scale of CLOCK_MONOTONIC, and what else the kernel tells about time.
//! - [`alarm`]: the backup timer and deadline alarms, and what they may run in a signal.
//! - [`bpf`]: programs in the kernel, and what they are attached to.
//! - [`directory`]: what a directory holds.
//! - [`mod@file`]: files below a directory, opened and read without waiting where the caches allow.
//! - [`handover`]: listening sockets that a process leaves to the one that replaces it.
//! - [`inherited`]: sockets that the service manager opened.
//! - [`link`]: network links, and the frames on them.
//! - [`output`]: files, pipes and terminals written to without waiting.
//! - [`page_cache`]: what of a file is in memory.
//! - [`priority`]: how the scheduler treats a thread.
//! - [`probe`]: what the kernel lets this process do.
//! - [`readiness`]: which descriptors are ready, by io_uring, epoll, poll or select, and how other threads end a wait.
//! - [`socket`]: the kernel's TCP, UDP and Unix sockets.
//! - [`signal`]: SIGTERM and its like as a readable descriptor.
//!
//! With the feature `experiments`, for softclock-bench alone: `child`, processes that end with the one that started them;
//! `uring_timeout`, timeouts of an io_uring; and `alarm::SyntheticHandler`.

#[cfg(not(target_os = "linux"))]
compile_error!("softclock-linux runs on Linux only");

pub mod alarm;
#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod bpf;
#[cfg(feature = "experiments")]
pub mod child;
pub mod clock;
pub mod directory;
pub mod file;
pub mod handover;
pub mod inherited;
pub mod link;
pub mod output;
pub mod page_cache;
pub mod priority;
pub mod probe;
pub mod readiness;
pub mod signal;
pub mod socket;
#[cfg(feature = "experiments")]
pub mod uring_timeout;
