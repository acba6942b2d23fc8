//! The XDP program that demultiplexes frames and discards those of full channels.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use softclock_wire::packet::{IPV4, IPV6, TCP, UDP};

use super::super::filter::{
    self, DATA, END, ETHER_TYPE, ETHERNET, MORE_OR_OFFSET, PROTOCOL, VALUE, XdpFilter, check_length,
};
use super::super::program::{
    CONTEXT, CONTEXT_DATA, CONTEXT_DATA_END, CONTEXT_QUEUE, REDIRECT_MAP, XDP_DROP, XDP_PASS,
    append_stamp,
};
use super::credits::{CREDITS, Credits, DELIVERED, DISCARDED, Peers};
use super::key::{self, EndpointKey};
use super::{
    Account, COMMON_CHANNELS, CONTROL, FRAGMENTS, IndexMap, SEGMENTS, Slot, SocketMap, UNCLAIMED,
    XdpChannels,
};
use crate::bpf::{Assembler, Instruction, Label, Program, ProgramKind};

/// The maps of the program.
pub(super) struct Maps {
    /// The index of the channel of each endpoint.
    pub(super) keys: IndexMap<{ EndpointKey::BYTES }>,
    /// The preferred peers, whose SYNs have a reserve of their own.
    pub(super) peers: IndexMap<{ key::PEER_BYTES }>,
    /// The credits and counters of each channel.
    pub(super) credits: Arc<Credits>,
    /// The socket of each channel.
    sockets: SocketMap,
}

impl Maps {
    /// Creates empty maps for this number of channels of endpoints, and this number of peers.
    pub(super) fn new(channels: u32, peers: u32) -> io::Result<Self> {
        let accounts = channels.checked_add(COMMON_CHANNELS as u32);
        let accounts = accounts.ok_or(io::ErrorKind::InvalidInput)?;
        let keys = accounts.checked_mul(XdpChannels::MOST_KEYS as u32);
        Ok(Self {
            keys: IndexMap::new(keys.ok_or(io::ErrorKind::InvalidInput)?)?,
            // The kernel refuses a map without room.
            peers: IndexMap::new(peers.max(1))?,
            credits: Arc::new(Credits::new(accounts)?),
            sockets: SocketMap::new(accounts)?,
        })
    }

    /// Makes the program deliver the frames of a channel to its socket.
    pub(super) fn connect(&self, slot: &Slot) -> io::Result<()> {
        self.sockets.set(slot.account.0, slot.socket.as_fd())
    }
}

/// Loads the program for the frames of this queue that the filter takes.
pub(super) fn load(maps: &Maps, queue: u32, filter: &XdpFilter) -> io::Result<Program> {
    if filter.is_too_long() || filter.takes_nothing() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Program::load(ProgramKind::Xdp, &instructions(maps, queue, filter))
}

