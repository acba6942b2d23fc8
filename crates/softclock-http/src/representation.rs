//! A representation: content with its type and validators, and the responses that it gives.

use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    LAST_MODIFIED, RANGE,
};
use http::{Response, StatusCode};
use softclock::fs::File;

use crate::body::{Body, CHUNK_BYTES, FileBody};
use crate::bundled::BundledFile;
use crate::conditional::{EntityTag, HttpTime, Outcome, Validators, evaluate, if_range_holds};
use crate::error::Refusal;
use crate::media;
use crate::range::{ByteRange, Selection, select};

/// Whether the client wants the content as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// GET.
    Everything,
    /// HEAD: ranges do not count (RFC 9110, section 14.2), and nothing is read.
    Head,
}

/// What a resource gives to a client.
pub(crate) struct Representation {
    data: Data,
    len: u64,
    media_type: HeaderValue,
    etag: EntityTag,
    modified: Option<SystemTime>,
}

enum Data {
    File(File),
    Static(&'static [u8]),
}

impl Representation {
    /// That of a regular file called `name`.
    pub(crate) fn of_file(file: File, name: &Path) -> Self {
        let metadata = file.metadata();
        Self {
            len: metadata.len(),
            media_type: media::type_of(name),
            etag: EntityTag::of_file(metadata),
            modified: Some(metadata.modified()),
            data: Data::File(file),
        }
    }

    /// That of a file of the bundled site.
    pub(crate) fn of_bundled(file: &'static BundledFile) -> Self {
        Self {
            len: file.content.len() as u64,
            media_type: media::type_of(Path::new(file.name)),
            etag: EntityTag::of_static(&file.tag),
            modified: None,
            data: Data::Static(file.content),
        }
    }

    /// The response to a GET or HEAD request with these headers.
    ///
    /// Content that fits into one chunk is read before the response starts, so that a failure can still be told.
    pub(crate) async fn respond(
        self,
        request: &HeaderMap,
        wanted: Wanted,
        now: SystemTime,
    ) -> Result<Response<Body>, Refusal> {
        let validators = self.validators(now);
        match evaluate(request, &validators) {
            Outcome::Proceed => {}
            Outcome::NotModified => return Ok(not_modified(validators)),
            Outcome::PreconditionFailed => return Err(Refusal::PreconditionFailed),
        }
        let range = match self.selection(request, &validators, wanted, now) {
            Selection::Whole => None,
            Selection::Part(range) => Some(range),
            Selection::Unsatisfiable => return Err(Refusal::RangeNotSatisfiable(self.len)),
        };
        let mut response = Response::new(Body::empty());
        self.describe(&mut response, range, validators);
        if wanted == Wanted::Everything {
            *response.body_mut() = self.data.into_body(range).await?;
        }
        Ok(response)
    }

    /// A server must not date a modification later than now (RFC 9110, section 8.8.2.1).
    fn validators(&self, now: SystemTime) -> Validators {
        let modified = self
            .modified
            .and_then(|modified| HttpTime::new(modified.min(now)));
        Validators {
            etag: self.etag.clone(),
            modified,
        }
    }

    fn selection(
        &self,
        request: &HeaderMap,
        validators: &Validators,
        wanted: Wanted,
        now: SystemTime,
    ) -> Selection {
        let mut fields = request.get_all(RANGE).iter();
        match (fields.next(), fields.next()) {
            (Some(field), None)
                if wanted == Wanted::Everything && if_range_holds(request, validators, now) =>
            {
                select(field.as_bytes(), self.len)
            }
            _ => Selection::Whole,
        }
    }

    fn describe(
        &self,
        response: &mut Response<Body>,
        range: Option<ByteRange>,
        validators: Validators,
    ) {
        let headers = response.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(CONTENT_TYPE, self.media_type.clone());
        headers.insert(
            CONTENT_LENGTH,
            range.map_or(self.len, ByteRange::len).into(),
        );
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        insert_validators(headers, validators);
        if let Some(range) = range {
            let content_range = HeaderValue::from_str(&range.content_range(self.len));
            headers.insert(CONTENT_RANGE, content_range.expect("ASCII"));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
    }
}

impl Data {
    async fn into_body(self, range: Option<ByteRange>) -> Result<Body, Refusal> {
        match self {
            Self::Static(content) => Ok(Body::Bytes(part_of_static(content, range))),
            Self::File(file) => {
                let body = FileBody::new(file, range);
                if body.remaining() > CHUNK_BYTES as u64 {
                    return Ok(Body::File(body));
                }
                let content = body.read_all().await;
                content.map(Body::Bytes).map_err(|error| {
                    tracing::warn!(%error, "cannot read");
                    Refusal::of_file_error(&error)
                })
            }
        }
    }
}

fn part_of_static(content: &'static [u8], range: Option<ByteRange>) -> Bytes {
    let Some(range) = range else {
        return Bytes::from_static(content);
    };
    // The range was cut to the length of this slice.
    let first = range.first() as usize;
    Bytes::from_static(&content[first..first + range.len() as usize])
}

fn not_modified(validators: Validators) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    insert_validators(response.headers_mut(), validators);
    response
}

fn insert_validators(headers: &mut HeaderMap, validators: Validators) {
    headers.insert(ETAG, validators.etag.into_header());
    if let Some(modified) = validators.modified {
        headers.insert(LAST_MODIFIED, modified.to_header());
    }
}

/// Room for all fields of a response, so that the map is allocated once.
const HEADERS: usize = 10;
