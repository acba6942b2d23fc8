//! A server: its threads, what they serve by, and how that changes while they run.
//!
//! | what | file |
//! |---|---|
//! | threads, each with a runtime of its own | `threads.rs` |
//! | one thread's share: accept loops and connections | `worker.rs` |
//! | what a server does, as one value | `settings.rs` |
//! | changes and reports while it runs | `control.rs` |

pub(crate) mod control;
pub(crate) mod settings;
pub(crate) mod threads;
pub(crate) mod worker;