/// The program, in C:
///
/// ```c
/// if (context->rx_queue_index != queue || !filter(context))
///     return XDP_PASS;
/// struct key key;
/// struct peer peer; // The source.
/// u32 index, *found;
/// enum kind kind = OTHER;
/// switch (read_key(context, &key, &peer, &kind)) {
/// case IS_KEY:
///     found = bpf_map_lookup_elem(&keys, &key);
///     index = found ? *found : kind == SEGMENT ? SEGMENTS : UNCLAIMED;
///     break;
/// case IS_FRAGMENT: index = FRAGMENTS; break;
/// case IS_OTHER: index = CONTROL; break;
/// }
/// struct account *account = bpf_map_lookup_elem(&accounts, &index);
/// if (!account)
///     return XDP_DROP;
/// s64 left = account->credits;
/// if (kind == SYN && left + account->reserve > 0)
///     left += account->reserve;
/// else if (kind == SYN)
///     left = bpf_map_lookup_elem(&peers, &peer) ? left + account->preferred_reserve : 0;
/// if (left <= 0) {
///     __sync_fetch_and_add(&account->discarded, 1);
///     return XDP_DROP;
/// }
/// __sync_fetch_and_add(&account->credits, -1);
/// __sync_fetch_and_add(&account->delivered, 1);
/// write_stamp(context);
/// return bpf_redirect_map(&sockets, index, XDP_DROP);
/// ```
///
/// The frames of a queue are handled one after the other, so no other run of the program takes a credit between the
/// comparison and the subtraction.
fn instructions(maps: &Maps, queue: u32, filter: &XdpFilter) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let [taken, left, found, dropped] = [(); 4].map(|()| program.label());
    let [control, fragment, unclaimed, segment] = [(); 4].map(|()| program.label());
    let missed = program.label();
    program.extend([
        Instruction::copy(CONTEXT, 1),
        Instruction::load_u32(VALUE, CONTEXT, CONTEXT_QUEUE),
    ]);
    program.jump(Instruction::skip_if_not_u32(VALUE, queue, 0), left);
    filter::append(filter, &mut program, taken, left);
    program.place(taken);

    append_key(&mut program, control, fragment);
    program.extend(Instruction::load_map(1, maps.keys.as_fd()));
    append_lookup(&mut program, KEY);
    program.jump(Instruction::skip_if(0, 0, 0), missed);
    program.extend([Instruction::load_u32(INDEX, 0, 0)]);
    program.jump(Instruction::skip(0), found);
    program.place(missed);
    program.jump(Instruction::skip_if(KIND, KIND_SEGMENT, 0), segment);
    program.jump(Instruction::skip(0), unclaimed);
    let common = [
        (control, CONTROL),
        (fragment, FRAGMENTS),
        (unclaimed, UNCLAIMED),
        (segment, SEGMENTS),
    ];
    for (label, Account(index)) in common {
        program.place(label);
        program.extend([Instruction::set(INDEX, index as i32)]);
        program.jump(Instruction::skip(0), found);
    }
    program.place(found);

    append_charge(&mut program, maps, dropped);
    append_stamp(&mut program);
    program.extend(Instruction::load_map(1, maps.sockets.as_fd()));
    program.extend([
        Instruction::copy(2, INDEX),
        Instruction::set(3, XDP_DROP),
        Instruction::call(REDIRECT_MAP),
        Instruction::EXIT,
    ]);
    program.place(dropped);
    program.extend([Instruction::set(0, XDP_DROP), Instruction::EXIT]);
    program.place(left);
    program.extend([Instruction::set(0, XDP_PASS), Instruction::EXIT]);
    program.finish()
}

/// Writes the keys of the endpoint and of the peer of a whole TCP segment or UDP datagram to the stack, and its kind to
/// [`KIND`]; jumps with fragments to `fragment` and with other frames to `control`.
fn append_key(program: &mut Assembler, control: Label, fragment: Label) {
    let [v6, has_port, complete] = [(); 3].map(|()| program.label());
    program.extend([
        Instruction::set(KIND, KIND_OTHER),
        Instruction::load_u32(DATA, CONTEXT, CONTEXT_DATA),
        Instruction::load_u32(END, CONTEXT, CONTEXT_DATA_END),
    ]);
    check_length(program, ETHERNET, control);
    program.extend([Instruction::load_u16(VALUE, DATA, ETHER_TYPE)]);
    let ether_type = |wanted: u16| Instruction::skip_if_not_u32(VALUE, wanted.to_be().into(), 0);
    program.jump(ether_type(IPV4), v6);
    append_v4(program, control, fragment);
    program.jump(Instruction::skip(0), has_port);
    program.place(v6);
    program.jump(ether_type(IPV6), control);
    append_v6(program, control, fragment);
    program.place(has_port);
    program.extend([
        Instruction::store_u16(FRAME, KEY + key::PORT as i16, VALUE),
        Instruction::store_u8(FRAME, KEY + key::PROTOCOL as i16, PROTOCOL),
    ]);
    program.jump(Instruction::skip_if(PROTOCOL, UDP.into(), 0), complete);
    program.jump(
        Instruction::skip_if_not_u32(PROTOCOL, TCP.into(), 0),
        control,
    );
    // A segment whose flags are cut off stays of the other kind.
    check_length(program, ETHERNET + FLAGS + 1, complete);
    program.extend([
        Instruction::load_u8(VALUE, DATA, ETHERNET + FLAGS),
        Instruction::and(VALUE, SYN | ACK),
        Instruction::set(KIND, KIND_SYN),
    ]);
    program.jump(Instruction::skip_if(VALUE, SYN, 0), complete);
    program.extend([Instruction::set(KIND, KIND_SEGMENT)]);
    program.place(complete);
}

