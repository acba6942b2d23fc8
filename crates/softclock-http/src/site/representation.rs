//! Representations (RFC 9110, section 3.2): content with its metadata, and the responses made from them.

use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, LAST_MODIFIED, RANGE, VARY,
};
use http::{Response, StatusCode};
use softclock::fs::Metadata;

use crate::site::body::Body;
use crate::site::bundled::BundledFile;
use crate::site::file_body::FileBody;
use crate::site::media;
use crate::site::multipart::Multipart;
use crate::site::open_files::OpenFile;
use crate::site::refusal::Refusal;
use crate::syntax::coding::Coding;
use crate::syntax::conditional::{
    EntityTag, HttpTime, Outcome, Validators, evaluate, if_range_holds,
};
use crate::syntax::range::{ByteRange, Selection, select};

/// Whether the client asks for the content or only for the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// GET.
    Everything,
    /// HEAD: ranges are ignored (RFC 9110, section 14.2), and no content is read.
    Head,
}

/// The metadata of a representation.
#[derive(Debug)]
pub(crate) struct Head {
    len: u64,
    validators: Validators,
    /// All fields of a complete response (200) except Date.
    fields: HeaderMap,
}

/// The content of a representation.
pub(crate) enum Data {
    /// A file that is read while it is sent.
    File(OpenFile),
    /// Bytes in memory.
    Bytes(Bytes),
}

/// A response whose content is added later.
pub(crate) struct Answer {
    response: Response<Body>,
    part: Part,
}

/// The part of the content that a response contains.
enum Part {
    Nothing,
    Whole,
    Range(ByteRange),
    Multipart(Multipart),
}

impl Head {
    /// Returns the head of a regular file, or of its sibling in `coding`. A modification later than `now` is dated
    /// `now` (RFC 9110, section 8.8.2.1).
    pub(crate) fn of_file(
        name: &Path,
        metadata: &Metadata,
        coding: Coding,
        now: SystemTime,
    ) -> Self {
        let validators = Validators {
            etag: EntityTag::of_file(metadata, coding),
            modified: HttpTime::new(metadata.modified().min(now)),
        };
        let mut head = Self::new(metadata.len(), name, validators);
        if let Some(value) = coding.content_encoding() {
            head.fields.insert(CONTENT_ENCODING, value);
        }
        head
    }

    /// Returns the head of a file of the bundled site.
    pub(crate) fn of_bundled(file: &'static BundledFile) -> Self {
        let validators = Validators {
            etag: EntityTag::of_static(&file.tag),
            modified: None,
        };
        Self::new(file.content.len() as u64, Path::new(file.name), validators)
    }

    fn new(len: u64, name: &Path, validators: Validators) -> Self {
        let mut fields = HeaderMap::with_capacity(FIELDS);
        fields.insert(CONTENT_TYPE, media::type_of(name));
        fields.insert(CONTENT_LENGTH, len.into());
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(ETAG, validators.etag.to_header());
        if let Some(modified) = validators.modified {
            fields.insert(LAST_MODIFIED, modified.to_header());
        }
        Self {
            len,
            validators,
            fields,
        }
    }

    /// Adds Vary, as the representation was selected by Accept-Encoding.
    pub(crate) fn varies(&mut self) {
        let field = HeaderValue::from_static("accept-encoding");
        self.fields.insert(VARY, field);
    }

    /// Returns the fields of a complete response, so that the site can add its own.
    pub(crate) const fn fields_mut(&mut self) -> &mut HeaderMap {
        &mut self.fields
    }

