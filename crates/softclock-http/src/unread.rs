//! Bodies of requests of HTTP/2 that nobody reads, as those for files.

use std::time::Duration;

use crate::request_body::RequestBody;
use http_body_util::BodyExt;

use crate::late_timer::timeout;

/// Takes a short body to its end, before the request is answered: a request whose body turns out to be malformed (RFC 9113,
/// section 8.1.1) then gets no response, and one with a good body no RST_STREAM behind the response. What is longer or
/// slower is left, and the response resets its stream.
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

const SHORT_BYTES: usize = 16 << 10;

/// About as long as a piece of a body that is on its way may take. Until then nothing but the stream is held.
const SHORT_TIME: Duration = Duration::from_secs(1);
