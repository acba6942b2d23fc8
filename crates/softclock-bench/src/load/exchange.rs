//! One request and its response.

use std::io;

use softclock::net::TcpStream;

use super::target::Target;

/// A complete response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Whether the connection can be used again.
    pub(super) reusable: bool,
}

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Known(u64),
    Chunked,
    UntilClose,
}

/// The reason for which there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No byte of a response arrived, so the server may not have taken the request.
    Unanswered(io::Error),
    /// The bytes that arrived are not a complete response.
    Broken(io::Error),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unanswered(error) | Failure::Broken(error) => error,
        }
    }
}

/// Sends a request and reads the whole response.
pub(super) async fn ask(
    stream: &TcpStream,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<Answer, Failure> {
    buffer.resize(BUFFER_BYTES, 0);
    let begin = async {
        stream.write_all(request).await?;
        read_some(stream, buffer).await
    };
    let filled = begin.await.map_err(Failure::Unanswered)?;
    let rest = read_rest(stream, buffer, filled).await;
    rest.map_err(Failure::Broken)
}

/// Reads the rest of a response whose beginning is in the buffer.
async fn read_rest(stream: &TcpStream, buffer: &mut [u8], mut filled: usize) -> io::Result<Answer> {
    let (head_bytes, status, length, keeps) = loop {
        if let Some(head) = parse(&buffer[..filled])? {
            break head;
        }
        if filled == buffer.len() {
            return Err(invalid("the head of the response is too long"));
        }
        filled += read_some(stream, &mut buffer[filled..]).await?;
    };
    if keeps && length == Length::UntilClose {
        // The end of the body could not be recognized.
        return Err(invalid("no Content-Length on a persistent connection"));
    }
    if length == Length::Chunked {
        read_chunks(stream, buffer, head_bytes, filled).await?;
        return Ok(Answer {
            status,
            reusable: keeps,
        });
    }
    let received = (filled - head_bytes) as u64;
    let complete = read_body(stream, length, received, buffer).await?;
    Ok(Answer {
        status,
        reusable: complete && keeps,
    })
}

/// Reads at least one byte; the end of the stream is an error.
async fn read_some(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}

/// Reads the rest of the body; returns false if the end of the connection ended it.
async fn read_body(
    stream: &TcpStream,
    length: Length,
    mut received: u64,
    buffer: &mut [u8],
) -> io::Result<bool> {
    loop {
        match length {
            Length::Known(length) if received == length => return Ok(true),
            Length::Known(length) if received > length => {
                return Err(invalid("the body is longer than its Content-Length"));
            }
            _ => {}
        }
        match (stream.read(buffer).await?, length) {
            (0, Length::UntilClose) => return Ok(false),
            (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            (read, _) => received += read as u64,
        }
    }
}

/// Reads a chunked body to its last chunk, which it recognizes by its bytes at the end of a read: requests are not
/// pipelined, so nothing follows it. A body that has the same bytes at the end of a read would be cut short.
async fn read_chunks(
    stream: &TcpStream,
    buffer: &mut [u8],
    head_bytes: usize,
    mut filled: usize,
) -> io::Result<()> {
    let mut begin = head_bytes;
    while !buffer[begin..filled].ends_with(LAST_CHUNK) {
        // Keep the last bytes, because the next read may complete the terminator.
        let kept = (filled - begin).min(LAST_CHUNK.len());
        buffer.copy_within(filled - kept..filled, 0);
        (begin, filled) = (0, kept);
        filled += read_some(stream, &mut buffer[kept..]).await?;
    }
    Ok(())
}

/// Parses a head; returns its length, the status, the framing of the body, and whether the connection persists; `None`
/// while the head is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, u16, Length, bool)>> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let head = match response
        .parse(bytes)
        .map_err(|_| invalid("not an HTTP response"))?
    {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(bytes) => bytes,
    };
    let field = |name: &str| {
        let field = response
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name));
        field.map(|field| field.value.trim_ascii())
    };
    let status = response.code.unwrap_or(0);
    let length = match field("content-length") {
        _ if matches!(status, 204 | 304) => Length::Known(0),
        Some(digits) => Length::Known(
            str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| invalid("the Content-Length is not a number"))?,
        ),
        None if field("transfer-encoding").is_some() => Length::Chunked,
        None => Length::UntilClose,
    };
    let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
    Ok(Some((head, status, length, !closes)))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Opens a connection to the target, without Nagle's algorithm.
pub(super) async fn connect(target: &Target) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

const BUFFER_BYTES: usize = 32 << 10;

/// The last chunk, without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello";
        let head = parse(whole).unwrap().unwrap();
        assert_eq!(head, (whole.len() - 5, 200, Length::Known(12), true));
        assert!(parse(&whole[..20]).unwrap().is_none());
        let closing = b"HTTP/1.1 502 Bad Gateway\r\nconnection: Close\r\n\r\n";
        assert_eq!(parse(closing).unwrap().unwrap().2, Length::UntilClose);
        assert!(!parse(closing).unwrap().unwrap().3);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().unwrap().2, Length::Chunked);
        let empty = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(parse(empty).unwrap().unwrap().2, Length::Known(0));
        assert!(parse(b"SSH-2.0\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
    }
}
