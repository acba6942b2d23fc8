//! The language: from the text of a script to its [`Script`].
//!
//! | file | contents |
//! |---|---|
//! | `cursor.rs` | positions, errors, tokens, comments |
//! | `preprocess.rs` | conditional lines |
//! | `event.rs` | options, times, and the kinds of events |
//! | `expression.rs` | arguments of system calls |
//! | `call.rs` | system calls and their results |
//! | `segment.rs` | packets, segments and their options |
//! | `icmp.rs` | messages of ICMP |
//! | `directive.rs` | directives, which are comments for other runners |

mod call;
mod cursor;
mod directive;
mod event;
mod expression;
mod icmp;
mod preprocess;
mod segment;
#[cfg(test)]
mod tests;

pub use call::{Call, ResultValue};
pub use cursor::{ParseError, Position, Reason};
pub use directive::{Directive, Owner};
pub use event::{Action, Event, Script, ScriptOption, Time};
pub use expression::Expression;
pub use icmp::{IcmpSpec, Quoted};
pub use segment::{Body, Direction, Ecn, PacketSpec, Range, SegmentSpec};
