//! Gives the shared library the name under which programs look for it.

fn main() {
    let part = |name| std::env::var(name).unwrap_or_default();
    let major = part("CARGO_PKG_VERSION_MAJOR");
    // Each minor version before 1.0 may change the interface.
    let version = match major.as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        _ => major,
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftclock.so.{version}");
    println!("cargo::rerun-if-changed=build.rs");
}
