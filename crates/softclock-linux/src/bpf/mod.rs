//! BPF programs, written as instructions, and loaded and attached by bpf(2) without a library.
//!
//! Programs are attached by BPF links, so closing the descriptor or the end of the process detaches them
//! (include/uapi/linux/bpf.h).
//!
//! - [`Instruction`]: an instruction of a program.
//! - [`SocketMap`]: a map from indices to AF_XDP sockets, for programs to redirect frames to.
//! - [`IndexMap`]: a hash map from keys to indices, for programs to look up.
//! - [`SharedArray`]: an array of words that programs and this process read and change.

mod assembler;
mod index_map;
mod instruction;
mod map;
mod shared_array;
mod socket_map;
#[cfg(test)]
mod test_run;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

pub(crate) use assembler::{Assembler, Label};
pub use index_map::IndexMap;
pub use instruction::Instruction;
pub use shared_array::{SharedArray, Words};
pub use socket_map::SocketMap;

/// The type of a program: the place in the kernel where it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramKind {
    /// Traffic control (tcx).
    TrafficControl,
    /// The driver's receive path.
    Xdp,
}

/// A loaded program. The kernel frees it when this and all of its [`Attachment`]s are dropped.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads a program. The kernel verifies it first.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN; `InvalidInput` for a program that the verifier refuses;
    /// `ENOSYS` for kernels without BPF.
    pub fn load(kind: ProgramKind, instructions: &[Instruction]) -> io::Result<Self> {
        let request = LoadProgram {
            kind: match kind {
                ProgramKind::TrafficControl => BPF_PROG_TYPE_SCHED_CLS,
                ProgramKind::Xdp => BPF_PROG_TYPE_XDP,
            },
            instructions: instructions.len() as u32,
            program: instructions.as_ptr().expose_provenance() as u64,
            licence: c"GPL".as_ptr().expose_provenance() as u64,
            ..LoadProgram::default()
        };
        // The verifier stops with EAGAIN when a signal is pending.
        for _ in 1..LOAD_TRIES {
            // SAFETY: `request` has the layout of this command, and its pointers are valid during the call.
            match unsafe { bpf(BPF_PROG_LOAD, &request) } {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map(Self),
            }
        }
        // SAFETY: as above.
        unsafe { bpf(BPF_PROG_LOAD, &request) }.map(Self)
    }

    /// Attaches a program of traffic control to the ingress of a link (tcx, Linux 6.6), until the attachment is
    /// dropped. It runs after AF_PACKET sockets have received a frame and before the network stack does.
    ///
    /// It also runs before the programs that are attached already, since any of them could end the chain.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN; `InvalidInput` for kernels without tcx; `ENODEV` if no
    /// link has this index.
    pub fn attach_ingress(&self, link_index: u32) -> io::Result<Attachment> {
        self.attach(link_index, BPF_TCX_INGRESS, BPF_F_BEFORE)
    }

    /// Attaches an XDP program to a link's driver, until the attachment is dropped. It runs for each received frame
    /// before the rest of the kernel handles the frame.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN; `EOPNOTSUPP` if the driver cannot run programs; `EBUSY` if
    /// the link has a program already; others if the driver cannot run one with the link's settings, such as `ERANGE`
    /// for too large an MTU.
    pub fn attach_xdp(&self, link_index: u32) -> io::Result<Attachment> {
        self.attach(link_index, BPF_XDP, XDP_FLAGS_DRV_MODE)
    }

    fn attach(&self, link_index: u32, attach_type: u32, flags: u32) -> io::Result<Attachment> {
        let request = CreateLink {
            program: self.0.as_raw_fd() as u32,
            target: link_index,
            attach_type,
            flags,
            ..CreateLink::default()
        };
        // SAFETY: `request` has the layout of this command, and contains no pointers.
        unsafe { bpf(BPF_LINK_CREATE, &request) }.map(Attachment)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An attached program. Dropping this detaches it.
#[derive(Debug)]
pub struct Attachment(#[expect(dead_code, reason = "held for its end")] OwnedFd);

/// Drops every frame that a link receives after AF_PACKET sockets have received it, so that the host handles none.
/// Undone when the attachment is dropped.
///
/// # Errors
/// Those of [`Program::load`] and [`Program::attach_ingress`].
pub fn shut_ingress(link_index: u32) -> io::Result<Attachment> {
    let program = [Instruction::result(TC_ACT_SHOT), Instruction::EXIT];
    Program::load(ProgramKind::TrafficControl, &program)?.attach_ingress(link_index)
}

/// Calls bpf(2) with a command that returns a new descriptor.
///
/// # Safety
/// `request` is laid out as the kernel's `union bpf_attr` for the command, and its pointers are valid for the call.
unsafe fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf_call(command, request) }?;
    // SAFETY: the kernel has just opened this descriptor for this call, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
/// As for [`bpf`].
unsafe fn bpf_call<T>(command: libc::c_int, request: &T) -> io::Result<libc::c_int> {
    let request: *const T = request;
    // SAFETY: the kernel reads at most the given number of bytes of `request`; the rest is the caller's promise.
    match unsafe { libc::syscall(libc::SYS_bpf, command, request, size_of::<T>()) } {
        ..0 => Err(io::Error::last_os_error()),
        result => Ok(result as libc::c_int),
    }
}

/// The beginning of `union bpf_attr` for BPF_PROG_LOAD.
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

/// The beginning of `union bpf_attr` for BPF_LINK_CREATE; the fields behind the flags are for tcx.
#[derive(Default)]
#[repr(C)]
struct CreateLink {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

const _: () = assert!(size_of::<CreateLink>() == 32);

/// The number of tries of libbpf.
const LOAD_TRIES: u32 = 5;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
/// Attach before the program given, or before all programs if none is given.
const BPF_F_BEFORE: u32 = 1 << 3;

/// include/uapi/linux/pkt_cls.h.
pub(crate) const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;

/// include/uapi/linux/if_link.h: run in the driver, not in the generic path behind it.
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ingress_program;
    use softclock_testing::lab::Namespace;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    /// Whether a datagram sent over the loopback interface arrives.
    fn one_arrives() -> bool {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let patience = Some(Duration::from_millis(300));
        receiver.set_read_timeout(patience).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sent = sender.send_to(&[1], receiver.local_addr().unwrap());
        assert_eq!(sent.unwrap(), 1);
        receiver.recv(&mut [0]).is_ok()
    }

    /// A program that accepts every packet ends the chain, so the dropping program must be attached before it.
    #[test]
    fn a_program_that_is_there_does_not_keep_frames_from_ours() {
        const LOOPBACK: u32 = 1;
        softclock_testing::require!("ip", "unshare", "nsenter");
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(reason) => softclock_testing::skip!("{reason}"),
        };
        namespace.run("ip link set lo up").unwrap();
        let tried = namespace.inside(|| -> Result<(), String> {
            assert!(one_arrives());
            let accept = [Instruction::result(TC_ACT_OK), Instruction::EXIT];
            let program = Program::load(ProgramKind::TrafficControl, &accept);
            let accepting = program.and_then(|program| program.attach_ingress(LOOPBACK));
            let accepting = accepting.map_err(|error| format!("tcx cannot be used: {error}"))?;
            ingress_program().expect("the probe tells so");
            assert!(one_arrives());
            let shut = shut_ingress(LOOPBACK).unwrap();
            assert!(!one_arrives());
            drop(shut);
            assert!(one_arrives());
            drop(accepting);
            Ok(())
        });
        if let Err(reason) = tried.unwrap() {
            softclock_testing::skip!("{reason}");
        }
    }
}
