//! The reader of responses: what it refuses, arbitrary bytes in arbitrary pieces, and hyper's opinion of what it accepts.

mod corpus;
mod properties;
mod target;
