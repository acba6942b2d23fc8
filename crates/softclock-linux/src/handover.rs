//! Listening sockets that a process leaves to the one that replaces it.
//!
//! The old process starts the new one with the sockets open, and names them in the environment: one line each, behind
//! a line with the old process's number. It is the protocol of service managers ([`inherited`](crate::inherited)),
//! except that names may contain colons, and that the number is the parent's: a process cannot put the number of a
//! child into an environment that it makes before there is the child. The new process says that it is ready by a byte
//! on a stream that is passed along; a stream that ends without one tells that the new process has ended.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, getppid};

use crate::inherited::{Inherited, inherit};

/// A process that was started to replace this one.
#[derive(Debug)]
pub struct Successor {
    /// The process.
    pub child: Child,
    /// Carries one byte when the process is ready, and ends when the process does.
    pub ready: UnixStream,
}

/// Starts `command` with these listening sockets, each with a name that [`Handover::take`] returns there.
///
/// Blocks until the program is executed, some milliseconds.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] where a name has a line break; those of `socketpair(2)`, `fork(2)` and `execve(2)`.
pub fn start(mut command: Command, sockets: Vec<(String, OwnedFd)>) -> io::Result<Successor> {
    let (ready, theirs) = UnixStream::pair()?;
    let mut passed = vec![OwnedFd::from(theirs)];
    let mut text = format!("{} {}", process::id(), passed[0].as_raw_fd());
    for (name, socket) in sockets {
        if name.contains('\n') {
            let message = format!("the name {name:?} has a line break");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let _ = write!(text, "\n{} {name}", socket.as_raw_fd());
        passed.push(socket);
    }
    command.env(VARIABLE, text);
    // Sockets of the service manager's are among those passed, so its variables have no meaning there.
    command.env_remove("LISTEN_PID");
    keep_open(&mut command, passed);
    let child = command.spawn()?;
    Ok(Successor { child, ready })
}

/// Has `command` start a process in which these descriptors are open, under the numbers that they have here.
fn keep_open(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        let mut descriptors = descriptors.iter();
        descriptors.try_for_each(|fd| Ok(fcntl_setfd(fd, FdFlags::empty())?))
    };
    // SAFETY: between fork and exec only what is safe in a signal may be done; `keep` makes system calls, and neither
    // allocates nor locks, also if one fails.
    unsafe { command.pre_exec(keep) };
}

/// What the process that this one replaces has left.
#[derive(Debug)]
pub struct Handover {
    /// Its listening sockets.
    pub sockets: Vec<Inherited>,
    /// Without a byte, its end tells that this process has ended, so dropping the handover leaves it open.
    ready: ManuallyDrop<UnixStream>,
}

impl Handover {
    /// Takes over what was left to this process, if anything was; nothing at the second call.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] where a socket is no listening stream socket, and those of `fcntl(2)`.
    pub fn take() -> io::Result<Option<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let text = env::var(VARIABLE).unwrap_or_default();
        let Some(left) = Left::parse(&text, getppid()) else {
            return Ok(None);
        };
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        // SAFETY: the parent, which still runs, left this descriptor open for this process to own, and this is done once.
        let ready = unsafe { OwnedFd::from_raw_fd(left.ready) };
        fcntl_setfd(&ready, FdFlags::CLOEXEC)?;
        let sockets = left.sockets.into_iter();
        let sockets = sockets.map(|(fd, name)| {
            // SAFETY: as above; the descriptors differ.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            inherit(fd, name)
        });
        Ok(Some(Self {
            sockets: sockets.collect::<io::Result<_>>()?,
            ready: ManuallyDrop::new(ready.into()),
        }))
    }

    /// Tells the other process that this one is ready, upon which the other one ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] if it has ended already, or waits no longer.
    pub fn complete(self) -> io::Result<()> {
        let mut ready = ManuallyDrop::into_inner(self.ready);
        ready.write_all(b"1")
    }
}

/// What the variable says.
#[derive(PartialEq, Eq, Debug)]
struct Left<'a> {
    ready: RawFd,
    sockets: Vec<(RawFd, &'a str)>,
}

impl<'a> Left<'a> {
    /// `None` unless it is the process `parent` that says so.
    fn parse(text: &'a str, parent: Option<Pid>) -> Option<Self> {
        let mut lines = text.lines().map(|line| line.split_once(' '));
        let (pid, ready) = lines.next()??;
        if pid.parse() != Ok(parent?.as_raw_nonzero().get()) {
            return None;
        }
        let sockets = lines.map(|line| {
            let (fd, name) = line?;
            Some((fd.parse().ok()?, name))
        });
        Some(Self {
            ready: ready.parse().ok()?,
            sockets: sockets.collect::<Option<_>>()?,
        })
    }
}

const VARIABLE: &str = "SOFTCLOCK_HANDOVER";

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_what_the_parent_says() {
        let parse = |text| Left::parse(text, Pid::from_raw(7));
        let sockets = vec![(4, ":80"), (5, "unix:/a b")];
        let all = Left { ready: 3, sockets };
        assert_eq!(parse("7 3\n4 :80\n5 unix:/a b"), Some(all));
        for text in ["", "8 3\n4 :80", "7", "7 x", "7 3\n4", "7 3\nx :80", "-7 3"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(Left::parse("7 3", None), None);
    }

    #[test]
    fn the_new_process_has_the_sockets_and_its_end_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = listener.try_clone().unwrap();
        let passed = OwnedFd::from(listener.try_clone().unwrap());
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "test -S /proc/self/fd/{} && ! test -e /proc/self/fd/{} && echo \"$SOFTCLOCK_HANDOVER\"",
            passed.as_raw_fd(),
            other.as_raw_fd()
        ));
        command.stdout(process::Stdio::piped());
        let line = format!("\n{} a:b\n", passed.as_raw_fd());
        let mut started = start(command, vec![("a:b".into(), passed)]).unwrap();
        let mut told = String::new();
        assert_eq!(started.ready.read_to_string(&mut told).unwrap(), 0);
        let output = started.child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{} ", process::id())) && text.ends_with(&line));
    }

    #[test]
    fn names_are_single_lines() {
        let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let refused = start(Command::new("true"), vec![("a\nb".into(), listener)]);
        let kind = refused.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
    }
}
