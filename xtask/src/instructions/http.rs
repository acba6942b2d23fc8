//! A client that asks one request after another, and an upstream that answers them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::quiescence::Quiescence;

/// How connections are used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Connections {
    Kept,
    OneEach,
}

/// Makes so many requests, each after the response to the one before and when the server waits.
pub(super) fn request(
    server: SocketAddr,
    path: &str,
    requests: u32,
    connections: Connections,
    server_waits: &Quiescence,
) -> io::Result<()> {
    let field = match connections {
        Connections::Kept => "",
        Connections::OneEach => "Connection: close\r\n",
    };
    let head = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{field}\r\n");
    let mut stream = connect(server)?;
    for number in 0..requests {
        server_waits.wait();
        if number > 0 && connections == Connections::OneEach {
            stream = connect(server)?;
            server_waits.wait();
        }
        stream.write_all(head.as_bytes())?;
        read_response(&mut stream)?;
        if connections == Connections::OneEach && stream.read(&mut [0])? > 0 {
            return Err(io::Error::other("more than the response"));
        }
    }
    Ok(())
}

/// Listens, answers each request for `/BYTES` with as many when the proxy waits, and keeps connections, in threads that
/// end with the process.
pub(super) fn upstream(proxy_waits: &Quiescence) -> Result<SocketAddr, String> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(|error| format!("upstream: {error}"))?;
    let address = listener.local_addr();
    let proxy_waits = proxy_waits.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let proxy_waits = proxy_waits.clone();
            thread::spawn(move || {
                // An error is the proxy's end.
                let _ = answer(stream, &proxy_waits);
            });
        }
    });
    address.map_err(|error| format!("upstream: {error}"))
}

fn answer(mut stream: TcpStream, proxy_waits: &Quiescence) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let (head, _) = read_head(&mut stream)?;
        let bytes = head
            .split(['/', ' '])
            .find_map(|word| word.parse::<usize>().ok());
        let bytes = bytes.unwrap_or(0);
        let mut response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n"
        )
        .into_bytes();
        response.resize(response.len() + bytes, b'x');
        proxy_waits.wait();
        stream.write_all(&response)?;
    }
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Reads a response that has to be a success of stated length.
fn read_response(stream: &mut TcpStream) -> io::Result<()> {
    let (head, begun) = read_head(stream)?;
    let length = |line: &str| -> Option<usize> {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    };
    let length = head.lines().find_map(length);
    let left = length.and_then(|length| length.checked_sub(begun));
    match left {
        Some(left) if head.starts_with("HTTP/1.1 200 ") => stream.read_exact(&mut vec![0; left]),
        _ => Err(io::Error::other(format!("unexpected response: {head}"))),
    }
}

/// The head of a message, and how many bytes of its body came with it.
fn read_head(stream: &mut TcpStream) -> io::Result<(String, usize)> {
    let mut buffer = Vec::new();
    loop {
        let before = buffer.len();
        buffer.resize(before + READ_BYTES, 0);
        let read = stream.read(&mut buffer[before..])?;
        buffer.truncate(before + read);
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            let begun = buffer.len() - (end + 4);
            buffer.truncate(end);
            return Ok((String::from_utf8_lossy(&buffer).into_owned(), begun));
        }
    }
}

const READ_BYTES: usize = 16 << 10;

/// For a server under callgrind.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_understands_the_upstream() {
        let nothing = Quiescence::default();
        let address = upstream(&nothing).unwrap();
        request(address, "/6144", 3, Connections::Kept, &nothing).unwrap();
        request(address, "/0", 1, Connections::Kept, &nothing).unwrap();
    }
}
