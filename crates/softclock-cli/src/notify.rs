//! Notifies the service manager of the server's state (sd_notify(3)).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The states that the service manager knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// The server answers requests, after the start or a reload.
    Ready,
    /// A reload has begun, at this time in microseconds of CLOCK_MONOTONIC.
    Reloading(u64),
    /// The process with this number replaces this one, and is the main process from here on.
    Replaced(u32),
    /// Shutdown has begun.
    Stopping,
}

/// Sends `state` to the service manager, if the process has one. Logs failures.
pub(crate) fn notify(state: State) {
    if let Some(address) = env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&address, &message(state))
    {
        tracing::warn!(%error, ?state, "cannot notify the service manager");
    }
}

fn message(state: State) -> String {
    match state {
        State::Ready => "READY=1".into(),
        State::Reloading(now_us) => format!("RELOADING=1\nMONOTONIC_USEC={now_us}"),
        State::Replaced(pid) => format!("MAINPID={pid}"),
        State::Stopping => "STOPPING=1".into(),
    }
}

fn send(address: &OsStr, message: &str) -> io::Result<()> {
    let address = match address.as_bytes() {
        // An abstract name, which is not a file.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("softclock-notify-{}", std::process::id());
        let of_path = UnixDatagram::bind(&path).unwrap();
        let of_name = SocketAddr::from_abstract_name(&name).unwrap();
        let of_name = UnixDatagram::bind_addr(&of_name).unwrap();
        for (socket, address) in [
            (of_path, path.into_os_string()),
            (of_name, format!("@{name}").into()),
        ] {
            send(&address, &message(State::Reloading(5))).unwrap();
            let mut buffer = [0; 100];
            let len = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"RELOADING=1\nMONOTONIC_USEC=5");
        }
    }
}
