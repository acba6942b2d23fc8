//! Finds out whether the kernel was built with a feature, without loading a module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The known parts of the kernel's configuration; empty by default.
#[derive(Debug, Default)]
pub(super) struct KernelConfig {
    /// Lines of `CONFIG_…=y`, and the file that has them.
    options: Option<(String, &'static str)>,
    /// Module lists of the running kernel.
    modules: Option<String>,
}

impl KernelConfig {
    /// Reads the files in which distributions keep the configuration.
    pub(super) fn find() -> Self {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy().into_owned();
        Self {
            options: options(&release),
            modules: modules(&Path::new("/lib/modules").join(release)),
        }
    }

    #[cfg(test)]
    pub(super) fn of(options: &str) -> Self {
        Self {
            options: Some((options.to_owned(), "a test")),
            modules: None,
        }
    }

    /// Whether the kernel has the module, built in or loadable; `None` if unknown.
    pub(super) fn has(&self, module: &str, option: &str) -> Option<Presence> {
        let listed = self.modules.as_ref().map(|list| lists(list, module));
        let configured = self.options.as_ref().map(|(text, _)| sets(text, option));
        match (configured, listed) {
            (_, Some(true)) | (Some(Set::BuiltIn), _) | (Some(Set::Module), None) => {
                Some(Presence::There)
            }
            (Some(Set::Module), Some(false)) => Some(Presence::NotInstalled),
            (Some(Set::No), _) | (None, Some(false)) => Some(Presence::Missing),
            (None, None) => None,
        }
    }

    /// Names the source of the answers.
    pub(super) fn source(&self) -> &'static str {
        self.options
            .as_ref()
            .map_or("its module lists", |&(_, source)| source)
    }
}

/// Where a part of the kernel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// In the kernel, or among the installed modules.
    There,
    /// Built as a module that is not installed.
    NotInstalled,
    Missing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    BuiltIn,
    Module,
    No,
}

fn sets(options: &str, option: &str) -> Set {
    let value = options
        .lines()
        .find_map(|line| line.strip_prefix(option)?.strip_prefix('='));
    match value {
        Some("y") => Set::BuiltIn,
        Some("m") => Set::Module,
        _ => Set::No,
    }
}

/// Whether lines like `kernel/net/sched/sch_fq.ko.xz: …` or `sch_fq 20480 2 - Live` name `module`.
fn lists(modules: &str, module: &str) -> bool {
    modules.lines().any(|line| {
        let path = line.split([':', ' ']).next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split('.').next() == Some(module)
    })
}

fn options(release: &str) -> Option<(String, &'static str)> {
    let boot = [
        PathBuf::from(format!("/boot/config-{release}")),
        PathBuf::from(format!("/lib/modules/{release}/config")),
    ];
    let read = |path: &PathBuf| Some((fs::read_to_string(path).ok()?, "its configuration file"));
    boot.iter().find_map(read).or_else(compressed)
}

/// Reads the kernel's own copy. gzip unpacks it, which nearly every system has.
fn compressed() -> Option<(String, &'static str)> {
    const PATH: &str = "/proc/config.gz";
    if !Path::new(PATH).exists() {
        return None;
    }
    let unpacked = Command::new("gzip")
        .args(["-dc", PATH])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let unpacked = unpacked.ok().filter(|output| output.status.success())?;
    Some((String::from_utf8(unpacked.stdout).ok()?, PATH))
}

/// Lists of built-in, installed and loaded modules; `None` without a list of the installed ones.
fn modules(directory: &Path) -> Option<String> {
    let installed = fs::read_to_string(directory.join("modules.dep")).ok()?;
    let others = [directory.join("modules.builtin"), "/proc/modules".into()];
    let others = others.map(|path| fs::read_to_string(path).unwrap_or_default());
    Some(installed + &others.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str =
        "kernel/net/sched/sch_fq.ko.xz: kernel/x.ko\nsch_tbf 16384 0 - Live 0x0\n";

    fn known(options: Option<&str>, modules: Option<&str>) -> KernelConfig {
        KernelConfig {
            options: options.map(|text| (text.to_owned(), "a test")),
            modules: modules.map(str::to_owned),
        }
    }

    #[test]
    fn module_lists_are_searched_by_whole_names() {
        assert!(lists(MODULES, "sch_fq") && lists(MODULES, "sch_tbf"));
        assert!(!lists(MODULES, "sch") && !lists(MODULES, "x"));
    }

    #[test]
    fn a_module_must_be_installed() {
        let options = "CONFIG_A=y\nCONFIG_B=m\nCONFIG_C_D=y\n";
        let both = known(Some(options), Some(MODULES));
        assert_eq!(both.has("a", "CONFIG_A"), Some(Presence::There));
        assert_eq!(both.has("b", "CONFIG_B"), Some(Presence::NotInstalled));
        assert_eq!(both.has("c", "CONFIG_C"), Some(Presence::Missing));
        let unlisted = known(Some(options), None);
        assert_eq!(unlisted.has("b", "CONFIG_B"), Some(Presence::There));
        let lists = known(None, Some(MODULES));
        assert_eq!(lists.has("sch_fq", "X"), Some(Presence::There));
        assert_eq!(known(None, None).has("sch_fq", "X"), None);
    }
}
