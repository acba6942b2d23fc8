//! BPF instructions (Documentation/bpf/standardization/instruction-set.rst).

use std::os::fd::{AsRawFd, BorrowedFd};

/// An encoded BPF instruction.
///
/// Registers: `r0` holds the result of a call or of the program; `r1` to `r5` are the arguments of a call, which
/// clobbers them; `r6` to `r9` are preserved across calls; `r10` points to the end of the stack of 512 bytes. A program
/// starts with its context in `r1`.
///
/// # Examples
/// ```
/// use softclock_linux::bpf::Instruction;
///
/// // A traffic-control program that drops every packet: `return TC_ACT_SHOT`.
/// let program = [Instruction::result(2), Instruction::EXIT];
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Instruction(u64);

impl Instruction {
    /// `r0 = value`: sets the program's result.
    pub const fn result(value: u32) -> Self {
        Self::set(0, value as i32)
    }

    /// `exit`.
    pub const EXIT: Self = Self::new(0x95, 0, 0, 0, 0);

    /// `to = value`.
    pub const fn set(to: u8, value: i32) -> Self {
        Self::new(0xb7, to, 0, 0, value)
    }

    /// `to = from`.
    pub const fn copy(to: u8, from: u8) -> Self {
        Self::new(0xbf, to, from, 0, 0)
    }

    /// `to += value`.
    pub const fn add(to: u8, value: i32) -> Self {
        Self::new(0x07, to, 0, 0, value)
    }

    /// `to &= value`.
    pub const fn and(to: u8, value: i32) -> Self {
        Self::new(0x57, to, 0, 0, value)
    }

    /// `to <<= bits`.
    pub const fn shift_left(to: u8, bits: i32) -> Self {
        Self::new(0x67, to, 0, 0, bits)
    }

    /// `to += from`.
    pub const fn add_register(to: u8, from: u8) -> Self {
        Self::new(0x0f, to, from, 0, 0)
    }

    /// `to = *(u8 *)(from + offset)`.
    pub const fn load_u8(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x71, to, from, offset, 0)
    }

    /// `to = *(u16 *)(from + offset)`.
    pub const fn load_u16(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x69, to, from, offset, 0)
    }

    /// `to = *(u32 *)(from + offset)`.
    pub const fn load_u32(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// `to = *(u64 *)(from + offset)`.
    pub const fn load_u64(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x79, to, from, offset, 0)
    }

    /// `*(u8 *)(to + offset) = from`.
    pub const fn store_u8(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x73, to, from, offset, 0)
    }

    /// `*(u16 *)(to + offset) = from`.
    pub const fn store_u16(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x6b, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = from`.
    pub const fn store_u32(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x63, to, from, offset, 0)
    }

    /// `*(u64 *)(to + offset) = from`.
    pub const fn store_u64(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x7b, to, from, offset, 0)
    }

    /// `*(u64 *)(to + offset) += from`, atomically.
    pub const fn atomic_add_u64(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0xdb, to, from, offset, 0)
    }

    /// `if (a == value)` skip the next `instructions` instructions.
    pub const fn skip_if(a: u8, value: i32, instructions: i16) -> Self {
        Self::new(0x15, a, 0, instructions, value)
    }

    /// `if (a < value)`, unsigned, skip the next `instructions` instructions.
    pub const fn skip_if_less(a: u8, value: i32, instructions: i16) -> Self {
        Self::new(0xa5, a, 0, instructions, value)
    }

    /// `if (a > 0)`, signed, skip the next `instructions` instructions.
    pub const fn skip_if_positive(a: u8, instructions: i16) -> Self {
        Self::new(0x65, a, 0, instructions, 0)
    }

    /// `if (a != value)` skip the next `instructions` instructions.
    pub const fn skip_if_not(a: u8, value: i32, instructions: i16) -> Self {
        Self::new(0x55, a, 0, instructions, value)
    }

    /// `if (a > b)`, unsigned, skip the next `instructions` instructions.
    pub const fn skip_if_greater(a: u8, b: u8, instructions: i16) -> Self {
        Self::new(0x2d, a, b, instructions, 0)
    }

    /// `if ((u32)a != value)` skip the next `instructions` instructions.
    pub const fn skip_if_not_u32(a: u8, value: u32, instructions: i16) -> Self {
        Self::new(0x56, a, 0, instructions, value as i32)
    }

    /// Skip the next `instructions` instructions.
    pub const fn skip(instructions: i16) -> Self {
        Self::new(0x05, 0, 0, instructions, 0)
    }

    /// The instruction, but skipping this number of instructions.
    pub(crate) const fn skipping(self, instructions: i16) -> Self {
        let [operation, registers, _, _, c, d, e, f] = self.0.to_ne_bytes();
        let [a, b] = instructions.to_ne_bytes();
        Self(u64::from_ne_bytes([operation, registers, a, b, c, d, e, f]))
    }

    /// Calls a helper function of the kernel by its number (bpf-helpers(7)).
    pub const fn call(function: i32) -> Self {
        Self::new(0x85, 0, 0, 0, function)
    }

    /// `to = map`, for the map with this descriptor. Takes the place of two instructions.
    pub fn load_map(to: u8, map: BorrowedFd<'_>) -> [Self; 2] {
        let first = Self::new(0x18, to, PSEUDO_MAP, 0, map.as_raw_fd());
        [first, Self::new(0, 0, 0, 0, 0)]
    }

    const fn new(operation: u8, to: u8, from: u8, offset: i16, value: i32) -> Self {
        let registers = if cfg!(target_endian = "little") {
            from << 4 | to
        } else {
            to << 4 | from
        };
        let [a, b] = offset.to_ne_bytes();
        let [c, d, e, f] = value.to_ne_bytes();
        Self(u64::from_ne_bytes([operation, registers, a, b, c, d, e, f]))
    }
}

/// BPF_PSEUDO_MAP_FD: the value is a descriptor.
const PSEUDO_MAP: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernel_reads_them() {
        let bytes = |instruction: Instruction| instruction.0.to_ne_bytes();
        assert_eq!(bytes(Instruction::EXIT), [0x95, 0, 0, 0, 0, 0, 0, 0]);
        if cfg!(target_endian = "little") {
            let load = Instruction::load_u32(2, 6, 16);
            assert_eq!(bytes(load), [0x61, 0x62, 16, 0, 0, 0, 0, 0]);
            let set = Instruction::set(3, -2);
            assert_eq!(bytes(set), [0xb7, 3, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        }
    }
}
