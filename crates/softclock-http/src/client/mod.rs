//! What is known of clients, and how much each may have: time, connections, streams.
//!
//! | what | file |
//! |---|---|
//! | the options of connections | `options.rs` |
//! | how long a client may take, in each phase | `patience.rs` |
//! | the limit of connections, and those that make room | `members.rs` |
//! | limits for each client address | `by_address.rs` |
//! | the body of a request as it arrives | `request_body.rs` |

pub(crate) mod by_address;
pub(crate) mod members;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod request_body;
