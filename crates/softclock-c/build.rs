//! Gives the shared library the name under which programs look for it.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftclock.so.{major}");
    println!("cargo::rerun-if-changed=build.rs");
}
