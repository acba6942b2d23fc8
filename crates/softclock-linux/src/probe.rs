//! Probes that find out which kernel features this process may use.
//!
//! Each probe makes the system call that the feature makes, and undoes its effect. Its error gives the reason:
//! `Unsupported` or `ENOSYS` if the kernel lacks the feature, `EPERM` or `EACCES` if this process may not use it.
//!
//! ```
//! use softclock_linux::probe;
//!
//! match probe::io_uring() {
//!     Ok(()) => println!("io_uring works"),
//!     Err(error) => println!("io_uring does not work: {error}"),
//! }
//! ```

use std::fs::OpenOptions;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags};
use rustix::net::{AddressFamily, SocketType, socket_with};

use crate::alarm::cpu_clock_timer as timer;
use crate::bpf::{Instruction, Program, ProgramKind, TC_ACT_OK};
use crate::busy_poll::{self, BusyPoll};
use crate::readiness::IoUring;
use crate::socket::NEW_SOCKET;

/// Probes for a POSIX timer on the calling thread's processor time, which the backup timer needs.
pub fn cpu_clock_timer() -> io::Result<()> {
    timer()
}

/// Probes for epoll_pwait2 (Linux 5.11), which takes a timeout in nanoseconds rather than milliseconds.
pub fn exact_waits() -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    // SAFETY: an event consists of integers, for which zero is valid.
    let mut event: libc::epoll_event = unsafe { zeroed() };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the descriptor is open, `event` has room for the one event requested, `now` outlives the call, and a null
    // signal mask is allowed.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            &raw mut event,
            1,
            &raw const now,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    done(found)
}

/// Probes whether the file system of `file` supports preadv2 with RWF_NOWAIT, which reads only cached data.
pub fn cached_reads(file: impl AsFd) -> io::Result<()> {
    let mut byte = 0u8;
    let vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let file = file.as_fd().as_raw_fd();
    // SAFETY: `vector` describes one byte of this function's stack, which outlives the call.
    let read = unsafe { libc::preadv2(file, &raw const vector, 1, 0, libc::RWF_NOWAIT) };
    match done(read as libc::c_long) {
        // The byte is not cached, but the file system supports the flag.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

/// Probes for an io_uring as [`Mechanism::IoUring`](crate::readiness::Mechanism) needs it (Linux 6.1). Containers often
/// forbid it.
pub fn io_uring() -> io::Result<()> {
    IoUring::new().map(drop)
}

/// Probes for busy polling by an epoll (Linux 6.9).
pub fn epoll_busy_poll() -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    busy_poll::epoll::set(epoll.as_fd(), BusyPoll::of(Duration::from_micros(1)))
}

/// Probes for busy polling by an io_uring (Linux 6.9).
pub fn io_uring_busy_poll() -> io::Result<()> {
    let ring = IoUring::new()?;
    ring.set_busy_poll(BusyPoll::of(Duration::from_micros(1)))
}

/// Probes for busy polling by an AF_XDP socket that keeps interrupts masked (Linux 5.11).
pub fn xdp_busy_poll() -> io::Result<()> {
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    let socket = raw_socket(family)?;
    let polling = BusyPoll {
        is_preferred: true,
        ..BusyPoll::of(Duration::from_micros(1))
    };
    busy_poll::socket::set(socket.as_fd(), polling)
}

/// Probes for an AF_XDP socket, through which frames bypass the kernel's network stack.
pub fn xdp_socket() -> io::Result<()> {
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    raw_socket(family).map(drop)
}

/// Probes for an AF_PACKET socket, which receives all frames of a link.
pub fn packet_socket() -> io::Result<()> {
    raw_socket(AddressFamily::PACKET).map(drop)
}

fn raw_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = socket_with(family, SocketType::RAW, NEW_SOCKET, None);
    socket.map_err(io::Error::from)
}

/// Probes whether an XDP program can be loaded. The program would pass every packet, and is not attached.
pub fn xdp_program() -> io::Result<()> {
    let program = [Instruction::result(XDP_PASS), Instruction::EXIT];
    Program::load(ProgramKind::Xdp, &program).map(drop)
}

/// Probes whether a program for received frames can be loaded, and attached by tcx (Linux 6.6). The program would pass
/// every packet, and is not attached: the probe names a link that does not exist.
pub fn ingress_program() -> io::Result<()> {
    let program = [Instruction::result(TC_ACT_OK), Instruction::EXIT];
    let program = Program::load(ProgramKind::TrafficControl, &program)?;
    match program.attach_ingress(NO_LINK) {
        Ok(_) => Ok(()),
        Err(error) => without_link(error),
    }
}

/// Interprets the error of attaching to a link that does not exist: ENODEV if the kernel has tcx, EINVAL if the kernel
/// does not know this type of attachment.
fn without_link(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENODEV) => Ok(()),
        Some(libc::EINVAL) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Err(error),
    }
}

/// Probes for access to the device that creates TUN and TAP links.
pub fn tun_device() -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).open("/dev/net/tun")?;
    Ok(())
}

/// The verdict "pass" of an XDP program (include/uapi/linux/bpf.h).
const XDP_PASS: u32 = 2;

/// An interface index that no link has: the kernel counts from 1.
const NO_LINK: u32 = 0;

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one required feature must be present. The results of the others depend on the kernel, but must be the same
    /// at a second call: a probe that left something behind could change them.
    #[test]
    fn probes_leave_nothing_behind() {
        cpu_clock_timer().unwrap();
        let optional = || {
            [
                exact_waits(),
                io_uring(),
                xdp_socket(),
                packet_socket(),
                xdp_program(),
                ingress_program(),
                tun_device(),
                epoll_busy_poll(),
                io_uring_busy_poll(),
                xdp_busy_poll(),
            ]
        };
        let names = |errors: [io::Result<()>; 10]| errors.map(|e| e.err().map(|e| e.kind()));
        let first = names(optional());
        assert_eq!(first, names(optional()));
    }

    #[test]
    fn a_kernel_without_tcx_is_told_from_one_with() {
        let told = |number| without_link(io::Error::from_raw_os_error(number));
        assert!(told(libc::ENODEV).is_ok());
        let kinds = [libc::EINVAL, libc::EPERM].map(|number| told(number).unwrap_err().kind());
        let expected = [io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn ordinary_files_can_be_read_from_memory() {
        let file = tempfile::tempfile().unwrap();
        let answer = cached_reads(&file);
        let kind = answer.err().map(|error| error.kind());
        assert!(matches!(kind, None | Some(io::ErrorKind::Unsupported)));
    }
}
