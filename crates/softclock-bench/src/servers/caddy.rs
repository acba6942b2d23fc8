//! Caddy, with one processor for its goroutines.
//!
//! Of the settings of its file server none is about speed. What Go's guide to the garbage collector has is GOGC.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::write_file;

/// How often it collects garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// When the heap has doubled, which is Go's default.
    Usual,
    /// `GOGC=1000`: when it has grown elevenfold.
    Seldom,
}

pub(super) const PROGRAM: &str = "caddy";

pub(super) fn command(
    garbage: Garbage,
    root: &Path,
    address: SocketAddr,
    directory: &Path,
) -> io::Result<Command> {
    let (root, port) = (root.display(), address.port());
    let configuration = format!(
        "{{\n admin off\n auto_https off\n}}\n\
         http://:{port} {{\n bind {}\n root * {root}\n file_server\n}}\n",
        address.ip()
    );
    let path = write_file(directory, "Caddyfile", &configuration)?;
    let mut command = Command::new(PROGRAM);
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(path)
        .env("GOMAXPROCS", "1");
    if garbage == Garbage::Seldom {
        command.env("GOGC", "1000");
    }
    for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(variable, directory);
    }
    Ok(command)
}
