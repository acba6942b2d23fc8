//! `cargo xtask deb`: a Debian package, made with dpkg's own tools.
//!
//! `cargo deb` makes one of the same content from the same files (crates/softclock-cli/Cargo.toml);
//! here nothing but dpkg is needed.

mod control;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::command::{output, program, root, run};
use crate::dist;

/// Builds the release, or takes the program of `--binary PATH`, and packs it below target/debian.
pub(crate) fn task(arguments: &[String]) -> ExitCode {
    let binary = match arguments {
        [] => dist::release(),
        [option, path] if option == "--binary" => Ok(PathBuf::from(path)),
        _ => Err("cargo xtask deb [--binary PATH]".to_owned()),
    };
    match binary.and_then(|binary| build(&binary, &root().join("target/debian"))) {
        Ok(package) => {
            println!("{}", package.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Packs `binary` and all that belongs to it; the package is written below `directory`.
pub(crate) fn build(binary: &Path, directory: &Path) -> Result<PathBuf, String> {
    let staging = Staging::new(directory.join("staging"))?;
    staging.program(binary)?;
    dist::generate(binary, &directory.join("dist"))?;
    staging.manual(&directory.join("dist/man"))?;
    staging.completions(&directory.join("dist/completions"))?;
    for unit in UNITS {
        staging.packaging(unit, &format!("usr/lib/systemd/system/{unit}"))?;
    }
    for (file, place) in control::CONFIGURATION {
        staging.packaging(file, place)?;
    }
    staging.documents()?;
    control::write(&staging)?;
    staging.pack(directory)
}

/// The units of systemd, in the directory `packaging`.
const UNITS: [&str; 4] = [
    "softclock.service",
    "softclock.socket",
    "softclock-proxy.service",
    "softclock-proxy.socket",
];

/// Configurations to begin with.
const EXAMPLES: [&str; 2] = ["serve.toml", "proxy.toml"];

/// The directory that becomes the package's content.
struct Staging {
    root: PathBuf,
}

impl Staging {
    fn new(root: PathBuf) -> Result<Self, String> {
        // From an earlier run.
        let _ = fs::remove_dir_all(&root);
        told(fs::create_dir_all(&root), &root)?;
        Ok(Self { root })
    }

    fn program(&self, binary: &Path) -> Result<(), String> {
        let place = self.copy(binary, "usr/bin/softclock", 0o755)?;
        // A package without it is merely larger.
        let strip = run(program(
            "strip",
            ["--strip-unneeded"]
                .map(PathBuf::from)
                .into_iter()
                .chain([place]),
        ));
        if let Err(reason) = strip {
            println!("not stripped: {reason}");
        }
        Ok(())
    }

    fn manual(&self, pages: &Path) -> Result<(), String> {
        for page in listed(pages)? {
            let name = page
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let place = format!("usr/share/man/man1/{name}");
            self.compress(&page, &place)?;
        }
        Ok(())
    }

    fn completions(&self, scripts: &Path) -> Result<(), String> {
        for (script, place) in [
            (
                "softclock.bash",
                "usr/share/bash-completion/completions/softclock",
            ),
            (
                "softclock.fish",
                "usr/share/fish/vendor_completions.d/softclock.fish",
            ),
            ("_softclock", "usr/share/zsh/vendor-completions/_softclock"),
        ] {
            self.copy(&scripts.join(script), place, 0o644)?;
        }
        Ok(())
    }

    fn documents(&self) -> Result<(), String> {
        let place = |name: &str| format!("usr/share/doc/softclock/{name}");
        self.packaging("debian/copyright", &place("copyright"))?;
        for example in EXAMPLES {
            self.packaging(example, &place(&format!("examples/{example}")))?;
        }
        self.compress(&root().join("CHANGELOG.md"), &place("changelog"))?;
        let debian = root().join("packaging/debian/changelog");
        self.compress(&debian, &place("changelog.Debian"))
    }

    /// A file of the directory `packaging`.
    fn packaging(&self, name: &str, place: &str) -> Result<(), String> {
        let file = root().join("packaging").join(name);
        self.copy(&file, place, 0o644).map(drop)
    }

    fn copy(&self, file: &Path, place: &str, mode: u32) -> Result<PathBuf, String> {
        let content = told(fs::read(file), file)?;
        self.write(place, &content, mode)
    }

    fn write(&self, place: &str, content: &[u8], mode: u32) -> Result<PathBuf, String> {
        let place = self.root.join(place);
        let parent = place.parent().unwrap_or(&self.root);
        told(fs::create_dir_all(parent), parent)?;
        told(fs::write(&place, content), &place)?;
        let permissions = fs::Permissions::from_mode(mode);
        told(fs::set_permissions(&place, permissions), &place)?;
        Ok(place)
    }

    /// As Debian wants it: with the best compression, and without a date that would differ each time.
    fn compress(&self, file: &Path, place: &str) -> Result<(), String> {
        let place = self.copy(file, place, 0o644)?;
        let mut gzip = program("gzip", ["-9n"]);
        gzip.arg(place);
        run(gzip)
    }

    fn pack(&self, directory: &Path) -> Result<PathBuf, String> {
        let [version, architecture] = [control::version()?, control::architecture()?];
        let package = directory.join(format!("softclock_{version}_{architecture}.deb"));
        let mut pack = program("dpkg-deb", ["--root-owner-group", "--build"]);
        pack.arg(&self.root).arg(&package);
        date(&mut pack);
        run(pack)?;
        Ok(package)
    }

    /// The package's files and not those that describe it, relative to the root, in order.
    fn files(&self) -> Result<Vec<PathBuf>, String> {
        let mut files = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in listed(&directory)? {
                if entry.is_dir() {
                    directories.push(entry);
                } else if let Ok(relative) = entry.strip_prefix(&self.root) {
                    files.push(relative.to_owned());
                }
            }
        }
        files.retain(|file| !file.starts_with("DEBIAN"));
        files.sort();
        Ok(files)
    }
}

/// Files are dated by the last change of the source, so that building twice gives the same package.
fn date(pack: &mut Command) {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    if let Ok(date) = output(program("git", ["log", "-1", "--format=%ct"])) {
        pack.env(VARIABLE, date.trim());
    }
}

fn listed(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = told(fs::read_dir(directory), directory)?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// An error together with the file it is about.
fn told<T>(result: std::io::Result<T>, file: &Path) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", file.display()))
}