    /// Returns the approximate size of the field values in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.fields.values().map(HeaderValue::len).sum()
    }

    /// Returns the answer to a GET or HEAD request with these header fields: evaluates preconditions, then ranges.
    /// Calls `now` only if needed.
    pub(crate) fn answer(
        &self,
        request: &HeaderMap,
        wanted: Wanted,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Answer, Refusal> {
        match evaluate(request, &self.validators) {
            Outcome::Proceed => {}
            Outcome::NotModified => return Ok(self.not_modified()),
            Outcome::PreconditionFailed => return Err(Refusal::PreconditionFailed),
        }
        if wanted == Wanted::Head {
            return Ok(self.with(StatusCode::OK, Part::Nothing));
        }
        match self.selection(request, now) {
            Selection::Whole => Ok(self.whole()),
            Selection::Part(range) => Ok(self.part(range)),
            Selection::Parts(ranges) => Ok(self.parts(&ranges)),
            Selection::Unsatisfiable => Err(Refusal::RangeNotSatisfiable(self.len)),
        }
    }

    /// Returns an answer with the whole content, regardless of the request.
    pub(crate) fn whole(&self) -> Answer {
        self.with(StatusCode::OK, Part::Whole)
    }

    fn selection(&self, request: &HeaderMap, now: impl FnOnce() -> SystemTime) -> Selection {
        let mut fields = request.get_all(RANGE).iter();
        match (fields.next(), fields.next()) {
            // Several Range fields are malformed, and so ignored.
            (Some(field), None) if if_range_holds(request, &self.validators, now()) => {
                select(field.as_bytes(), self.len)
            }
            _ => Selection::Whole,
        }
    }

    fn part(&self, range: ByteRange) -> Answer {
        let content_range = HeaderValue::from_str(&range.content_range(self.len)).expect("ASCII");
        let mut answer = self.with(StatusCode::PARTIAL_CONTENT, Part::Range(range));
        let headers = answer.response.headers_mut();
        headers.insert(CONTENT_LENGTH, range.len().into());
        headers.insert(CONTENT_RANGE, content_range);
        answer
    }

    /// Returns the requested ranges as multipart, or the whole content if multipart would not be shorter.
    fn parts(&self, ranges: &[ByteRange]) -> Answer {
        let multipart = Multipart::new(ranges, self.len, self.fields.get(CONTENT_TYPE));
        let (len, content_type) = (multipart.len(), multipart.content_type());
        if len >= self.len {
            return self.whole();
        }
        let mut answer = self.with(StatusCode::PARTIAL_CONTENT, Part::Multipart(multipart));
        let headers = answer.response.headers_mut();
        headers.insert(CONTENT_LENGTH, len.into());
        headers.insert(CONTENT_TYPE, content_type);
        answer
    }

    fn not_modified(&self) -> Answer {
        let mut answer = self.with(StatusCode::NOT_MODIFIED, Part::Nothing);
        // A 304 has only fields that update the client's copy (RFC 9110, section 15.4.5).
        for name in [
            CONTENT_TYPE,
            CONTENT_LENGTH,
            CONTENT_ENCODING,
            ACCEPT_RANGES,
        ] {
            answer.response.headers_mut().remove(name);
        }
        answer
    }

    fn with(&self, status: StatusCode, part: Part) -> Answer {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        *response.headers_mut() = self.fields.clone();
        Answer { response, part }
    }
}

impl Answer {
    pub(crate) const fn needs_content(&self) -> bool {
        !matches!(self.part, Part::Nothing)
    }

    /// Returns the response without content, for HEAD requests and 304.
    pub(crate) fn without_content(self) -> Response<Body> {
        self.response
    }

    pub(crate) fn with_content(self, data: Data) -> Response<Body> {
        let mut response = self.response;
        *response.body_mut() = match (self.part, data) {
            (Part::Nothing, _) => Body::empty(),
            (Part::Whole, data) => data.into_body(),
            (Part::Range(range), Data::Bytes(content)) => Body::Bytes(range.slice(&content)),
            (Part::Range(range), Data::File(file)) => Body::File(FileBody::of(file, Some(range))),
            (Part::Multipart(parts), Data::Bytes(content)) => {
                Body::Parts(Box::new(parts.of_bytes(&content)))
            }
            (Part::Multipart(parts), Data::File(file)) => {
                Body::Parts(Box::new(parts.of_file(&file)))
            }
        };
        response
    }
}

impl Data {
    /// Converts the whole content to a body.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Self::Bytes(content) => Body::Bytes(content),
            Self::File(file) => Body::File(FileBody::of(file, None)),
        }
    }
}

/// Room for all fields of a typical response, so that the map is allocated once.
const FIELDS: usize = 12;
