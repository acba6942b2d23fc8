//! Requests of HTTP/2 that would be two in HTTP/1, or none: the upstream sees them once, in order, or not at all.

use std::rc::Rc;

use futures_lite::AsyncWriteExt;

use crate::asked::{Mode, Reply, SMUGGLED};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::target::{Subject, Target};
use crate::transport::connect;
use crate::upstream;

use super::frames::{self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, frame};
use super::incoming::{Fields, next};
use super::malformed::FIELDS;

type Field = (String, String);

/// The status of one request on a separate connection, or 0 if it was reset.
async fn status(
    target: &Target,
    fields: &[Field],
    body: Option<&[u8]>,
    frames_of_block: usize,
) -> u16 {
    let tls = target.trust.as_ref().map(|trust| (trust, "h2"));
    let (mut reader, mut writer) = connect(target.address, tls, false)
        .await
        .expect("a connection");
    let mut bytes = [frames::PREFACE, &frames::settings(&[(1, 0), (2, 0)])].concat();
    let block = frames::block(fields);
    bytes.extend(frames::headers(
        1,
        &block,
        body.is_none(),
        frames_of_block,
        &mut Random::new(7),
    ));
    bytes.extend(body.map_or_else(Vec::new, |body| frame(DATA, END_STREAM, 1, body)));
    writer
        .write_all(&bytes)
        .await
        .expect("a server that listens");
    writer.flush().await.expect("a server that listens");
    let mut status = 0;
    while let Ok(frame) = next(&mut reader).await {
        match frame.kind {
            HEADERS if frame.flags & END_HEADERS != 0 => {
                status = Fields::decode(&frame.payload)
                    .expect("a field block")
                    .status;
            }
            RST_STREAM => return 0,
            GOAWAY => return status,
            _ => {}
        }
        if frame.stream == 1 && frame.flags & END_STREAM != 0 {
            break;
        }
    }
    status
}

fn request(method: &str) -> Vec<Field> {
    let path = format!("/{}/1/20", Reply::Sized as usize);
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":path", &path),
        (":authority", "fuzz"),
        ("x-fuzz", "1"),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn with(mut fields: Vec<Field>, name: &str, value: &str) -> Vec<Field> {
    let at = if name.starts_with(':') {
        0
    } else {
        fields.len()
    };
    fields.insert(at, (name.to_owned(), value.to_owned()));
    fields
}

/// Runs `test` against a proxy whose upstream fails the test if it gets a request that no client sent.
fn with_proxy(test: impl AsyncFnOnce(&Target)) {
    let recorder = Rc::new(Recorder::new(Mode::ProxyTls, 0));
    let runtime = softclock::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let upstream = upstream::start(&recorder, 0).expect("an upstream");
        let subject = Subject::start(Mode::ProxyTls, upstream, &mut Random::new(0));
        let target = subject.target(Mode::ProxyTls, &recorder);
        assert_eq!(status(&target, &request("GET"), None, 1).await, 200);
        test(&target).await;
        assert_eq!(status(&target, &request("GET"), None, 1).await, 200);
        recorder.finish(&subject.server.log());
    });
}

#[test]
fn fields_that_no_request_may_have_are_refused() {
    with_proxy(async |target| {
        for (name, value) in FIELDS {
            let fields = with(request("POST"), name, value);
            let status = status(target, &fields, Some(SMUGGLED), 1).await;
            assert!(
                status == 0 || status >= 400,
                "{name:?}: {value:?}: {status}"
            );
        }
    });
}

#[test]
fn fields_in_several_frames_smuggle_nothing() {
    with_proxy(async |target| {
        for (name, value) in FIELDS {
            for frames in 2..6 {
                let fields = with(request("POST"), name, value);
                // The crate h2 accepts some of them here, but must treat each as one request.
                status(target, &fields, Some(SMUGGLED), frames).await;
            }
        }
    });
}

#[test]
fn lengths_that_are_not_the_body_s_are_refused() {
    with_proxy(async |target| {
        for length in ["0", "1", "37", "39", "1000"] {
            let fields = with(request("POST"), "content-length", length);
            assert_eq!(SMUGGLED.len(), 38);
            let status = status(target, &fields, Some(SMUGGLED), 1).await;
            assert!(status == 0 || status >= 400, "{length}: {status}");
        }
        let fields = with(request("POST"), "content-length", "38");
        assert_eq!(status(target, &fields, Some(SMUGGLED), 1).await, 200);
    });
}

#[test]
fn methods_and_paths_that_would_be_lines_are_refused() {
    with_proxy(async |target| {
        for (at, value) in [
            (0, "GET /smuggled HTTP/1.1\r\nX: "),
            (0, "GET "),
            (0, "G\nT"),
            (2, "/0/1/20 HTTP/1.1\r\nX: y"),
            (2, "/0/1/20 HTTP/1.1"),
            (2, "/0/1/20\r\n\r\nGET /smuggled"),
            (2, "/0/1/20\n"),
            (2, ""),
            (3, "fuzz\r\nX: y"),
            (3, "fuzz\n"),
            (4, "1\r\n\r\nGET /smuggled HTTP/1.1"),
        ] {
            let mut fields = request("GET");
            fields[at].1 = value.to_owned();
            let status = status(target, &fields, None, 1).await;
            assert!(status == 0 || status >= 400, "{:?}: {status}", fields[at]);
        }
    });
}
