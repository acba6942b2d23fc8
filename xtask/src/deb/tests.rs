//! The package is built, installed into a root of its own, run and removed. The machine's own packages are not
//! touched.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use softclock_testing::{KilledOnDrop, find, have, require, skip};

use super::build;
use crate::command::{cargo, output, program, run};

/// An empty system with dpkg's records, removed when dropped.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("softclock-deb-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for directory in ["info", "updates", "triggers"] {
            fs::create_dir_all(root.join("system/var/lib/dpkg").join(directory)).unwrap();
        }
        fs::write(root.join("system/var/lib/dpkg/status"), "").unwrap();
        Self(root)
    }

    fn system(&self) -> PathBuf {
        self.0.join("system")
    }

    /// dpkg with this root. Scripts run outside of it, where there is a shell, and know by DPKG_ROOT.
    fn dpkg<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<(), String> {
        let mut dpkg = program(
            "dpkg",
            ["--force-script-chrootless", "--force-depends", "--root"],
        );
        dpkg.arg(self.system()).args(arguments);
        output(dpkg).map(drop)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut find = program("find", ["-type", "f", "-not", "-path", "./var/*"]);
        find.current_dir(self.system());
        output(find).unwrap().lines().map(PathBuf::from).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_package_is_installed_started_and_removed() {
    require!("dpkg-deb", "dpkg", "gzip");
    if !is_root() {
        skip!("dpkg installs as root only");
    }
    let root = Root::new();
    let package = build(&tested_program(), &root.0).unwrap();
    root.dpkg([OsStr::new("--install"), package.as_os_str()])
        .unwrap();
    let installed = root.system();
    for file in [
        "etc/default/softclock",
        "etc/logrotate.d/softclock",
        "usr/lib/systemd/system/softclock-proxy.socket",
        "usr/share/doc/softclock/examples/proxy.toml",
        "usr/share/man/man1/softclock-serve.1.gz",
        "usr/share/bash-completion/completions/softclock",
        "usr/share/doc/softclock/copyright",
    ] {
        assert!(installed.join(file).is_file(), "{file}");
    }
    root.dpkg(["--verify", "softclock"]).unwrap();
    a_page_is_served(&installed.join("usr/bin/softclock"));
    the_units_are_sound(&installed);
    the_examples_are_good(&installed);

    root.dpkg(["--remove", "softclock"]).unwrap();
    let mut left = root.files();
    left.sort();
    let configuration = ["./etc/default/softclock", "./etc/logrotate.d/softclock"];
    assert_eq!(left, configuration.map(PathBuf::from));
    root.dpkg(["--purge", "softclock"]).unwrap();
    assert!(root.files().is_empty());
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The program as the tests have built it: beside this one, and built now only if it is not there.
fn tested_program() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let directory = this.ancestors().nth(2).unwrap();
    let tested = directory.join("softclock");
    if !tested.is_file() {
        run(cargo(["build", "--package", "softclock-cli"])).unwrap();
    }
    tested
}

fn a_page_is_served(program: &Path) {
    let mut command = Command::new(program);
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped());
    let mut server = KilledOnDrop::new(command.spawn().unwrap());
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        Some(
            line.trim()
                .strip_prefix("http://")?
                .trim_end_matches('/')
                .to_owned(),
        )
    });
    let mut stream = TcpStream::connect(address.expect("an address")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(
        page.starts_with("HTTP/1.1 200 ") && page.contains("<html"),
        "{page}"
    );
}

/// Part of a test that goes on without it.
fn the_units_are_sound(installed: &Path) {
    if !have("systemd-analyze") {
        skip!("systemd-analyze is not installed");
    }
    let analyze = |arguments: &[&str], units: &[PathBuf]| {
        let mut command = Command::new(find("systemd-analyze").unwrap());
        command.args(arguments).args(units);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        told
    };
    // The root has no other units, and so those of the machine are looked at beside these.
    let units = super::UNITS.map(|name| {
        let unit = installed.join("usr/lib/systemd/system").join(name);
        let program = installed.join("usr/bin/softclock");
        let text = fs::read_to_string(unit).unwrap();
        let text = text.replace("/usr/bin/softclock", &program.to_string_lossy());
        let copy = installed.join(name);
        fs::write(&copy, text).unwrap();
        copy
    });
    let told = analyze(&["verify", "--man=no"], &units);
    assert!(!told.contains("softclock"), "{told}");
    for unit in &units {
        if unit.extension() == Some(OsStr::new("service")) {
            // From 0 to 100; without any hardening it is 96.
            let security = ["security", "--offline=true", "--threshold=20", "--no-pager"];
            analyze(&security, std::slice::from_ref(unit));
        }
        fs::remove_file(unit).unwrap();
    }
}

/// With directories that are there.
fn the_examples_are_good(installed: &Path) {
    for (command, name) in [("serve", "serve.toml"), ("proxy", "proxy.toml")] {
        let example = installed
            .join("usr/share/doc/softclock/examples")
            .join(name);
        let mut text = fs::read_to_string(example).unwrap();
        for directory in ["/srv/www", "/var/log/softclock-proxy", "/var/log/softclock"] {
            text = text.replace(directory, &installed.to_string_lossy());
        }
        let copy = installed.join(name);
        fs::write(&copy, text).unwrap();
        let check = [command, "--check", "--config"];
        let mut softclock = Command::new(installed.join("usr/bin/softclock"));
        softclock.args(check).arg(&copy);
        assert_eq!(
            output(softclock).unwrap(),
            "softclock: the settings are good\n"
        );
        fs::remove_file(copy).unwrap();
    }
}

#[test]
fn logrotate_understands_its_file() {
    require!("logrotate");
    let file = crate::command::root().join("packaging/softclock.logrotate");
    let mut logrotate = program("logrotate", ["--debug", "--state", "/dev/null"]);
    logrotate.arg(file);
    output(logrotate).unwrap();
}
