//! Versions of packages, from the text of a `Cargo.lock`.

/// The text of a `Cargo.lock`.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a>(&'a str);

impl<'a> Lock<'a> {
    /// Reads this text.
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the version of a package: the first one, if several are locked.
    pub fn version(self, package: &str) -> Option<&'a str> {
        quoted_value(self.package(package)?, "version = ")
    }

    /// Returns the names of the direct dependencies of a package, each with its version if that is locked.
    pub fn dependencies(self, package: &str) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let lines = self.package(package).unwrap_or_default().lines();
        let entries = lines.filter_map(|line| {
            // A dependency is `"name"`, or `"name version"` if several versions are locked.
            let entry = line.trim().strip_prefix('"')?.trim_end_matches(['"', ',']);
            let mut words = entry.split(' ');
            Some((words.next()?, words.next()))
        });
        entries.map(move |(name, version)| (name, version.or_else(|| self.version(name))))
    }

    fn package(self, name: &str) -> Option<&'a str> {
        let mut packages = self.0.split("[[package]]");
        packages.find(|package| quoted_value(package, "name = ") == Some(name))
    }
}

fn quoted_value<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    let line = package.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Lock<'_> = Lock::new(
        r#"
[[package]]
name = "a-b"
version = "1.0.0"
dependencies = [
 "a",
 "c",
 "d 3.0.1",
]

[[package]]
name = "a"
version = "2.1.0"
"#,
    );

    #[test]
    fn a_version_is_that_of_the_whole_name() {
        assert_eq!(LOCK.version("a"), Some("2.1.0"));
        assert_eq!(LOCK.version("b"), None);
    }

    #[test]
    fn dependencies_have_their_versions() {
        let found: Vec<_> = LOCK.dependencies("a-b").collect();
        let expected = [("a", Some("2.1.0")), ("c", None), ("d", Some("3.0.1"))];
        assert_eq!(found, expected);
        assert_eq!(LOCK.dependencies("b").count(), 0);
    }
}
