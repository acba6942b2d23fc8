//! Examples of other crates, as programs for tests.

use std::path::PathBuf;
use std::process::Command;

/// Builds an example of a package of this workspace, and returns the path of its program.
///
/// # Panics
/// If it cannot be built.
pub fn example(package: &str, name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--message-format", "json"])
        .args(["--package", package, "--example", name])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{name}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let program = text.lines().find_map(|line| program_of(line, name));
    program.expect("cargo has built it")
}

/// The path of the program of an example, if this message of cargo has it. Searches the text instead of parsing JSON:
/// serde_json implements comparisons with its values, which would make the types of numbers ambiguous in the tests of
/// all crates.
fn program_of(message: &str, name: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    let (path, _) = rest.split_once('"')?;
    path.ends_with(&format!("/examples/{name}"))
        .then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_message_of_the_example_has_its_program() {
        let message = |executable: &str| {
            format!(
                "{{\"target\":{{\"name\":\"relay\"}},\"executable\":{executable},\"fresh\":true}}"
            )
        };
        let built = message("\"/target/debug/examples/relay\"");
        assert_eq!(
            program_of(&built, "relay"),
            Some("/target/debug/examples/relay".into())
        );
        assert_eq!(program_of(&built, "dns"), None);
        assert_eq!(program_of(&message("null"), "relay"), None);
        assert_eq!(program_of("{\"reason\":\"build-finished\"}", "relay"), None);
    }
}
