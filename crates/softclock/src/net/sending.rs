//! Several datagrams by one call, for carriers that send them one by one.

/// Sends the first of `datagrams`, until one fails. Returns their number, or the error of the first one; that of a
/// later one occurs again in the next call.
pub(crate) fn send_each<T, E>(
    datagrams: impl IntoIterator<Item = T>,
    mut send: impl FnMut(T) -> Result<(), E>,
) -> Result<usize, E> {
    let mut sent = 0;
    for datagram in datagrams {
        match send(datagram) {
            Ok(()) => sent += 1,
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Sends `bytes` as datagrams of `segment_bytes`, the last of which may be shorter, or as one without it. Returns the
/// number of bytes sent, or an error as [`send_each`].
pub(crate) fn send_segments<E>(
    bytes: &[u8],
    segment_bytes: Option<u16>,
    mut send: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<usize, E> {
    let segment = segment_bytes.map_or(bytes.len(), usize::from).max(1);
    if bytes.is_empty() {
        return send(bytes).map(|()| 0);
    }
    let sent = send_each(bytes.chunks(segment), send)?;
    Ok(bytes.len().min(sent * segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A carrier with room for some datagrams.
    fn with_room(mut room: usize, sent: &mut Vec<Vec<u8>>) -> impl FnMut(&[u8]) -> Result<(), ()> {
        move |bytes| {
            room = room.checked_sub(1).ok_or(())?;
            sent.push(bytes.to_vec());
            Ok(())
        }
    }

    #[test]
    fn a_later_error_ends_the_call_without_it() {
        for (room, expected) in [(0, Err(())), (1, Ok(2)), (2, Ok(4)), (3, Ok(5))] {
            let mut sent = Vec::new();
            let result = send_segments(b"abcde", Some(2), with_room(room, &mut sent));
            assert_eq!(result, expected);
            assert_eq!(sent.concat(), b"abcde"[..expected.unwrap_or(0)]);
        }
    }

    #[test]
    fn without_segments_all_is_one_datagram_even_if_empty() {
        for bytes in [&b"abcde"[..], b""] {
            let mut sent = Vec::new();
            let result = send_segments(bytes, None, with_room(9, &mut sent));
            assert_eq!((result, sent), (Ok(bytes.len()), vec![bytes.to_vec()]));
        }
    }
}