/// Writes the addresses of a packet of IPv4 to the keys, reads the protocol and the destination port, and moves
/// [`DATA`] on by the length of the header.
fn append_v4(program: &mut Assembler, control: Label, fragment: Label) {
    check_length(program, ETHERNET + 20, control);
    program.extend([
        Instruction::load_u16(VALUE, DATA, ETHERNET + 6),
        Instruction::and(VALUE, u16::to_be(MORE_OR_OFFSET).into()),
    ]);
    program.jump(Instruction::skip_if_not_u32(VALUE, 0, 0), fragment);
    program.extend([
        Instruction::load_u32(VALUE, DATA, ETHERNET + 12),
        Instruction::store_u32(FRAME, PEER, VALUE),
        Instruction::load_u32(VALUE, DATA, ETHERNET + 16),
        Instruction::store_u32(FRAME, KEY, VALUE),
        Instruction::set(VALUE, 0),
        Instruction::store_u32(FRAME, PEER + 4, VALUE),
        Instruction::store_u32(FRAME, KEY + 4, VALUE),
        Instruction::store_u64(FRAME, KEY + 8, VALUE),
        Instruction::set(VALUE, 4),
        Instruction::store_u32(FRAME, PEER + key::PEER_VERSION as i16, VALUE),
        Instruction::store_u8(FRAME, KEY + key::VERSION as i16, VALUE),
        Instruction::load_u8(PROTOCOL, DATA, ETHERNET + 9),
        // The transport header begins behind the options: the first byte has the length of the header in words.
        Instruction::load_u8(VALUE, DATA, ETHERNET),
        Instruction::and(VALUE, 0x0f),
        Instruction::shift_left(VALUE, 2),
    ]);
    program.jump(Instruction::skip_if_less(VALUE, 20, 0), control);
    program.extend([Instruction::add_register(DATA, VALUE)]);
    check_length(program, ETHERNET + 4, control);
    program.extend([Instruction::load_u16(VALUE, DATA, ETHERNET + 2)]);
}

/// The same for a packet of IPv6 without extension headers: with them, the protocol is another.
fn append_v6(program: &mut Assembler, control: Label, fragment: Label) {
    check_length(program, ETHERNET + 44, control);
    program.extend([Instruction::load_u8(PROTOCOL, DATA, ETHERNET + 6)]);
    program.jump(Instruction::skip_if(PROTOCOL, FRAGMENT, 0), fragment);
    let copy = |from, to| {
        [
            Instruction::load_u32(VALUE, DATA, ETHERNET + from),
            Instruction::store_u32(FRAME, to, VALUE),
        ]
    };
    for word in (0..8).step_by(4) {
        program.extend(copy(8 + word, PEER + word));
    }
    for word in (0..16).step_by(4) {
        program.extend(copy(24 + word, KEY + word));
    }
    program.extend([
        Instruction::set(VALUE, 6),
        Instruction::store_u32(FRAME, PEER + key::PEER_VERSION as i16, VALUE),
        Instruction::store_u8(FRAME, KEY + key::VERSION as i16, VALUE),
        Instruction::add(DATA, 40),
        Instruction::load_u16(VALUE, DATA, ETHERNET + 2),
    ]);
}

