//! The scanner of heads: known attacks, arbitrary bytes, and hyper's opinion of what is let through.

mod corpus;
mod properties;
mod target;
