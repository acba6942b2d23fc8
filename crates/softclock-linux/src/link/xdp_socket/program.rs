//! The XDP program that redirects the frames of a queue to a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::bpf::{Instruction, Program, ProgramKind, SocketMap};

/// Loads a program that redirects the frames of `queue` to the socket, and writes the time before each frame if the
/// driver has room for it. The caller attaches the program, and keeps the map as long.
pub(super) fn load(
    socket: BorrowedFd<'_>,
    queue: u32,
    others: Others,
) -> io::Result<(Program, SocketMap)> {
    let map = SocketMap::new(queue + 1)?;
    map.set(queue, socket)?;
    let program = Program::load(ProgramKind::Xdp, &instructions(map.as_fd(), others))?;
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
/// if (bpf_xdp_adjust_meta(context, -8) == 0) {
///     u64 now = bpf_ktime_get_ns();
///     u64 *stamp = context->data_meta;
///     if (stamp + 1 <= context->data)
///         *stamp = now;
/// }
/// return bpf_redirect_map(&map, context->rx_queue_index, others);
/// ```
fn instructions(map: BorrowedFd<'_>, others: Others) -> Vec<Instruction> {
    let stamp = [
        Instruction::copy(6, 1),
        Instruction::set(2, -8),
        Instruction::call(ADJUST_META),
        Instruction::skip_if_not(0, 0, 7),
        Instruction::call(KTIME_GET_NS),
        Instruction::load_u32(2, 6, CONTEXT_DATA),
        Instruction::load_u32(3, 6, CONTEXT_DATA_META),
        Instruction::copy(4, 3),
        Instruction::add(4, 8),
        Instruction::skip_if_greater(4, 2, 1),
        Instruction::store_u64(3, 0, 0),
    ];
    let redirect = [
        Instruction::load_u32(2, 6, CONTEXT_QUEUE),
        Instruction::set(3, others.action()),
        Instruction::call(REDIRECT_MAP),
        Instruction::EXIT,
    ];
    [&stamp[..], &Instruction::load_map(1, map), &redirect].concat()
}

impl Others {
    const fn action(self) -> i32 {
        match self {
            Self::Dropped => XDP_DROP,
            Self::Passed => XDP_PASS,
        }
    }
}

/// include/uapi/linux/bpf.h.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// Offsets of the fields of `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_META: i16 = 8;
const CONTEXT_QUEUE: i16 = 16;
