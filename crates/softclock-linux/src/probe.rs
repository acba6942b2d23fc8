//! What the kernel lets this process do: each probe makes the call that the feature would make, and undoes it.
//!
//! An error says why not: `Unsupported` or `ENOSYS` where the kernel lacks it, `EPERM` or `EACCES` where it is there
//! but not for this process.

use std::fs::OpenOptions;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::epoll::{self, CreateFlags};
use rustix::net::{AddressFamily, SocketType};

use crate::alarm::cpu_clock_timer as timer;
use crate::bpf::{Instruction, Program, ProgramKind, TC_ACT_OK};
use crate::readiness::IoUring;

/// A POSIX timer on the calling thread's processor time: the backup timer.
pub fn cpu_clock_timer() -> io::Result<()> {
    timer()
}

/// epoll_pwait2 (Linux 5.11), by which waits end to the nanosecond rather than the millisecond.
pub fn exact_waits() -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    // SAFETY: zero is valid for an event, which is integers.
    let mut event: libc::epoll_event = unsafe { zeroed() };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the descriptor is open, `event` has room for the one event asked for, `now` outlives the call, and no
    // signal mask is given.
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

/// preadv2 with RWF_NOWAIT, by which a file is read only as far as it is in memory: whether `file`'s file system can.
pub fn cached_reads(file: impl AsFd) -> io::Result<()> {
    let mut byte = 0u8;
    let vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let file = file.as_fd().as_raw_fd();
    // SAFETY: `vector` describes one byte that we own and that outlives the call.
    let read = unsafe { libc::preadv2(file, &raw const vector, 1, 0, libc::RWF_NOWAIT) };
    match done(read as libc::c_long) {
        // Not in memory: that is what was asked.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

/// An io_uring as [`Mechanism::IoUring`](crate::readiness::Mechanism) needs it (Linux 6.1). Containers often forbid it.
pub fn io_uring() -> io::Result<()> {
    IoUring::new().map(drop)
}

/// An AF_XDP socket, by which frames bypass the kernel's stack.
pub fn xdp_socket() -> io::Result<()> {
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    rustix::net::socket(family, SocketType::RAW, None)?;
    Ok(())
}

/// An AF_PACKET socket, by which all frames of a link are seen.
pub fn packet_socket() -> io::Result<()> {
    rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None)?;
    Ok(())
}

/// A loaded XDP program (one that passes every packet; it is attached nowhere).
pub fn xdp_program() -> io::Result<()> {
    let program = [Instruction::result(XDP_PASS), Instruction::EXIT];
    Program::load(ProgramKind::Xdp, &program).map(drop)
}

/// A loaded program for what a link receives (one that passes every packet), and tcx to attach it by (Linux 6.6). It is
/// attached nowhere: the link that is named does not exist.
pub fn ingress_program() -> io::Result<()> {
    let program = [Instruction::result(TC_ACT_OK), Instruction::EXIT];
    let program = Program::load(ProgramKind::TrafficControl, &program)?;
    match program.attach_ingress(NO_LINK) {
        Ok(_) => Ok(()),
        Err(error) => without_link(error),
    }
}

/// What attaching to a link that there is not says of tcx. Kernels without it do not know the place.
fn without_link(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENODEV) => Ok(()),
        Some(libc::EINVAL) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Err(error),
    }
}

/// The device that makes TUN and TAP links.
pub fn tun_device() -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).open("/dev/net/tun")?;
    Ok(())
}

/// include/uapi/linux/bpf.h.
const XDP_PASS: u32 = 2;

/// Links are counted from 1.
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

    /// What the crate cannot do without is there; the rest answers whatever it answers, and leaves nothing open.
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
            ]
        };
        let names = |errors: [io::Result<()>; 7]| errors.map(|e| e.err().map(|e| e.kind()));
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
