//! Tests of the scanner of heads: known attacks, arbitrary bytes, and comparison of accepted requests with hyper.

mod corpus;
mod properties;
mod target;
