//! Passes the compiler's version to the program, because it is part of a result's environment.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|out| String::from_utf8(out.stdout).ok())
        .unwrap_or_else(|| "unknown".to_owned());
    println!(
        "cargo::rustc-env=SOFTCLOCK_BENCH_RUSTC={}",
        version.trim().trim_start_matches("rustc ")
    );
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo::rustc-env=SOFTCLOCK_BENCH_PROFILE={profile}");
}
