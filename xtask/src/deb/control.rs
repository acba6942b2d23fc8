//! The control file of the package: its name, dependencies and description.

use std::fs;

use super::{Staging, told};
use crate::command::{output, program, root};

/// The files that belong to the administrator, each in the directory `packaging` and where it is installed.
pub(super) const CONFIGURATION: [(&str, &str); 2] = [
    ("softclock.default", "etc/default/softclock"),
    ("softclock.logrotate", "etc/logrotate.d/softclock"),
];

/// Writes the directory DEBIAN.
pub(super) fn write(staging: &Staging) -> Result<(), String> {
    let configuration = CONFIGURATION.map(|(_, place)| format!("/{place}\n"));
    let configuration = configuration.concat();
    staging.write("DEBIAN/conffiles", configuration.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let file = root().join("packaging/debian").join(script);
        staging.copy(&file, &format!("DEBIAN/{script}"), 0o755)?;
    }
    staging.write("DEBIAN/md5sums", sums(staging)?.as_bytes(), 0o644)?;
    let control = control(staging)?;
    staging.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    Ok(())
}

fn control(staging: &Staging) -> Result<String, String> {
    let program = staging.root.join("usr/bin/softclock");
    let glibc = newest_glibc(&told(fs::read(&program), &program)?);
    Ok(format!(
        "Package: softclock\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: The softclock authors <softclock@users.noreply.github.com>\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Section: httpd\n\
         Priority: optional\n\
         Homepage: {}\n\
         {DESCRIPTION}",
        version()?,
        architecture()?,
        kibibytes(staging)?,
        env!("CARGO_PKG_REPOSITORY"),
    ))
}

/// The version of the package: that of Debian's changelog, which names the program's.
pub(super) fn version() -> Result<String, String> {
    let file = root().join("packaging/debian/changelog");
    let changelog = told(fs::read_to_string(&file), &file)?;
    let version = changelog
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let (version, _) = version.ok_or("no version in packaging/debian/changelog")?;
    let upstream = version.split('-').next().unwrap_or(version);
    if upstream != env!("CARGO_PKG_VERSION") {
        let ours = env!("CARGO_PKG_VERSION");
        return Err(format!(
            "packaging/debian/changelog is about {version}, not {ours}"
        ));
    }
    Ok(version.to_owned())
}

/// Debian's name for this machine's processor.
pub(super) fn architecture() -> Result<String, String> {
    let name = output(program("dpkg", ["--print-architecture"]))?;
    Ok(name.trim().to_owned())
}

fn kibibytes(staging: &Staging) -> Result<u64, String> {
    let mut all = 0;
    for file in staging.files()? {
        let path = staging.root.join(file);
        all += told(fs::metadata(&path), &path)?.len().div_ceil(1024);
    }
    Ok(all)
}

fn sums(staging: &Staging) -> Result<String, String> {
    let mut sum = program("md5sum", staging.files()?);
    sum.current_dir(&staging.root);
    output(sum)
}

/// The C library's version that the program asks for: the newest of its versioned symbols.
fn newest_glibc(program: &[u8]) -> String {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let mut newest = 17;
    for at in 0..program.len().saturating_sub(PREFIX.len()) {
        if !program[at..].starts_with(PREFIX) {
            continue;
        }
        let digits = program[at + PREFIX.len()..].iter();
        let minor = digits
            .take_while(|byte| byte.is_ascii_digit())
            .take(3)
            .fold(0, |minor, digit| minor * 10 + u32::from(digit - b'0'));
        newest = newest.max(minor);
    }
    format!("2.{newest}")
}

const DESCRIPTION: &str = "\
Description: web server and proxy in which time is software
 softclock serves static files over HTTP and passes requests on to other
 servers, on an event loop whose timers of microseconds fire from the moments
 at which it is awake anyway, not from an interrupt each (Aron and Druschel:
 Soft Timers). It paces what it sends, and what a bridge carries.
 .
 Units are installed but not started: /etc/default/softclock says what to
 serve, and \"systemctl enable --now softclock\" serves it. For the proxy,
 softclock-proxy, /usr/share/doc/softclock/examples has a configuration.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        assert_eq!(
            newest_glibc(b"x\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.18\0"),
            "2.34"
        );
        assert_eq!(newest_glibc(b""), "2.17");
    }

    #[test]
    fn the_changelog_is_about_this_version() {
        assert!(version().is_ok());
    }
}
