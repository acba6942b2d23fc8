//! A site asked without a connection: codings, conditions and ranges.

mod codings;
mod conditions;
mod multirange;
mod visitor;
