//! Delays over a veth pair with an XDP program, also when the process that has set them is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use rustix::thread::CapabilitySet;
use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

use super::super::cable::cable;
use super::super::{Copies, XdpFilter, XdpSettings, XdpSocket};
use super::*;

const DELAY: InterruptDelay = InterruptDelay {
    rounds: 2,
    timeout: Duration::from_micros(500),
    suspension: Duration::from_millis(20),
};

/// Opens an AF_XDP socket, which gives a link receive work.
fn socket(link: &Link) -> Result<XdpSocket, String> {
    let settings = XdpSettings {
        copies: Copies::Allowed,
        queue: None,
        filter: XdpFilter::All,
    };
    XdpSocket::open(link, settings)
        .map_err(|error| format!("AF_XDP cannot be used here: {error:?}"))
}

macro_rules! socket {
    ($link:expr) => {
        match socket($link) {
            Ok(socket) => socket,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    };
}

/// Waits until no process holds a delay of the link, and sets one; skips the test if the kernel cannot.
macro_rules! set {
    ($link:expr) => {{
        assert!(becomes_free($link));
        match DelayedInterrupts::set($link, DELAY) {
            Err(DelayError::NoSuspension) => {
                softclock_testing::skip!("this kernel cannot suspend interrupts")
            }
            result => result.unwrap(),
        }
    }};
}

/// Returns whether the link is free of delays within 10 s. A process that another test starts has a copy of the holder's
/// descriptors until it executes its program.
fn becomes_free(link: &Link) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let is_free = InterruptDelays::of(link).holder == DelayHolder::None;
        if is_free || Instant::now() > end {
            return is_free;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn delays(link: &Link) -> Vec<InterruptDelay> {
    InterruptDelays::of(link).instances.unwrap()
}

#[test]
fn a_delay_ends_with_its_value() {
    let cable = cable!();
    let [_, link] = cable.links();
    let _socket = socket!(&link);
    let before = InterruptDelay {
        rounds: 7,
        ..InterruptDelay::NONE
    };
    let instances = Instances::of_link(&link).unwrap();
    instances.set_delay(instances.ids()[0], before).unwrap();
    let delayed = set!(&link);
    assert_eq!(delayed.means(), DelayMeans::Netlink(1));
    assert_eq!(delays(&link), [DELAY]);
    drop(delayed);
    assert_eq!(delays(&link), [before]);
    set!(&link);
}

/// A process that has lost its privileges leaves the settings as they were, since the child has kept them.
#[test]
fn a_delay_ends_without_privileges() {
    let cable = cable!();
    let [_, link] = cable.links();
    let _socket = socket!(&link);
    let delayed = set!(&link);
    let dropped = thread::spawn(move || {
        let mut without = rustix::thread::capabilities(None).unwrap();
        without.effective -= CapabilitySet::NET_ADMIN;
        rustix::thread::set_capabilities(None, without).unwrap();
        drop(delayed);
    });
    dropped.join().unwrap();
    assert_eq!(delays(&link), [InterruptDelay::NONE]);
}

/// The child does not keep the link's queue busy after its socket is closed.
#[test]
fn a_queue_is_free_while_a_delay_lasts() {
    let cable = cable!();
    let [other, link] = cable.links();
    let (socket, _other_socket) = (socket!(&link), socket!(&other));
    let delayed = set!(&other);
    drop(socket);
    self::socket(&link).unwrap();
    drop(delayed);
}

#[test]
fn a_link_has_one_delay_at_a_time() {
    let cable = cable!();
    let [other, link] = cable.links();
    let (_socket, _other_socket) = (socket!(&link), socket!(&other));
    assert_eq!(InterruptDelays::of(&link).holder, DelayHolder::None);
    let delayed = set!(&link);
    let own = std::process::id();
    assert_eq!(InterruptDelays::of(&link).holder, DelayHolder::Process(own));
    let refused = DelayedInterrupts::set(&link, InterruptDelay::NONE).unwrap_err();
    assert!(matches!(refused, DelayError::Held(Some(process)) if process == own));
    assert_eq!(delays(&link), [DELAY]);
    set!(&other);
    drop(delayed);
    set!(&link);
}

#[test]
fn a_link_without_receive_work_is_refused() {
    let cable = cable!();
    let [link, _] = cable.links();
    match DelayedInterrupts::set(&link, DELAY) {
        Err(DelayError::NoSuspension) => {
            softclock_testing::skip!("this kernel cannot suspend interrupts")
        }
        result => assert!(
            matches!(result, Err(DelayError::NoReceiveWork)),
            "{result:?}"
        ),
    }
    assert_eq!(InterruptDelays::of(&link).holder, DelayHolder::None);
}

/// The interface of kernels without settings for each instance.
#[test]
fn the_files_of_an_interface_are_set_and_undone() {
    let cable = cable!();
    let [_, link] = cable.links();
    let read = || sysfs_delay::read(&link).unwrap();
    let open = || match SysfsDelay::of(&link) {
        Ok(interface) => Ok(interface),
        Err(error) => Err(format!("{} cannot be changed: {error}", link.name())),
    };
    let interface = match open() {
        Ok(interface) => interface,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let before = InterruptDelay {
        rounds: 5,
        timeout: Duration::from_nanos(1234),
        ..InterruptDelay::NONE
    };
    interface.set(before).unwrap();
    assert_eq!(read(), before);
    let delayed = DelayedInterrupts::with(&link, DELAY, || {
        open()
            .map(Means::Sysfs)
            .map_err(|_| DelayError::NoReceiveWork)
    });
    let delayed = delayed.unwrap();
    assert_eq!(delayed.means(), DelayMeans::Sysfs);
    let set = InterruptDelay {
        suspension: Duration::ZERO,
        ..DELAY
    };
    assert_eq!(read(), set);
    drop(delayed);
    assert_eq!(read(), before);
}

/// The child has no other descriptors, which would keep a port, a pipe or a device of the parent open.
#[test]
fn the_watcher_keeps_only_its_own_files() {
    let cable = cable!();
    let [_, link] = cable.links();
    let _socket = socket!(&link);
    let delayed = set!(&link);
    let process = delayed.watcher.process();
    let files = || fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let expected = delayed.undo.descriptors().count() + 2;
    let begun = Instant::now();
    while files() != expected {
        assert!(begun.elapsed() < PATIENCE, "{}", files());
        thread::sleep(Duration::from_millis(1));
    }
    drop(delayed);
    assert!(fs::metadata(format!("/proc/{process}")).is_err());
}

/// The parent undoes the settings even if its watcher was killed.
#[test]
fn the_parent_undoes_without_its_watcher() {
    let cable = cable!();
    let [_, link] = cable.links();
    let _socket = socket!(&link);
    let delayed = set!(&link);
    let process = rustix::process::Pid::from_raw(delayed.watcher.process()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    drop(delayed);
    assert_eq!(delays(&link), [InterruptDelay::NONE]);
}

#[test]
fn a_killed_process_leaves_no_delay() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let [near, far] = match [(); 2].map(|()| Namespace::new()) {
        [Ok(near), Ok(far)] => [near, far],
        [Err(reason), _] | [_, Err(reason)] => softclock_testing::skip!("{reason}"),
    };
    connect((&near, "near"), (&far, "far")).unwrap();
    let link = || Link::named("near").unwrap();
    // Opened by this process, so that the receive work outlives the child.
    let _socket = match near.inside(|| socket(&link())).unwrap() {
        Ok(socket) => socket,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let state = || {
        let read = || {
            let found = InterruptDelays::of(&link());
            (found.instances.unwrap(), found.holder)
        };
        near.inside(read).unwrap()
    };
    let program = std::env::current_exe().unwrap();
    let mut child = near.command(program.to_str().unwrap());
    // The names of tests do not begin with the name of the crate.
    let (_, holder) = HOLDER.split_once("::").unwrap();
    child
        .args(["--exact", "--nocapture", holder])
        .env(HOLDS, "1");
    let mut child = KilledOnDrop::new(child.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.ends_with(HOLDING) {
        said.clear();
        if output.read_line(&mut said).unwrap() == 0 {
            assert!(child.wait().unwrap().success());
            softclock_testing::skip!("this kernel cannot suspend interrupts");
        }
        said.truncate(said.trim_end().len());
    }
    let (set, held) = state();
    assert_eq!(set, [DELAY]);
    assert_ne!(held, DelayHolder::None);
    drop(child);
    // The next delay begins after the settings are undone, so it does not restore those of the killed process at its
    // end.
    let next = near.inside(|| DelayedInterrupts::set(&link(), DELAY));
    drop(next.unwrap().unwrap());
    // The watcher of the killed process has undone its settings, and may take a little longer to end.
    let begun = Instant::now();
    while state() != (vec![InterruptDelay::NONE], DelayHolder::None) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", state());
        thread::sleep(Duration::from_millis(1));
    }
    // The output ends, since the watcher does not hold its pipe open.
    said.clear();
    while output.read_line(&mut said).unwrap() > 0 {}
}

/// The child process of the test above.
#[test]
fn a_process_that_delays() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let link = Link::named("near").unwrap();
    let _delayed = match DelayedInterrupts::set(&link, DELAY) {
        Err(DelayError::NoSuspension) => return,
        delayed => delayed.unwrap(),
    };
    println!("{HOLDING}");
    thread::sleep(10 * PATIENCE);
}

/// The options of the socket are the settings, and are off again afterwards.
#[test]
fn a_socket_can_prefer_busy_polling() {
    use crate::busy_poll::BusyPoll;

    let cable = cable!();
    let [_, link] = cable.links();
    let socket = socket!(&link);
    let polling = BusyPoll {
        is_preferred: true,
        ..BusyPoll::of(Duration::from_micros(20))
    };
    match socket.set_busy_poll(polling) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            softclock_testing::skip!("this kernel has no busy polling of sockets")
        }
        result => result.unwrap(),
    }
    let set = |option| {
        let mut value = 0;
        let mut length = size_of_val(&value) as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
        // SAFETY: the kernel writes one integer, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                option,
                std::ptr::from_mut::<libc::c_int>(&mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!(result, 0);
        value
    };
    let options = [libc::SO_PREFER_BUSY_POLL, libc::SO_BUSY_POLL];
    assert_eq!(options.map(set), [1, 20]);
    socket.set_busy_poll(BusyPoll::OFF).unwrap();
    assert_eq!(options.map(set), [0, 0]);
}

const PATIENCE: Duration = Duration::from_secs(20);

/// The environment variable that makes `a_process_that_delays` delay interrupts.
const HOLDS: &str = "SOFTCLOCK_DELAYS";
const HOLDER: &str = concat!(module_path!(), "::a_process_that_delays");
const HOLDING: &str = "it delays";
