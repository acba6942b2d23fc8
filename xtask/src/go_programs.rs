//! The programs written in Go that the tests start, of which Debian has no packages.

use std::path::PathBuf;

use crate::command::{output, program, run};
use crate::packages::is_installed;
use crate::steps::Outcome;

/// Installs h2spec among the user's programs of Go if Go is there. Otherwise returns the command to run: the test that
/// needs it skips itself.
pub(crate) fn install_missing() -> Result<Outcome, String> {
    if has_h2spec() {
        return Ok(Outcome::Done);
    }
    println!("missing: h2spec (asks the server what RFC 9113 asks of it)");
    if !is_installed("go") {
        let notice = format!("h2spec is missing, and so is Go; then run: go install {H2SPEC}");
        return Ok(Outcome::Notice(notice));
    }
    let notice = match run(program("go", ["install", H2SPEC])) {
        Ok(()) if has_h2spec() => "installed h2spec".into(),
        Ok(()) => "still missing: h2spec".into(),
        Err(reason) => format!("{reason}; try: go install {H2SPEC}"),
    };
    Ok(Outcome::Notice(notice))
}

/// Where the test looks for it, too.
fn has_h2spec() -> bool {
    let in_go = || {
        let path = output(program("go", ["env", "GOPATH"])).ok()?;
        Some(PathBuf::from(path.trim()).join("bin/h2spec"))
    };
    is_installed("h2spec") || in_go().is_some_and(|program| program.is_file())
}

const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";
