//! The delay of a link's interrupts (`napi_defer_hard_irqs`, `gro_flush_timeout` and `irq-suspend-timeout` of
//! Documentation/networking/napi.rst).
//!
//! By these settings the kernel itself looks at a link's queues at times of its own, instead of at each interrupt. They
//! belong to the link and outlive the process that sets them, so [`DelayedInterrupts`] undoes them when it is dropped,
//! and a child process does so if the process is killed.
//!
//! - [`sysfs_delay`]: the same settings by `/sys`, for all queues of a link.
//! - [`undo`]: the end of a delay.
//! - [`watcher`]: the child process.
//!
//! One process at a time sets them for a link: a second is refused. The claim lasts until the settings are undone, also
//! while the child undoes them, so no process ever takes another's settings for those to return to.

mod sysfs_delay;
mod undo;
mod watcher;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use sysfs_delay::SysfsDelay;
use undo::{Undo, Write};
use watcher::Watcher;

use super::napi::Instances;
use super::{Claim, ClaimError, DelayHolder, Link};

/// How the interrupts of a link's receive queues are delayed.
///
/// The kernel's receive work for a queue runs at an interrupt, and masks further ones until it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptDelay {
    /// The number of times in a row that the work may end without frames before interrupts are enabled; until then
    /// [`timeout`](Self::timeout) makes the work run. With 0 each end of the work enables interrupts.
    pub rounds: u32,
    /// The time after which the work runs by itself while interrupts are masked. With zero they are never delayed.
    pub timeout: Duration,
    /// The longest time for which interrupts stay masked because a thread that polls the queue has received from it and
    /// works (`irq-suspend-timeout`, Linux 6.13). Zero for none. It needs the other two, and threads that
    /// [prefer busy polling](crate::busy_poll::BusyPoll::is_preferred).
    pub suspension: Duration,
}

impl InterruptDelay {
    /// No delay: the kernel's default.
    pub const NONE: Self = Self {
        rounds: 0,
        timeout: Duration::ZERO,
        suspension: Duration::ZERO,
    };
}

/// A delay of a link's interrupts, undone on drop: the settings are then as they were before.
///
/// Uses netlink for each of the link's receive queues (Linux 6.13), or `/sys` for all queues of the link. If the
/// process ends without dropping this, even if killed, a child process undoes the settings at once. The child does
/// nothing else: it has no open files but those, and ignores signals but SIGKILL and SIGSTOP. Where it is killed
/// together with the process, as in a container or cgroup, the settings stay; reset them as root to the kernel's
/// defaults:
///
/// ```console
/// # echo 0 > /sys/class/net/eth0/napi_defer_hard_irqs
/// # echo 0 > /sys/class/net/eth0/gro_flush_timeout
/// ```
///
/// An instance of receive work that has ended by then, since the link is down or has fewer queues, may return with its
/// settings: some drivers keep them. In this case the settings in `/sys` are restored, too, which are then those of the
/// instances that return. Where `/sys` cannot be written, as in a container, their delay stays; and a suspension, for
/// which there is no file, which has no effect without a delay.
///
/// The child's copy-on-write pages keep the memory of this moment alive, so set delays before the process grows.
/// Changes that another program makes meanwhile are overwritten at the end.
///
/// ```no_run
/// use std::time::Duration;
/// use softclock_linux::link::{DelayedInterrupts, InterruptDelay, Link};
///
/// let link = Link::named("eth0")?;
/// let delay = InterruptDelay {
///     rounds: 1,
///     timeout: Duration::from_micros(200),
///     suspension: Duration::ZERO,
/// };
/// // Interrupts come at most once in 200 us while there is traffic.
/// let delayed = DelayedInterrupts::set(&link, delay)?;
/// # drop(delayed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DelayedInterrupts {
    undo: Undo,
    watcher: Watcher,
    means: DelayMeans,
    /// Dropped last.
    _claim: Claim,
}

/// The interface of the kernel by which a delay is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayMeans {
    /// Netlink, for this number of instances of receive work.
    Netlink(usize),
    /// The files in `/sys`, for all queues of the link.
    Sysfs,
}

