//! Passes listening sockets from a process to its successor, so that a new version can take over without refusing a
//! connection.
//!
//! The old process calls [`start`], which spawns the new process with the sockets open and lists them in an environment
//! variable. The new process calls [`Handover::take`] to get them, and [`Handover::complete`] when it accepts
//! connections. That writes one byte to a stream that the old process holds the other end of ([`Successor::ready`]). If
//! the stream ends without that byte, the new process has ended, and the old one continues to serve.
//!
//! The variable has a line with the process ID of the old process and the descriptor of the stream, then a line with
//! the descriptor and the name of each socket. This is the protocol of service managers
//! ([`inherited`](crate::inherited)) with two differences: names may contain colons, and the process ID is the
//! parent's, because the environment of a child is made before its process ID is known.

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

/// A process that [`start`] spawned to replace this one.
#[derive(Debug)]
pub struct Successor {
    /// The new process.
    pub child: Child,
    /// Delivers one byte when the new process is ready, and ends when that process ends.
    pub ready: UnixStream,
}

/// Starts `command` as the successor of this process, with these listening sockets open. [`Handover::take`] returns
/// them in the new process, each with its name.
///
/// Blocks until the new process executes its program, some milliseconds.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if a name has a line break, and the errors of `socketpair(2)`, `fork(2)` and
/// `execve(2)`.
///
/// # Example
/// ```no_run
/// use std::io::Read;
/// use std::net::TcpListener;
/// use std::process::Command;
///
/// use softclock_linux::handover;
///
/// # fn main() -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:8080")?;
/// let command = Command::new(std::env::current_exe()?);
/// let sockets = vec![("http".to_owned(), listener.try_clone()?.into())];
/// let mut successor = handover::start(command, sockets)?;
/// if successor.ready.read(&mut [0])? == 1 {
///     println!("process {} has taken over", successor.child.id());
/// }
/// # Ok(())
/// # }
/// ```
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
    // Sockets that a service manager opened are passed on by name like the others, so the new process must not look for
    // them a second time.
    command.env_remove("LISTEN_PID");
    keep_open(&mut command, passed);
    let child = command.spawn()?;
    Ok(Successor { child, ready })
}

/// Makes `command` keep these descriptors open in the new process, under the same numbers.
fn keep_open(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        let mut descriptors = descriptors.iter();
        descriptors.try_for_each(|fd| Ok(fcntl_setfd(fd, FdFlags::empty())?))
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called; `keep` makes system calls, and
    // neither allocates nor locks, even if one fails.
    unsafe { command.pre_exec(keep) };
}

/// The sockets that this process got from its predecessor, the process that it replaces.
///
/// Call [`complete`](Self::complete) when this process is ready to serve; until then the predecessor keeps serving.
/// Dropping the handover is not reported to the predecessor, only the end of this process is.
#[derive(Debug)]
pub struct Handover {
    /// The predecessor's listening sockets.
    pub sockets: Vec<Inherited>,
    /// The stream to the predecessor. Its end without a byte means that this process has ended, so it must stay open
    /// even if the handover is dropped.
    ready: ManuallyDrop<UnixStream>,
}

impl Handover {
    /// Takes over the sockets that the parent process passed with [`start`]. Returns `None` if this process was not
    /// started that way, and at every call but the first.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if a descriptor is not a listening stream socket, and the errors of
    /// `fcntl(2)`.
    pub fn take() -> io::Result<Option<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let text = env::var(VARIABLE).unwrap_or_default();
        let Some(left) = Left::parse(&text, getppid()) else {
            return Ok(None);
        };
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        // SAFETY: the parent, which still runs, passed this descriptor to this process to own, and `TAKEN` lets this
        // line run only once.
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

    /// Reports to the predecessor that this process is ready to serve, so that the predecessor can end.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::BrokenPipe`] if the predecessor has ended or stopped waiting.
    pub fn complete(self) -> io::Result<()> {
        let mut ready = ManuallyDrop::into_inner(self.ready);
        ready.write_all(b"1")
    }
}

/// The parsed value of the environment variable.
#[derive(PartialEq, Eq, Debug)]
struct Left<'a> {
    ready: RawFd,
    sockets: Vec<(RawFd, &'a str)>,
}

impl<'a> Left<'a> {
    /// Parses the value. Returns `None` if it is malformed or was not written by the process `parent`.
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

/// The environment variable that lists the passed sockets.
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
