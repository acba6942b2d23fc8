//! HTTP as text: parsers and rules without files, sockets or clocks.
//!
//! | subject | file |
//! |---|---|
//! | heads of requests, scanned strictly as they arrive | `head/` |
//! | responses of upstreams, from their first byte to their last | `response/` |
//! | paths of requests | `path.rs` |
//! | ranges | `range.rs` |
//! | preconditions and validators | `conditional.rs` |
//! | content codings | `coding.rs` |

pub mod coding;
pub mod conditional;
pub mod head;
pub mod path;
pub mod range;
pub mod response;
