//! Tests of a site without connections: codings, conditions and ranges.

mod codings;
mod conditions;
mod multirange;
mod visitor;
