//! Features that must not reach a user's build.

use crate::boundaries::verdict;
use crate::command::{cargo, output};
use crate::steps::Outcome;

/// The command is built without the parts that only experiments use. A build of the whole workspace unifies features
/// and so would not show it.
pub(crate) fn experiments_stay_out() -> Result<Outcome, String> {
    let tree = ["tree", "--edges", "features,normal", "--prefix", "none"];
    let tree = output(cargo(tree.into_iter().chain(["--package", COMMAND])))?;
    let offences: Vec<String> = tree
        .lines()
        .filter(|line| line.contains("feature \"experiments\""))
        .map(str::to_owned)
        .collect();
    verdict(
        "the feature `experiments` is for softclock-bench alone",
        &offences,
    )
}

const COMMAND: &str = "softclock-cli";
