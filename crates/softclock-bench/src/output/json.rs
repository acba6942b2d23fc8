//! Results as JSON for other programs. The schema is `{"experiment", "title", "date", "environment", "steal", "notes",
//! "rows"}`, `"rounds"` and `"only"` if the user chose them, and `"charts"` if there are any. `"date"` is the UTC date on which the experiment ended, as `2026-11-30`;
//! `"steal"` is null where the kernel does not report steal time.

use serde::Serialize;
use time::OffsetDateTime;

use crate::measure::environment::Environment;
use crate::measure::steal::Steal;
use crate::output::chart::Chart;
use crate::output::report::Row;

/// One experiment's result.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The table's heading.
    pub title: &'static str,
    /// The UTC date on which the experiment ended.
    pub date: String,
    /// The user's number of rounds; `None` for the experiment's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    /// The text by which the user chose subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// The machine and the versions.
    pub environment: Environment,
    /// The steal time of its rounds.
    pub steal: Option<Steal>,
    /// Remarks that the reader needs to interpret the numbers.
    pub notes: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The charts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
}

/// Returns today's date in UTC, as `2026-11-30`.
pub fn today() -> String {
    OffsetDateTime::now_utc().date().to_string()
}

/// Returns the records as an array if `several` experiments were selected, otherwise the one record alone.
pub fn document(records: &[&Record], several: bool) -> String {
    let text = match records {
        [one] if !several => serde_json::to_string_pretty(one),
        all => serde_json::to_string_pretty(all),
    };
    // The types above hold only strings, numbers and collections of them, which always serialize.
    let mut text = text.expect("records serialize");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_experiments_make_an_array_even_of_one() {
        let record = Record {
            experiment: "group/name",
            title: "a title",
            date: today(),
            rounds: None,
            only: None,
            environment: Environment::detect(),
            steal: Some(Steal::default()),
            notes: Vec::new(),
            rows: Vec::new(),
            charts: Vec::new(),
        };
        assert!(document(&[&record], false).starts_with('{'));
        assert!(document(&[&record], true).starts_with('['));
    }
}
