//! A network namespace without a name, which exists as long as a child process holds it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::KilledOnDrop;

/// A network namespace, held by a child process. The child exits when its standard input is closed, and so whenever
/// this process ends, for any reason. The kernel then removes the namespace with all its links.
#[derive(Debug)]
pub struct Namespace {
    holder: KilledOnDrop,
}

impl Namespace {
    /// Creates a namespace. Its only link is a loopback interface, which is down.
    ///
    /// # Errors
    /// The reason why the machine does not permit it, for [`skip!`](crate::skip!).
    pub fn new() -> Result<Self, String> {
        if !geteuid().is_root() {
            return Err("needs root for network namespaces".into());
        }
        let holder = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", HOLD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut namespace = Self {
            holder: KilledOnDrop::new(holder),
        };
        let output = namespace.holder.stdout.take().ok_or("no output")?;
        let mut said = String::new();
        // The child prints a line once it runs in the namespace.
        match BufReader::new(output).read_line(&mut said) {
            Ok(1..) => Ok(namespace),
            _ => Err(format!(
                "network namespaces cannot be made here{}",
                namespace.complaint()
            )),
        }
    }

    /// The id of the child, which identifies the namespace in `ip link set … netns ID`.
    pub fn id(&self) -> u32 {
        self.holder.id()
    }

    /// A command that runs `program` in the namespace, with the namespace's `/sys` and this process's working
    /// directory. The id of the started process is the program's own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.id().to_string()]);
        command.args(["--net", "--mount", "--wd", "--", program]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a program in the namespace and waits for its end. `words` is the command line, separated by single spaces,
    /// without quoting.
    ///
    /// # Errors
    /// The first line of the program's standard error, if it fails.
    pub fn run(&self, words: &str) -> io::Result<()> {
        let mut words = words.split(' ');
        let program = words.next().unwrap_or_default();
        finish(self.command(program).args(words), "")
    }

    /// Runs a batch of `ip` or `tc` commands in the namespace, one on each line.
    ///
    /// # Errors
    /// The first line of the program's standard error, if it fails.
    pub fn batch(&self, program: &str, commands: &str) -> io::Result<()> {
        finish(self.command(program).args(["-batch", "-"]), commands)
    }

    /// Disables IPv6 for links created afterwards, so that the namespace sends no packets of its own, such as router
    /// solicitations.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn disable_ipv6(&self) -> io::Result<()> {
        finish(self.command("sh").args(["-c", DISABLE_IPV6]), "")
    }

    /// Runs `call` in a thread in the namespace and returns its result. Sockets that it opens stay in the namespace. A
    /// panic in `call` is resumed in the caller.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn inside<R: Send>(&self, call: impl FnOnce() -> R + Send) -> io::Result<R> {
        let entry = self.entry()?;
        let inside = || {
            entry.enter()?;
            Ok(call())
        };
        // In a new thread, since a thread that has entered a namespace stays there.
        let ended = thread::scope(|scope| scope.spawn(inside).join());
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The way into the namespace, for a thread that outlives a call of [`inside`](Self::inside).
    ///
    /// # Errors
    /// The child has ended.
    pub fn entry(&self) -> io::Result<Entry> {
        File::open(format!("/proc/{}/ns/net", self.id())).map(Entry)
    }

    /// The first line that the child wrote to standard error, for the error message.
    fn complaint(&mut self) -> String {
        let Some(errors) = self.holder.stderr.take() else {
            return String::new();
        };
        let mut line = String::new();
        let _ = BufReader::new(errors).read_line(&mut line);
        format!(": {}", line.trim())
    }
}

/// The way into a namespace.
#[derive(Debug)]
pub struct Entry(File);

impl Entry {
    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter(&self) -> io::Result<()> {
        let network = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), network)?)
    }
}

/// Connects two namespaces by a veth pair with these names. Both ends are up on return.
///
/// # Errors
/// The first line of `ip`'s standard error.
pub fn connect(
    (near, name): (&Namespace, &str),
    (far, peer): (&Namespace, &str),
) -> io::Result<()> {
    let far_id = far.id();
    let pair = format!(
        "link add name {name} type veth peer name {peer} netns {far_id}\nlink set {name} up\n"
    );
    near.batch("ip", &pair)?;
    far.run(&format!("ip link set {peer} up"))
}

/// Runs a command with this input and waits for its end.
fn finish(command: &mut Command, input: &str) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Ignored: a program that fails before it reads its input reports the cause on standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or("failed").to_owned();
    Err(io::Error::other(said))
}

/// The child's script. It mounts a new `/sys`, which shows the links of the namespace that mounted it, and holds the
/// namespace until standard input is closed.
const HOLD: &str = "mount -t sysfs sysfs /sys 2>/dev/null; echo made; exec cat >/dev/null";

const DISABLE_IPV6: &str = "for at in all default; do echo 1 >/proc/sys/net/ipv6/conf/$at/disable_ipv6; done \
                            2>/dev/null; true";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::path::Path;

    fn pair() -> Result<[Namespace; 2], String> {
        Ok([Namespace::new()?, Namespace::new()?])
    }

    #[test]
    fn what_is_sent_in_one_arrives_in_the_other() {
        crate::require!("ip", "unshare", "nsenter");
        let [one, other] = match pair() {
            Ok(pair) => pair,
            Err(reason) => crate::skip!("{reason}"),
        };
        connect((&one, "here"), (&other, "there")).unwrap();
        one.run("ip addr add 10.77.0.1/24 dev here").unwrap();
        other.run("ip addr add 10.77.0.2/24 dev there").unwrap();
        let bind = |last| move || UdpSocket::bind((Ipv4Addr::new(10, 77, 0, last), 0)).unwrap();
        let (sender, receiver) = (one.inside(bind(1)).unwrap(), other.inside(bind(2)).unwrap());
        let address = receiver.local_addr().unwrap();
        sender.send_to(b"hello", address).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
        // Programs in a namespace see only its links, by `ip` and in `/sys`.
        one.run("test -e /sys/class/net/here").unwrap();
        one.run("test -e /sys/class/net/there").unwrap_err();
    }

    #[test]
    fn a_panic_leaves_nothing() {
        crate::require!("unshare");
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(reason) => crate::skip!("{reason}"),
        };
        let id = namespace.id();
        let failing = thread::spawn(move || {
            let _namespace = namespace;
            panic!("a test that fails");
        });
        failing.join().unwrap_err();
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
}
