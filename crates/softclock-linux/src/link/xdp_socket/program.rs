//! The XDP program that redirects frames to a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::filter::{self, XdpFilter};
use crate::bpf::{Assembler, Instruction, Program, ProgramKind, SocketMap};

/// Loads a program that redirects the frames that the filter takes to the socket of their queue, and writes the time
/// before each of them if the driver has room for it. The caller attaches the program, and keeps the map as long.
pub(super) fn load<'a>(
    sockets: impl Iterator<Item = (u32, BorrowedFd<'a>)> + Clone,
    filter: &XdpFilter,
    others: Others,
) -> io::Result<(Program, SocketMap)> {
    if filter.is_too_long() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let last = sockets.clone().map(|(queue, _)| queue).max();
    let map = SocketMap::new(last.unwrap_or(0) + 1)?;
    for (queue, socket) in sockets {
        map.set(queue, socket)?;
    }
    let program = Program::load(ProgramKind::Xdp, &instructions(map.as_fd(), filter, others))?;
    Ok((program, map))
}

/// The action for the frames of other queues.
#[derive(Clone, Copy)]
pub(super) enum Others {
    Dropped,
    /// Left to the host, as without the program.
    Passed,
}

/// The program, in C:
///
/// ```c
/// if (!filter(context))
///     return XDP_PASS;
/// if (bpf_xdp_adjust_meta(context, -8) == 0) {
///     u64 now = bpf_ktime_get_ns();
///     u64 *stamp = context->data_meta;
///     if (stamp + 1 <= context->data)
///         *stamp = now;
/// }
/// return bpf_redirect_map(&map, context->rx_queue_index, others);
/// ```
fn instructions(map: BorrowedFd<'_>, filter: &XdpFilter, others: Others) -> Vec<Instruction> {
    // The kernel refuses programs with instructions that are never reached.
    if filter.takes_nothing() {
        return vec![Instruction::set(0, XDP_PASS), Instruction::EXIT];
    }
    let mut program = Assembler::default();
    let (taken, left) = (program.label(), program.label());
    program.extend([Instruction::copy(CONTEXT, 1)]);
    // Before the time is written: the host would get it as metadata of frames that are left to it.
    filter::append(filter, &mut program, taken, left);
    program.place(taken);
    append_stamp(&mut program);
    program.extend(Instruction::load_map(1, map));
    program.extend([
        Instruction::load_u32(2, CONTEXT, CONTEXT_QUEUE),
        Instruction::set(3, others.action()),
        Instruction::call(REDIRECT_MAP),
        Instruction::EXIT,
    ]);
    if *filter != XdpFilter::All {
        program.place(left);
        program.extend([Instruction::set(0, XDP_PASS), Instruction::EXIT]);
    }
    program.finish()
}

/// Appends instructions that write the time before the frame, if the driver has room for it. They expect the context in
/// [`CONTEXT`], preserve `r6` to `r9`, and make pointers to the frame invalid.
pub(super) fn append_stamp(program: &mut Assembler) {
    program.extend([
        Instruction::copy(1, CONTEXT),
        Instruction::set(2, -8),
        Instruction::call(ADJUST_META),
        Instruction::skip_if_not(0, 0, 7),
        Instruction::call(KTIME_GET_NS),
        Instruction::load_u32(2, CONTEXT, CONTEXT_DATA),
        Instruction::load_u32(3, CONTEXT, CONTEXT_DATA_META),
        Instruction::copy(4, 3),
        Instruction::add(4, 8),
        Instruction::skip_if_greater(4, 2, 1),
        Instruction::store_u64(3, 0, 0),
    ]);
}

impl Others {
    const fn action(self) -> i32 {
        match self {
            Self::Dropped => XDP_DROP,
            Self::Passed => XDP_PASS,
        }
    }
}

/// The register that holds the context, a `struct xdp_md`.
pub(super) const CONTEXT: u8 = 6;

/// include/uapi/linux/bpf.h.
const KTIME_GET_NS: i32 = 5;
pub(super) const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
pub(super) const XDP_DROP: i32 = 1;
pub(super) const XDP_PASS: i32 = 2;

/// Offsets of the fields of `struct xdp_md`.
pub(super) const CONTEXT_DATA: i16 = 0;
pub(super) const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_DATA_META: i16 = 8;
pub(super) const CONTEXT_QUEUE: i16 = 16;
