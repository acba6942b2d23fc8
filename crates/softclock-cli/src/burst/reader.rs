//! Reads packets of a capture in large pieces, and keeps at most one block in memory.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use softclock_wire::capture::{CaptureError, Decoded, Decoder, Packet};

/// The reason why a capture could not be read to its end.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// The file ends inside the block that begins at this byte.
    Cut(u64),
    /// The format is violated at this byte.
    Wrong(u64, CaptureError),
}

/// Calls `on_packet` for each packet, and `on_read` with the length of each piece read.
pub(super) fn read(
    mut input: impl Read,
    mut on_read: impl FnMut(usize),
    mut on_packet: impl FnMut(&Packet<'_>),
) -> Result<(), ReadError> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut begin, mut end) = (0, 0);
    let mut decoded_bytes = 0;
    loop {
        let used = match decoder.decode(&buffer[begin..end]) {
            Ok(Decoded::Packet(packet, used)) => {
                on_packet(&packet);
                used
            }
            Ok(Decoded::Other(used)) => used,
            Ok(Decoded::More(needed)) => {
                // Move the incomplete block to the front, so that the buffer grows only for blocks longer than itself.
                buffer.copy_within(begin..end, 0);
                (begin, end) = (0, end - begin);
                if buffer.len() < needed {
                    buffer.resize(needed, 0);
                }
                match read_some(&mut input, &mut buffer[end..]).map_err(ReadError::Io)? {
                    // The input has ended: inside a block if bytes are left over.
                    0 if end > 0 => return Err(ReadError::Cut(decoded_bytes)),
                    0 if decoded_bytes == 0 => return Err(ReadError::Empty),
                    0 => return Ok(()),
                    read => {
                        on_read(read);
                        end += read;
                    }
                }
                0
            }
            Err(error) => return Err(ReadError::Wrong(decoded_bytes, error)),
        };
        begin += used;
        decoded_bytes += used as u64;
    }
}

fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the file is empty"),
            Self::Cut(at) => write!(f, "cut off within the block that begins at byte {at}"),
            Self::Wrong(0, error) => error.fmt(f),
            Self::Wrong(at, error) => write!(f, "at byte {at}: {error}"),
        }
    }
}

/// Bytes per read; fits a processor's second-level cache.
const PIECE_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one byte at a time.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn capture(data_bytes: usize) -> Vec<u8> {
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 1 << 22, 1]);
        for second in 0..3 {
            bytes.extend(words(&[second, 0, data_bytes as u32, 1500]));
            bytes.extend(vec![0; data_bytes]);
        }
        bytes
    }

    fn packets(input: impl Read) -> (u32, Result<(), ReadError>) {
        let mut packets = 0;
        let result = read(input, |_| (), |_| packets += 1);
        (packets, result)
    }

    #[test]
    fn pieces_of_any_size_do() {
        let small = capture(10);
        assert!(matches!(packets(Trickle(&small)), (3, Ok(()))));
        let large = capture(PIECE_BYTES + 1);
        assert!(matches!(packets(large.as_slice()), (3, Ok(()))));
    }

    #[test]
    fn ends_are_told() {
        let whole = capture(10);
        assert!(matches!(packets(&whole[..0]), (0, Err(ReadError::Empty))));
        assert!(matches!(packets(&whole[..24]), (0, Ok(()))));
        let cut = packets(&whole[..60]);
        assert!(matches!(cut, (1, Err(ReadError::Cut(50)))), "{cut:?}");
    }
}
