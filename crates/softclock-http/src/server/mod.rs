//! A server: its threads, their settings, and changes of the settings while the threads run.
//!
//! | part | file |
//! |---|---|
//! | the threads, each with its own runtime | `threads.rs` |
//! | one thread's share: accept loops and connections | `worker.rs` |
//! | all settings of a server, as one value | `settings.rs` |
//! | changes and reports while the server runs | `control.rs` |

pub(crate) mod control;
pub(crate) mod settings;
pub(crate) mod threads;
pub(crate) mod worker;
