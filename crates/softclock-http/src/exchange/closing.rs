//! Closes an HTTP/1 connection: sends a last response if one is due, and lets it reach the client.
//!
//! A client whose upload is refused must not see a broken connection in place of the 405. So when more input may
//! arrive, this module first shuts down the sending side, and then reads and discards input for a while ([`Linger`]).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::SystemTime;

use http::StatusCode;

use crate::exchange::linger::{self, Linger};
use crate::exchange::stream::{End, Ending};
use crate::net::late_timer::timeout;
use crate::net::socket::Socket;

/// A last response, built without hyper, for a request that hyper has not seen.
struct LastWord {
    status: StatusCode,
    sentence: &'static str,
    is_head: bool,
}

impl LastWord {
    /// Returns the response that is due at `end`, after the responses to all earlier requests; `None` if none is.
    fn at(end: End) -> Option<Self> {
        match end {
            End::Refused { fault, is_head } => Some(Self {
                status: fault.status(),
                sentence: fault.sentence(),
                is_head,
            }),
            End::SlowHead => Some(Self {
                status: StatusCode::REQUEST_TIMEOUT,
                sentence: "the request took too long.",
                is_head: false,
            }),
            End::Closed
            | End::Left
            | End::BrokenBody
            | End::Silent
            | End::Stuck
            | End::CutShort
            | End::Pause => None,
        }
    }

    /// Formats the whole response, with the date `now`.
    fn bytes(&self, now: SystemTime) -> Vec<u8> {
        let page = format!("{}: {}\n", self.status, self.sentence);
        let head = format!(
            "HTTP/1.1 {}\r\n\
             server: softclock\r\n\
             content-type: text/plain; charset=utf-8\r\n\
             x-content-type-options: nosniff\r\n\
             content-length: {}\r\n\
             connection: close\r\n\
             date: {}\r\n\r\n",
            self.status,
            page.len(),
            httpdate::fmt_http_date(now),
        );
        let mut bytes = head.into_bytes();
        if !self.is_head {
            bytes.extend_from_slice(page.as_bytes());
        }
        bytes
    }
}

/// The error of a client that read none, or too little, of its responses.
#[derive(Debug)]
pub(crate) struct Stuck;

/// Sends the last response, if one is due, and closes the connection once the kernel has taken all output. Until then a
/// paced connection keeps its descriptor and counts against the limit of connections. Calls `on_refused` with the
/// status of the last response.
///
/// # Errors
/// [`Stuck`] if the client stopped reading; the connection is then reset.
pub(crate) async fn close<S: Socket>(
    mut ending: Ending<S>,
    on_refused: impl FnOnce(StatusCode),
) -> Result<(), Stuck> {
    // The socket was given up.
    if ending.end == Some(End::CutShort) {
        return Ok(());
    }
    let mut result = Err(Stuck);
    if ending.end != Some(End::Stuck) {
        result = sent(&mut ending).await;
    }
    if result.is_ok() {
        // The responses before it are sent, so that the last one follows in order.
        say_last_word(&mut ending, on_refused).await;
        result = sent(&mut ending).await;
    }
    if result.is_err() {
        ending.socket.give_up();
    }
    result
}

/// Waits until the kernel has taken all output, within the timeouts for a client that reads slowly.
async fn sent<S: Socket>(ending: &mut Ending<S>) -> Result<(), Stuck> {
    let Ending {
        socket, patience, ..
    } = ending;
    poll_fn(|cx| match socket.poll_sent(cx) {
        // A failed socket has no output left.
        Poll::Ready(_) => Poll::Ready(Ok(())),
        Poll::Pending => patience.poll_blocked(socket, cx).map(|()| Err(Stuck)),
    })
    .await
}

/// Sends the last response, shuts down the sending side, and discards input so that the client can read the response.
async fn say_last_word<S: Socket>(ending: &mut Ending<S>, on_refused: impl FnOnce(StatusCode)) {
    let end = ending.end;
    let socket = &mut ending.socket;
    let last_word = end.filter(|_| ending.end_was_read).and_then(LastWord::at);
    // hyper failed, most likely because the connection is lost: nothing can be sent.
    if last_word.is_none() && !ending.shut_down {
        return;
    }
    if let Some(word) = &last_word {
        on_refused(word.status);
        tracing::debug!(
            status = word.status.as_u16(),
            reason = word.sentence,
            "refused"
        );
        let said = timeout(
            linger::LIMIT,
            write_all(socket, &word.bytes(SystemTime::now())),
        )
        .await;
        if !matches!(said, Ok(Ok(()))) {
            return;
        }
    }
    // These ends leave input unread, also where no last response was due because an earlier request ended the
    // connection.
    let input_remains = matches!(
        end,
        Some(End::Refused { .. } | End::SlowHead | End::BrokenBody | End::Left)
    );
    let more_to_come = input_remains || ending.mid_request;
    // With TLS, this may wait until the client has read buffered records.
    let shut_down = timeout(linger::LIMIT, shut_down(socket)).await;
    // A client that pipelines does not know yet that its next requests will not be answered. A close would reset the
    // connection when they arrive, and lose responses that the client has not read yet.
    let may_come = end.is_none() && (ending.had_body || has_more(socket).await);
    if matches!(shut_down, Ok(Ok(()))) && (more_to_come || may_come) {
        let silence = ending.patience.body_limit().unwrap_or(linger::LIMIT);
        let mut linger = Linger::new(MOST_BYTES, silence, softclock::now());
        poll_fn(|cx| linger.poll(socket, cx)).await;
    }
}

async fn write_all<S: Socket>(socket: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *socket).poll_write(cx, bytes)).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

async fn shut_down<S: Socket>(socket: &mut S) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut *socket).poll_shutdown(cx)).await
}

/// Returns whether unread bytes have arrived. Discards up to [`DISCARD_BYTES`] of them.
async fn has_more<S: Socket>(socket: &mut S) -> bool {
    poll_fn(|cx| {
        let received = socket.poll_receive(cx, &mut [0; DISCARD_BYTES]);
        Poll::Ready(matches!(received, Poll::Ready(Ok(n)) if n > 0))
    })
    .await
}

/// The most input that is discarded: the part of a refused upload that is under way when its client reads the response.
const MOST_BYTES: usize = 4 << 20;

/// The size of the read that looks for more input.
const DISCARD_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::head::Fault;

    #[test]
    fn last_words_are_whole_responses() {
        let end = End::Refused {
            fault: Fault::UnknownCoding,
            is_head: false,
        };
        let bytes = LastWord::at(end).unwrap().bytes(SystemTime::UNIX_EPOCH);
        let text = String::from_utf8(bytes).unwrap();
        let (head, page) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 501 Not Implemented\r\n"),
            "{head}"
        );
        assert!(head.contains(&format!("content-length: {}\r\n", page.len())));
        assert!(head.contains("\r\nconnection: close\r\n"));
        assert!(head.ends_with("date: Thu, 01 Jan 1970 00:00:00 GMT"));
    }

    #[test]
    fn to_head_requests_without_a_page() {
        let end = End::Refused {
            fault: Fault::Host,
            is_head: true,
        };
        let bytes = LastWord::at(end).unwrap().bytes(SystemTime::UNIX_EPOCH);
        assert!(bytes.ends_with(b"GMT\r\n\r\n"));
    }
}
