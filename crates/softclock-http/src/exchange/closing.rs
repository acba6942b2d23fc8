//! The end of a connection: a last word if one is due, and a close that lets it arrive.
//!
//! A socket that is closed with unread data resets the connection, and a reset may overtake the response in the
//! client's kernel: who uploads something that we refuse would see a broken connection in place of the 405. So a close
//! with more to come ends our side first and discards what still comes (RFC 9112, section 9.6).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::StatusCode;

use crate::exchange::stream::{End, Ending};
use crate::net::late_timer::{LateTimer, timeout};
use crate::net::socket::Socket;

/// A response that is made without hyper.
struct LastWord {
    status: StatusCode,
    sentence: &'static str,
    is_head: bool,
}

impl LastWord {
    /// What to say at `end`, once all requests before it are answered.
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
            End::Closed | End::Left | End::BrokenBody | End::Silent | End::Stuck | End::Pause => {
                None
            }
        }
    }

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

/// The client took nothing, or too little, of what was to be sent to it.
#[derive(Debug)]
pub(crate) struct Stuck;

/// Says the last word, and closes, once the kernel has all that was written: until then a paced connection holds its
/// descriptor, and so its place. `on_refused` is told the status of a request that hyper has not seen.
pub(crate) async fn close<S: Socket>(
    mut ending: Ending<S>,
    on_refused: impl FnOnce(StatusCode),
) -> Result<(), Stuck> {
    let mut result = Err(Stuck);
    if ending.end != Some(End::Stuck) {
        result = sent(&mut ending).await;
    }
    if result.is_ok() {
        say_last_word(&mut ending, on_refused).await;
        result = sent(&mut ending).await;
    }
    if result.is_err() {
        ending.socket.give_up();
    }
    result
}

/// Waits until the kernel has all that was written, as long as the client is waited for.
async fn sent<S: Socket>(ending: &mut Ending<S>) -> Result<(), Stuck> {
    let Ending {
        socket, patience, ..
    } = ending;
    poll_fn(|cx| match socket.poll_sent(cx) {
        // After an error nothing is left.
        Poll::Ready(_) => Poll::Ready(Ok(())),
        Poll::Pending => patience.poll_blocked(socket, cx).map(|()| Err(Stuck)),
    })
    .await
}

/// Says the last word, ends our side, and lets the client read it.
async fn say_last_word<S: Socket>(ending: &mut Ending<S>, on_refused: impl FnOnce(StatusCode)) {
    let end = ending.end;
    let socket = &mut ending.socket;
    let last_word = end.filter(|_| ending.end_was_read).and_then(LastWord::at);
    // After an error there is no use in being polite.
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
        let said = timeout(LINGER, write_all(socket, &word.bytes(SystemTime::now()))).await;
        if !matches!(said, Ok(Ok(()))) {
            return;
        }
    }
    // A refused head gets no last word if an earlier request ended the connection; more of it may come all the same.
    let input_remains = matches!(
        end,
        Some(End::Refused { .. } | End::SlowHead | End::BrokenBody | End::Left)
    );
    let more_to_come = input_remains || ending.mid_request;
    // With TLS this may wait for the client to take what was written.
    let shut_down = timeout(LINGER, shut_down(socket)).await;
    // A client that pipelines does not know yet that its next requests get no answer. A close would reset the connection
    // when they arrive, and responses that the client has not taken yet would be lost.
    let may_come = end.is_none() && (ending.had_body || has_more(socket).await);
    if matches!(shut_down, Ok(Ok(()))) && (more_to_come || may_come) {
        let silence = ending.patience.body_limit().unwrap_or(LINGER);
        let _ = timeout(LINGER, discard(socket, silence)).await;
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

/// Whether bytes have arrived that were not read; discards some of them.
async fn has_more<S: Socket>(socket: &mut S) -> bool {
    poll_fn(|cx| {
        let received = socket.poll_receive(cx, &mut [0; DISCARD_BYTES]);
        Poll::Ready(matches!(received, Poll::Ready(Ok(n)) if n > 0))
    })
    .await
}

/// Reads until the client has closed its side, is silent for too long, or does not listen.
async fn discard<S: Socket>(socket: &mut S, silence: Duration) {
    let mut timer = LateTimer::default();
    let mut deadline = softclock::now() + silence;
    let mut discarded = 0;
    poll_fn(|cx| {
        loop {
            let received = socket.poll_receive(cx, &mut [0; DISCARD_BYTES]);
            let now = softclock::now();
            match received {
                Poll::Ready(Ok(n)) if n > 0 && discarded < LINGER_BYTES => discarded += n,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return timer.poll_until(deadline, now, cx),
            }
            deadline = now + silence;
        }
    })
    .await;
}

/// Long enough for a response to cross the world and for its reader to notice.
const LINGER: Duration = Duration::from_secs(2);

/// Who sends more than this after the end does not listen.
const LINGER_BYTES: usize = 4 << 20;

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
