//! What the kernel lets this process do: each probe makes the call that the feature would make, and undoes it.
//!
//! An error says why not: `Unsupported` or `ENOSYS` where the kernel lacks it, `EPERM` or `EACCES` where it is there
//! but not for this process.

use std::fs::OpenOptions;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags};
use rustix::net::{AddressFamily, SocketType};

use crate::alarm::cpu_clock_timer as timer;
use crate::events::IoUring;

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

/// An io_uring as [`Mechanism::IoUring`](crate::events::Mechanism) needs it (Linux 6.1). Containers often forbid it.
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
    const PROGRAM: [u64; 2] = [
        // r0 = XDP_PASS
        0x0000_0002_0000_00b7,
        // exit
        0x0000_0000_0000_0095,
    ];
    let request = LoadProgram {
        kind: BPF_PROG_TYPE_XDP,
        instructions: PROGRAM.len() as u32,
        program: PROGRAM.as_ptr().expose_provenance() as u64,
        licence: c"GPL".as_ptr().expose_provenance() as u64,
        ..LoadProgram::default()
    };
    // SAFETY: `request` begins like the kernel's `union bpf_attr` for BPF_PROG_LOAD, and what it points to is static or
    // on the stack and outlives the call. The kernel only reads it.
    let load = || unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const request,
            size_of::<LoadProgram>(),
        )
    };
    // The verifier gives up with EAGAIN when a signal is pending.
    let result = (0..LOAD_TRIES).map(|_| close(load())).find(|result| {
        let again = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        !result.as_ref().is_err_and(again)
    });
    result.unwrap_or(Err(io::ErrorKind::WouldBlock.into()))
}

/// The device that makes TUN and TAP links.
pub fn tun_device() -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).open("/dev/net/tun")?;
    Ok(())
}

/// As often as libbpf tries.
const LOAD_TRIES: u32 = 5;

/// The beginning of `union bpf_attr` for BPF_PROG_LOAD: include/uapi/linux/bpf.h.
#[derive(Default)]
#[repr(C)]
struct LoadProgram {
    kind: u32,
    instructions: u32,
    program: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

const _: () = assert!(size_of::<LoadProgram>() == 48);

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes a new descriptor, or the error, and closes it.
fn close(result: libc::c_long) -> io::Result<()> {
    done(result)?;
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) });
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
                tun_device(),
            ]
        };
        let names = |errors: [io::Result<()>; 6]| errors.map(|e| e.err().map(|e| e.kind()));
        let first = names(optional());
        assert_eq!(first, names(optional()));
    }

    #[test]
    fn ordinary_files_can_be_read_from_memory() {
        let file = tempfile::tempfile().unwrap();
        let answer = cached_reads(&file);
        let kind = answer.err().map(|error| error.kind());
        assert!(matches!(kind, None | Some(io::ErrorKind::Unsupported)));
    }
}
