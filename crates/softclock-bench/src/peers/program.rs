//! Compilation of peers in other languages. Their sources are in `peers/` and are compiled when an experiment runs, if
//! the machine has the compiler and libraries.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::lock::Lock;

/// A temporary directory for compiled peers, which is removed when this is dropped.
#[derive(Debug)]
pub struct Workshop {
    directory: TempDir,
}

/// The name and the text of a source file.
pub type Source = (&'static str, &'static str);

/// The names of a C library for pkg-config and Debian.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// The name for pkg-config.
    pub name: &'static str,
    /// The Debian package of its headers.
    pub debian: &'static str,
    /// The linker's arguments.
    pub link: &'static [&'static str],
}

impl Library {
    /// libuv.
    pub const UV: Self = Self {
        name: "libuv",
        debian: "libuv1-dev",
        link: &["-luv"],
    };

    /// libevent, without its protocols.
    pub const EVENT: Self = Self {
        name: "libevent_core",
        debian: "libevent-dev",
        link: &["-levent_core"],
    };
}

/// A module of Go that a program imports.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Its path.
    pub path: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// A project of cargo apart from this one's workspace.
#[derive(Clone, Copy, Debug)]
pub struct Project {
    /// The name of its package, and so of its program.
    pub name: &'static str,
    /// The library that it is about.
    pub library: &'static str,
    /// The text of `Cargo.toml`.
    pub manifest: &'static str,
    /// The text of `Cargo.lock`.
    pub lock: &'static str,
    /// The text of `src/main.rs`.
    pub main: &'static str,
}

/// A compiled peer.
#[derive(Debug)]
pub struct Compiled {
    /// The program's path, which is valid as long as the workshop.
    pub program: PathBuf,
    /// The version of the library or language.
    pub version: String,
}

impl Workshop {
    /// Creates an empty directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            directory: tempfile::tempdir()?,
        })
    }

    /// Compiles the first of `sources`, which may include the others, and links it with `library`.
    ///
    /// # Errors
    /// The missing program or library and its Debian package, as a sentence for a report's notes.
    pub fn c_program(&self, sources: &[Source], library: Library) -> Result<Compiled, String> {
        let (name, debian) = (library.name, library.debian);
        let install = |why| {
            format!("{name} is left out: {why}; on Debian: apt-get install {debian} gcc pkg-config")
        };
        let about = |what| output(Command::new("pkg-config").args([what, name]));
        let flags = about("--cflags").map_err(install)?;
        let version = about("--modversion").map_err(install)?;
        let flags = flags.split_whitespace().chain(library.link.iter().copied());
        let program = self.c_program_by(sources, flags).map_err(install)?;
        Ok(Compiled { program, version })
    }

    /// Compiles the first of `sources`, which may include the others, with further arguments of the compiler, such as
    /// libraries; returns the program's path.
    ///
    /// # Errors
    /// The compiler is missing or fails; the error has the first line of its output.
    pub fn c_program_by(
        &self,
        sources: &[Source],
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<PathBuf, String> {
        let (source, program) = self.place(sources)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-std=gnu11", "-I"]);
        compiler.arg(self.directory.path()).arg("-o").arg(&program);
        output(compiler.arg(source).args(arguments))?;
        Ok(program)
    }

    /// Compiles a Go program of one file.
    ///
    /// # Errors
    /// The missing program and its Debian package, as a sentence for a report's notes.
    pub fn go_program(&self, source: Source) -> Result<Compiled, String> {
        let install = |why| format!("Go is left out: {why}; on Debian: apt-get install golang-go");
        // This also checks that Go is installed.
        let version = output(Command::new("go").args(["env", "GOVERSION"])).map_err(install)?;
        let (source, program) = self.place(&[source])?;
        let mut compiler = Command::new("go");
        compiler.args(["build", "-o"]).arg(&program).arg(source);
        // Go needs a cache to build, and finds none if HOME is not set.
        if std::env::var_os("HOME").is_none() {
            compiler.env("GOCACHE", self.directory.path().join("cache"));
        }
        // Use the installed compiler only, and build without a module.
        compiler.envs([("GOTOOLCHAIN", "local"), ("GO111MODULE", "off")]);
        output(&mut compiler).map_err(install)?;
        Ok(Compiled { program, version })
    }

    /// Compiles a Go program of one file that imports a module, if Go has the module and its dependencies already: an
    /// experiment downloads nothing.
    ///
    /// # Errors
    /// The missing program or module, as a sentence for a report's notes.
    pub fn go_module(&self, source: Source, module: Module) -> Result<Compiled, String> {
        let Module { path, version } = module;
        let install = |why| {
            let command =
                format!("go mod init bench; go get {path}@{version}; go mod tidy; go build");
            format!(
                "{path} is left out: {why}; in a directory with {}: {command}",
                source.0
            )
        };
        output(Command::new("go").args(["env", "GOVERSION"])).map_err(install)?;
        let description = format!("module bench\n\ngo 1.22\n\nrequire {path} {version}\n");
        let (source, program) = self.place(&[source])?;
        let written = fs::write(self.directory.path().join("go.mod"), description);
        written.map_err(|error| install(error.to_string()))?;
        let mut compiler = Command::new("go");
        compiler
            .args(["build", "-mod=mod", "-o"])
            .arg(&program)
            .arg(source);
        compiler.current_dir(self.directory.path());
        compiler.envs([
            ("GOTOOLCHAIN", "local"),
            ("GOPROXY", "off"),
            ("GOSUMDB", "off"),
            ("GOFLAGS", "-mod=mod"),
        ]);
        output(&mut compiler).map_err(install)?;
        Ok(Compiled {
            program,
            version: version.to_owned(),
        })
    }

    /// Compiles a project of cargo, if cargo has its dependencies already: an experiment downloads nothing.
    ///
    /// # Errors
    /// The missing program or dependency, as a sentence for a report's notes.
    pub fn cargo_project(&self, project: &Project) -> Result<Compiled, String> {
        let Project { name, library, .. } = project;
        let install = |why| {
            format!(
                "{library} is left out: {why}; in crates/softclock-bench/peers/{name}: cargo fetch --locked"
            )
        };
        let root = self.directory.path();
        let write = || {
            fs::create_dir_all(root.join("src"))?;
            fs::write(root.join("Cargo.toml"), project.manifest)?;
            fs::write(root.join("Cargo.lock"), project.lock)?;
            fs::write(root.join("src/main.rs"), project.main)
        };
        write().map_err(|error| install(error.to_string()))?;
        let mut compiler = Command::new("cargo");
        compiler.args(["build", "--release", "--offline", "--locked", "--quiet"]);
        compiler.arg("--target-dir").arg(root.join("target"));
        output(compiler.current_dir(root)).map_err(install)?;
        Ok(Compiled {
            program: root.join("target/release").join(name),
            version: Lock::new(project.lock)
                .version(library)
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// Writes the sources; returns the paths of the first one and of its program.
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

/// Returns a command's output, trimmed, or else the first line of its error output.
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
