//! Tests of the reader of responses: refused responses, arbitrary bytes in arbitrary pieces, and comparison of accepted
//! responses with hyper.

mod corpus;
mod properties;
mod target;