/// Why interrupts cannot be delayed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DelayError {
    /// The link has no receive work of its own, as veth without an XDP program and without GRO: frames are received by
    /// the thread that sends them.
    NoReceiveWork,
    /// The kernel cannot suspend interrupts: Linux before 6.13.
    NoSuspension,
    /// A process delays the link's interrupts: its id, or `None` if that is unknown.
    Held(Option<u32>),
    /// No process can be started to undo the settings.
    Watcher(io::Error),
    /// The settings cannot be read or made: `PermissionDenied` without CAP_NET_ADMIN, or where `/sys` is read-only.
    Failed(io::Error),
}

impl DelayedInterrupts {
    /// Delays the interrupts of all receive queues of a link. Queues that the link gets later have the kernel's
    /// settings, and so have those that it loses and gets again, as veth with its XDP program, unless the driver keeps
    /// theirs: open sockets of AF_XDP before.
    ///
    /// Forks the process. Blocks for up to 200 ms while the settings of a process that was killed are being undone.
    ///
    /// # Errors
    /// [`DelayError`]. After an error the settings are as before.
    pub fn set(link: &Link, delay: InterruptDelay) -> Result<Self, DelayError> {
        Self::with(link, delay, || Means::of(link, delay))
    }

    /// Delays the interrupts of one queue, of which the kernel must know the instance.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    #[cfg(feature = "experiments")]
    pub(super) fn of_queue(
        link: &Link,
        queue: u32,
        delay: InterruptDelay,
    ) -> Result<(Self, u32), DelayError> {
        let mut id = 0;
        let delayed = Self::with(link, delay, || {
            let instances = Instances::of_queue(link, queue).map_err(failed)?;
            id = instances.ids()[0];
            Ok(Means::Netlink(instances))
        });
        Ok((delayed?, id))
    }

    fn with(
        link: &Link,
        delay: InterruptDelay,
        means: impl FnOnce() -> Result<Means, DelayError>,
    ) -> Result<Self, DelayError> {
        // First: what is read below must not be the settings of another process.
        let claim = claim(link)?;
        let means = means()?;
        let undo = means.undo(link).map_err(failed)?;
        // Before the settings are made, so that there is no moment without it.
        let watcher = Watcher::start(claim.as_fd(), &undo).map_err(DelayError::Watcher)?;
        let delayed = Self {
            undo,
            watcher,
            means: means.kind(),
            _claim: claim,
        };
        // A failure drops the value, which undoes what has been set.
        means.set(delay).map_err(failed)?;
        Ok(delayed)
    }

    /// The interface of the kernel by which the delay is set.
    pub const fn means(&self) -> DelayMeans {
        self.means
    }
}

impl Drop for DelayedInterrupts {
    fn drop(&mut self) {
        self.undo.run();
        self.watcher.end();
    }
}

/// The delays of a link's interrupts at a moment, for reports.
#[derive(Debug)]
pub struct InterruptDelays {
    /// Those of each instance of receive work: empty if the link has none.
    ///
    /// `Unsupported` for kernels before 6.13.
    pub instances: io::Result<Vec<InterruptDelay>>,
    /// Those by `/sys`, which instances begin with; its suspension is zero.
    pub interface: io::Result<InterruptDelay>,
    /// The process that has set them by [`DelayedInterrupts`].
    pub holder: DelayHolder,
}

impl InterruptDelays {
    /// Reads the settings of a link. Changes nothing, and needs no privileges.
    pub fn of(link: &Link) -> Self {
        let instances = match Instances::of_link(link) {
            Ok(found) => found.ids().iter().map(|&id| found.delay(id)).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        Self {
            instances,
            interface: sysfs_delay::read(link),
            holder: Claim::holder_of_interrupts(link),
        }
    }
}

/// The settings of a link, by one of the two interfaces.
enum Means {
    Netlink(Instances),
    Sysfs(SysfsDelay),
}

impl Means {
    /// Prefers netlink, which changes only the queues that there are.
    fn of(link: &Link, delay: InterruptDelay) -> Result<Self, DelayError> {
        match by_netlink(link) {
            Ok(instances) => Ok(Self::Netlink(instances)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DelayError::NoReceiveWork),
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(failed(error)),
            Err(_) if !delay.suspension.is_zero() => Err(DelayError::NoSuspension),
            Err(_) => {
                let settings = SysfsDelay::of(link).map_err(DelayError::Failed)?;
                Ok(Self::Sysfs(settings))
            }
        }
    }

