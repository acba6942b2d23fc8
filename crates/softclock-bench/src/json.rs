//! Results for other programs: the schema is `{"experiment", "environment", "steal", "rows"}`, and `"charts"` where there
//! are figures. `"steal"` is null where the kernel does not tell steal time.

use serde::Serialize;

use crate::chart::Chart;
use crate::environment::Environment;
use crate::report::Row;
use crate::steal::Steal;

/// One experiment's result.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Where it ran.
    pub environment: Environment,
    /// The steal time of its rounds.
    pub steal: Option<Steal>,
    /// What it found.
    pub rows: Vec<Row>,
    /// Its figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
}

/// The records as an array if `several` were asked for, otherwise the one record by itself.
pub fn document(records: &[&Record], several: bool) -> String {
    let text = match records {
        [one] if !several => serde_json::to_string_pretty(one),
        all => serde_json::to_string_pretty(all),
    };
    // The types above hold only strings and numbers, which always have a JSON form.
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
            environment: Environment::detect(),
            steal: Some(Steal::default()),
            rows: Vec::new(),
            charts: Vec::new(),
        };
        assert!(document(&[&record], false).starts_with('{'));
        assert!(document(&[&record], true).starts_with('['));
    }
}
