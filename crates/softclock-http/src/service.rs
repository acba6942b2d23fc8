//! From a request to a response.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use http::header::{ALLOW, HOST, HeaderValue, LOCATION, SERVER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode, Version};
use softclock::fs::{File, Root};

use crate::body::Body;
use crate::bundled;
use crate::error::{ALLOWED_METHODS, Refusal, StartError};
use crate::path::RequestPath;
use crate::representation::{Representation, Wanted};

/// What is served: a directory, or the site that is part of the program. Clones are cheap and may go to other threads.
#[derive(Clone, Debug)]
pub struct Site {
    content: Content,
    index: String,
}

#[derive(Clone, Debug)]
enum Content {
    Directory(Root),
    Bundled,
}

/// What a path leads to.
enum Found {
    Representation(Representation),
    /// A directory asked for without its slash.
    Directory,
}

impl Site {
    /// The files below `directory`.
    ///
    /// # Errors
    /// [`StartError::Directory`].
    pub fn directory(directory: impl Into<PathBuf>) -> Result<Self, StartError> {
        let directory = directory.into();
        match Root::open(&directory) {
            Ok(root) => Ok(Self::new(Content::Directory(root))),
            Err(error) => Err(StartError::Directory(directory, error)),
        }
    }

    /// The site that introduces softclock; needs no file.
    pub fn bundled() -> Self {
        Self::new(Content::Bundled)
    }

    fn new(content: Content) -> Self {
        Self {
            content,
            index: DEFAULT_INDEX.into(),
        }
    }

    /// Sets the name of the file that stands for its directory.
    #[must_use]
    pub fn with_index(self, name: impl Into<String>) -> Self {
        Self {
            index: name.into(),
            ..self
        }
    }

    /// Answers one request. Waits for the disk on a helper thread, if at all.
    pub async fn respond<B>(&self, request: &Request<B>) -> Response<Body> {
        REQUESTS.set(REQUESTS.get() + 1);
        let mut response = match self.answer(request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
        if request.method() == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        let headers = response.headers_mut();
        headers.insert(SERVER, HeaderValue::from_static("softclock"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let (method, target) = (request.method(), request.uri());
        tracing::debug!(%method, %target, status = response.status().as_u16(), "request");
        response
    }

    async fn answer<B>(&self, request: &Request<B>) -> Result<Response<Body>, Refusal> {
        check_host(request)?;
        let wanted = match *request.method() {
            Method::GET => Wanted::Everything,
            Method::HEAD => Wanted::Head,
            Method::OPTIONS => return Ok(allowed_methods()),
            _ => return Err(Refusal::MethodNotAllowed),
        };
        let path = RequestPath::parse(request.uri().path())?;
        match self.find(&path).await? {
            Found::Directory => Ok(redirect(&path.directory_reference(request.uri().query()))),
            Found::Representation(found) => {
                found
                    .respond(request.headers(), wanted, SystemTime::now())
                    .await
            }
        }
    }

    async fn find(&self, path: &RequestPath) -> Result<Found, Refusal> {
        match &self.content {
            Content::Bundled => find_bundled(path),
            Content::Directory(root) => self.find_below(root, path).await,
        }
    }

    async fn find_below(&self, root: &Root, path: &RequestPath) -> Result<Found, Refusal> {
        if path.is_directory() {
            let index = path.index(&self.index);
            let file = open(root, &index).await?;
            // An index that is itself a directory is as good as none.
            return if file.metadata().is_dir() {
                Err(Refusal::NotFound)
            } else {
                regular(file, &index)
            };
        }
        let file = open(root, path).await?;
        if file.metadata().is_dir() {
            return Ok(Found::Directory);
        }
        regular(file, path)
    }
}

/// How many requests this thread has answered.
pub fn requests_answered() -> u64 {
    REQUESTS.get()
}

async fn open(root: &Root, path: &RequestPath) -> Result<File, Refusal> {
    root.open_file(path.relative())
        .await
        .map_err(|error| refusal_of(&error, path))
}

fn regular(file: File, path: &RequestPath) -> Result<Found, Refusal> {
    if !file.metadata().is_file() {
        return Err(Refusal::Forbidden);
    }
    Ok(Found::Representation(Representation::of_file(
        file,
        path.relative(),
    )))
}

fn find_bundled(path: &RequestPath) -> Result<Found, Refusal> {
    let index;
    let path = if path.is_directory() {
        index = path.index(DEFAULT_INDEX);
        &index
    } else {
        path
    };
    let file = bundled::find(path.relative()).ok_or(Refusal::NotFound)?;
    Ok(Found::Representation(Representation::of_bundled(file)))
}

fn refusal_of(error: &io::Error, path: &RequestPath) -> Refusal {
    let refusal = Refusal::of_file_error(error);
    if matches!(refusal, Refusal::Unavailable | Refusal::Internal) {
        tracing::warn!(path = %path.relative().display(), %error, "cannot open");
    }
    refusal
}

/// RFC 9112, section 3.2: a server must refuse HTTP/1.1 requests without Host, and all with several.
fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => Ok(()),
        // In HTTP/2 the host is part of the target (RFC 9113, section 8.3.1).
        (None, _) if request.version() == Version::HTTP_2 && request.uri().host().is_some() => {
            Ok(())
        }
        (Some(_), None) => Ok(()),
        _ => Err(Refusal::BadHost),
    }
}

fn allowed_methods() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
    response
}

fn redirect(location: &str) -> Response<Body> {
    match HeaderValue::from_str(location) {
        Ok(location) => {
            let mut response = Refusal::page(StatusCode::MOVED_PERMANENTLY, "a slash was missing.");
            response.headers_mut().insert(LOCATION, location);
            response
        }
        // Names are percent-encoded and hyper has checked the query.
        Err(_) => Refusal::BadPath.into_response(),
    }
}

/// The name that stands for a directory unless another was chosen.
pub const DEFAULT_INDEX: &str = "index.html";

thread_local! {
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}