    fn kind(&self) -> DelayMeans {
        match self {
            Self::Netlink(instances) => DelayMeans::Netlink(instances.ids().len()),
            Self::Sysfs(_) => DelayMeans::Sysfs,
        }
    }

    /// How to return to the settings of this moment.
    fn undo(&self, link: &Link) -> io::Result<Undo> {
        match self {
            Self::Netlink(instances) => {
                let request = |&id| {
                    let before = instances.delay(id)?;
                    let socket = instances.as_fd().try_clone_to_owned()?;
                    Ok(Write::new(socket, instances.written(id, before)))
                };
                let requests = instances.ids().iter().map(request);
                let files = SysfsDelay::of(link).and_then(|interface| interface.undo());
                Ok(Undo {
                    requests: requests.collect::<io::Result<_>>()?,
                    // Needed for instances that end, and so not where `/sys` cannot be written.
                    files: files.unwrap_or_default(),
                })
            }
            Self::Sysfs(interface) => Ok(Undo {
                requests: Vec::new(),
                files: interface.undo()?,
            }),
        }
    }

    fn set(&self, delay: InterruptDelay) -> io::Result<()> {
        match self {
            Self::Netlink(instances) => {
                let mut ids = instances.ids().iter();
                ids.try_for_each(|&id| instances.set_delay(id, delay))
            }
            Self::Sysfs(interface) => interface.set(delay),
        }
    }
}

/// Claims the delay of a link's interrupts. Waits for up to 200 ms while the claim is that of a process that has ended,
/// whose child is undoing its settings.
fn claim(link: &Link) -> Result<Claim, DelayError> {
    for _ in 0..CLAIM_TRIES {
        match Claim::to_interrupts(link) {
            Err(ClaimError::Held(Some(process))) if has_ended(process) => {
                thread::sleep(CLAIM_PAUSE)
            }
            claimed => return claimed.map_err(refused),
        }
    }
    Claim::to_interrupts(link).map_err(refused)
}

fn refused(error: ClaimError) -> DelayError {
    match error {
        ClaimError::Held(process) => DelayError::Held(process),
        ClaimError::Io(error) => DelayError::Failed(error),
    }
}

/// Returns whether a process has ended, perhaps without its parent knowing.
fn has_ended(process: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/stat")) else {
        return true;
    };
    // The state follows the name, which may have any characters.
    let state = status.rsplit(") ").next();
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// The instances of a link, if the kernel has settings for each.
fn by_netlink(link: &Link) -> io::Result<Instances> {
    let instances = Instances::of_link(link)?;
    instances.delay(instances.ids()[0])?;
    Ok(instances)
}

fn failed(error: io::Error) -> DelayError {
    match error.kind() {
        io::ErrorKind::NotFound => DelayError::NoReceiveWork,
        _ => DelayError::Failed(error),
    }
}

impl fmt::Display for DelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReceiveWork => f.write_str(
                "the interface has no receive work (NAPI) to delay; a veth has it with an XDP program, or with GRO: \
                 ethtool -K IF gro on",
            ),
            Self::NoSuspension => {
                f.write_str("the kernel cannot suspend interrupts: Linux 6.13 is needed")
            }
            Self::Held(Some(process)) => {
                write!(
                    f,
                    "process {process} delays them already: end it first, or run without a delay"
                )
            }
            Self::Held(None) => f.write_str(
                "another process delays them already: end it first, or run without a delay",
            ),
            Self::Watcher(error) => write!(
                f,
                "no process can be started to undo the settings: {error}"
            ),
            Self::Failed(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                f.write_str("no permission: this needs root or CAP_NET_ADMIN")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DelayError {}

const CLAIM_TRIES: u32 = 40;
const CLAIM_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
