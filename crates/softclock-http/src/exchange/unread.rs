//! Discards the bodies of HTTP/2 requests whose handlers do not read them, such as requests for files.

use std::time::Duration;

use http_body_util::BodyExt;

use crate::client::request_body::RequestBody;
use crate::net::late_timer::timeout;

/// Reads a short body to its end and drops it. Call it before answering the request: a request with a malformed body
/// (RFC 9113, section 8.1.1) then gets no response, and one with a valid body gets no RST_STREAM after the response.
/// Stops early at a body longer than [`SHORT_BYTES`] or slower than [`SHORT_TIME`]; the end of the response then resets
/// the stream.
pub(crate) async fn discard(body: &mut RequestBody) {
    let short = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
            if bytes > SHORT_BYTES {
                break;
            }
        }
    };
    let _ = timeout(SHORT_TIME, short).await;
}

/// The longest body that is read to its end.
const SHORT_BYTES: usize = 16 << 10;

/// The longest wait for the end of a body: about the time that bytes in flight need to arrive. During the wait the
/// request occupies only its stream.
const SHORT_TIME: Duration = Duration::from_secs(1);
