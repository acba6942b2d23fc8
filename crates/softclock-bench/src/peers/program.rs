//! Peers in other languages: their sources are in `peers/` and compiled when an experiment runs, where the machine has
//! what they need.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Compiles peers into a directory that goes with it.
#[derive(Debug)]
pub struct Workshop {
    directory: TempDir,
}

/// A source file: its name and its text.
pub type Source = (&'static str, &'static str);

/// A C library, as pkg-config and Debian know it.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Its name for pkg-config.
    pub name: &'static str,
    /// The package that holds its headers.
    pub debian: &'static str,
    /// What to link with.
    pub link: &'static [&'static str],
}

/// A peer that was compiled.
#[derive(Debug)]
pub struct Compiled {
    /// Where it is, for as long as the workshop.
    pub program: PathBuf,
    /// Of the library or language.
    pub version: String,
}

impl Workshop {
    /// An empty one.
    ///
    /// # Errors
    /// If there is no place for temporary files.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            directory: tempfile::tempdir()?,
        })
    }

    /// The program that the first of `sources` makes with `library`; the others are its headers.
    ///
    /// # Errors
    /// A sentence for the notes: what is missing, and which package has it.
    pub fn c_program(&self, sources: &[Source], library: Library) -> Result<Compiled, String> {
        let install = |why| {
            let (name, debian) = (library.name, library.debian);
            format!("{name} is left out: {why}; on Debian: apt-get install {debian} gcc pkg-config")
        };
        let about = |what| output(Command::new("pkg-config").args([what, library.name]));
        let flags = about("--cflags").map_err(install)?;
        let version = about("--modversion").map_err(install)?;
        let (source, program) = self.place(sources)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-std=gnu11", "-o"]);
        compiler.arg(&program).arg(source);
        compiler.args(flags.split_whitespace()).args(library.link);
        output(&mut compiler).map_err(install)?;
        Ok(Compiled { program, version })
    }

    /// The program that a file of Go makes.
    ///
    /// # Errors
    /// A sentence for the notes: what is missing, and which package has it.
    pub fn go_program(&self, source: Source) -> Result<Compiled, String> {
        let install = |why| format!("Go is left out: {why}; on Debian: apt-get install golang-go");
        let version = output(Command::new("go").args(["env", "GOVERSION"])).map_err(install)?;
        let (source, program) = self.place(&[source])?;
        let mut compiler = Command::new("go");
        compiler.args(["build", "-o"]).arg(&program).arg(source);
        // Go builds nothing without a cache, and has none where HOME is not set.
        if std::env::var_os("HOME").is_none() {
            compiler.env("GOCACHE", self.directory.path().join("cache"));
        }
        // No other compiler is to be fetched, and there is no module.
        compiler.envs([("GOTOOLCHAIN", "local"), ("GO111MODULE", "off")]);
        output(&mut compiler).map_err(install)?;
        Ok(Compiled { program, version })
    }

    /// Writes the sources, and says where the first is and where its program goes.
    fn place(&self, sources: &[Source]) -> Result<(PathBuf, PathBuf), String> {
        let path = |name: &str| self.directory.path().join(name);
        for (name, text) in sources {
            fs::write(path(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        let source = path(sources[0].0);
        let program = source.with_extension("");
        Ok((source, program))
    }
}

/// What a command prints, trimmed; else the first line of its complaint.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout);
        return Ok(printed.trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().find(|line| !line.trim().is_empty());
    Err(format!("{program}: {}", line.unwrap_or("failed").trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Library = Library {
        name: "no-such-library",
        debian: "libnowhere-dev",
        link: &[],
    };

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let workshop = Workshop::new().unwrap();
        let note = workshop.c_program(&[("x.c", "")], NOWHERE).unwrap_err();
        assert!(note.starts_with("no-such-library is left out"), "{note}");
        assert!(note.contains("libnowhere-dev"), "{note}");
    }
}
