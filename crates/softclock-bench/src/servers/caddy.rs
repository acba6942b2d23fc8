//! Caddy, with one processor for its goroutines.
//!
//! None of its file server's settings is about speed; GOGC, from the guide to Go's garbage collector, is the only one
//! here.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::write_file;

/// The frequency of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// When the heap has doubled, Go's default.
    Usual,
    /// `GOGC=1000`: when the heap has grown elevenfold.
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
