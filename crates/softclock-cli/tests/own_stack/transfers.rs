//! Large files in both directions, compared byte for byte.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::lab::{Carrier, LARGE, Lab, PATIENCE, content, lab};

/// A web server at the client which returns the body of each request, until the process ends.
pub(crate) fn echo_bodies(lab: &Lab) {
    let listener = lab.client().inside(|| TcpListener::bind("10.78.0.1:8080"));
    let listener = listener.and_then(|listener| listener).expect("a free port");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A proxy that has lost its client ends the connection early.
            thread::spawn(move || drop(echo_body(stream)));
        }
    });
}

fn echo_body(stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(6 * PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// Gets the file of the server of that name, and asserts that it is whole.
pub(crate) fn assert_downloads(lab: &Lab, name: &str) {
    let target = lab.path(&format!("got-{name}"));
    let output = lab.curl(&format!("-o {} @{name}", target.display()));
    assert!(output.status.success(), "{name}: {output:?}");
    let expected = fs::read(lab.path(name)).expect("it is served");
    assert!(
        fs::read(target).expect("it was written") == expected,
        "{name}: wrong bytes"
    );
}

/// Sends the file of that name to the upstream behind the proxy, and asserts that the same comes back.
pub(crate) fn assert_returns(lab: &Lab, name: &str) {
    let (source, target) = (lab.path(name), lab.path(&format!("returned-{name}")));
    let (source, target) = (source.display(), target.display());
    // Without a value, curl does not wait for permission to send.
    let output = lab.curl(&format!("-H Expect: -T {source} -o {target} @{name}"));
    assert!(output.status.success(), "{name}: {output:?}");
    let expected = fs::read(lab.path(name)).expect("it is there");
    let returned = fs::read(lab.path(&format!("returned-{name}"))).expect("it was written");
    assert!(returned == expected, "{name}: wrong bytes");
}

#[test]
fn curl_sends_and_gets_large_files_through_a_proxy() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _proxy = lab.proxy(&[]);
        echo_bodies(&lab);
        assert_returns(&lab, "small");
        assert_returns(&lab, "large");
    }
}

/// Several at a time, each of which has bytes of its own.
#[test]
fn transfers_do_not_mix() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let names = [1, 2, 3, 4].map(|number| format!("file-{number}"));
        for (number, name) in names.iter().enumerate() {
            let bytes = content(LARGE / 4 + number * 1000).split_off(number * 100);
            fs::write(lab.path(name), bytes).expect("a directory");
        }
        let _proxy = lab.proxy(&[]);
        echo_bodies(&lab);
        thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| assert_returns(&lab, name));
            }
        });
    }
}