/// Takes a credit of the channel with this [`INDEX`] and counts the frame; jumps to `dropped` if there is none, or none
/// above its reserve for a SYN.
fn append_charge(program: &mut Assembler, maps: &Maps, dropped: Label) {
    let [any, preferred, discard, deliver] = [(); 4].map(|()| program.label());
    let add = |word: usize, value| {
        [
            Instruction::set(1, value),
            Instruction::atomic_add_u64(ACCOUNT, at(word), 1),
        ]
    };
    let above_reserve = |of: Peers| {
        [
            Instruction::load_u64(1, ACCOUNT, at(CREDITS)),
            Instruction::load_u64(2, ACCOUNT, at(of.reserve())),
            Instruction::add_register(1, 2),
        ]
    };
    program.extend([Instruction::store_u32(FRAME, INDEX_ON_STACK, INDEX)]);
    program.extend(Instruction::load_map(1, maps.credits.as_fd()));
    append_lookup(program, INDEX_ON_STACK);
    // The index is always within the array, but the kernel's verifier does not know that.
    program.jump(Instruction::skip_if(0, 0, 0), dropped);
    program.extend([Instruction::copy(ACCOUNT, 0)]);
    program.jump(Instruction::skip_if_not(KIND, KIND_SYN, 0), any);
    program.extend(above_reserve(Peers::Others));
    program.jump(Instruction::skip_if_positive(1, 0), deliver);
    program.extend(Instruction::load_map(1, maps.peers.as_fd()));
    append_lookup(program, PEER);
    program.jump(Instruction::skip_if_not(0, 0, 0), preferred);
    program.jump(Instruction::skip(0), discard);
    program.place(preferred);
    program.extend(above_reserve(Peers::Preferred));
    program.jump(Instruction::skip_if_positive(1, 0), deliver);
    program.jump(Instruction::skip(0), discard);
    program.place(any);
    program.extend([Instruction::load_u64(1, ACCOUNT, at(CREDITS))]);
    program.jump(Instruction::skip_if_positive(1, 0), deliver);
    program.place(discard);
    program.extend(add(DISCARDED, 1));
    program.jump(Instruction::skip(0), dropped);
    program.place(deliver);
    program.extend(add(CREDITS, -1));
    program.extend(add(DELIVERED, 1));
}

/// Looks up the key at this offset of the stack, in the map of `r1`: `r0` points to the value, or is 0.
fn append_lookup(program: &mut Assembler, key: i16) {
    program.extend([
        Instruction::copy(2, FRAME),
        Instruction::add(2, key.into()),
        Instruction::call(MAP_LOOKUP_ELEM),
    ]);
}

/// The offset of a word of an account.
const fn at(word: usize) -> i16 {
    8 * word as i16
}

/// The registers: the end of the stack, the index of the channel, which follows the protocol in its register, the kind of
/// the frame, and the account of the channel.
const FRAME: u8 = 10;
const INDEX: u8 = PROTOCOL;
const KIND: u8 = 8;
const ACCOUNT: u8 = 9;

/// The kinds of frames: a SYN opens a connection, so it has no ACK; a segment is any other of TCP.
const KIND_OTHER: i32 = 0;
const KIND_SEGMENT: i32 = 1;
const KIND_SYN: i32 = 2;

/// The offset of the flags in the header of TCP, and two of them (RFC 9293, 3.1).
const FLAGS: i16 = 13;
const SYN: i32 = 0x02;
const ACK: i32 = 0x10;

/// The offsets on the stack of the keys of a peer and of an endpoint, aligned for their words, and of an index.
const PEER: i16 = -40;
const KEY: i16 = -24;
const INDEX_ON_STACK: i16 = -4;

const _: () = assert!(PEER + key::PEER_BYTES as i16 <= KEY);
const _: () = assert!(KEY + EndpointKey::BYTES as i16 <= INDEX_ON_STACK);

/// The number of the fragment header of IPv6 (RFC 8200, 4.5).
const FRAGMENT: i32 = 44;

/// include/uapi/linux/bpf.h.
const MAP_LOOKUP_ELEM: i32 = 1;
