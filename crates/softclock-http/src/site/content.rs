//! What is served: content and the options that shape its responses.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue, SERVER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use softclock::fs::Root;

use crate::error::StartError;
use crate::site::body::Body;
use crate::site::cache::Limits;
use crate::site::error_page::ErrorPage;
use crate::site::header_rule::HeaderRule;
use crate::site::store::Store;

/// What is served: a directory, or the site that is part of the program, and how.
///
/// Clones are cheap and may go to other threads; each has a cache of its own.
#[derive(Clone, Debug)]
pub struct Site {
    pub(crate) content: Content,
    pub(crate) index: String,
    pub(crate) precompressed: bool,
    pub(crate) listing: bool,
    pub(crate) error_pages: Vec<ErrorPage>,
    rules: Vec<HeaderRule>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Directory(Store),
    Bundled,
}

impl Site {
    /// The files below `directory`.
    ///
    /// # Errors
    /// [`StartError::Directory`].
    pub fn directory(directory: impl Into<PathBuf>) -> Result<Self, StartError> {
        let directory = directory.into();
        match Root::open(&directory) {
            Ok(root) => Ok(Self::new(Content::Directory(Store::new(
                root,
                CACHE_DEFAULT,
            )))),
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
            precompressed: true,
            listing: false,
            error_pages: Vec::new(),
            rules: Vec::new(),
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

    /// Whether a file's siblings `.br`, `.zst` and `.gz` are sent to clients that accept them; yes by default. A
    /// sibling older than its original is ignored. Responses vary by Accept-Encoding if there is a sibling, whichever
    /// is sent.
    #[must_use]
    pub fn with_precompressed(self, on: bool) -> Self {
        Self {
            precompressed: on,
            ..self
        }
    }

    /// Sets how many bytes of small files, and what is told of them, are kept in memory; 0 for none. In a
    /// [`Server`](crate::Server) that is for all threads together.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        let entries = CACHE_DEFAULT.entries;
        self.with_limits(|limits| Limits {
            bytes,
            entries,
            ..limits
        })
    }

    /// Sets how long a change of a file that is kept in memory may go unnoticed.
    #[must_use]
    pub fn with_cache_revalidate(self, revalidate: Duration) -> Self {
        self.with_limits(|limits| Limits {
            revalidate,
            ..limits
        })
    }

    /// Whether a directory without an index file is answered with a list of what it holds; no by default.
    #[must_use]
    pub fn with_listing(self, on: bool) -> Self {
        Self {
            listing: on,
            ..self
        }
    }

    /// Adds an error page; a later one for the same status replaces it.
    #[must_use]
    pub fn with_error_page(mut self, page: ErrorPage) -> Self {
        self.error_pages.retain(|other| other.status != page.status);
        self.error_pages.push(page);
        self
    }

    /// Adds a rule for header fields of responses; rules apply in the order they were added.
    #[must_use]
    pub fn with_header(mut self, rule: HeaderRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Opens the files of all error pages as responses will, and waits for the disk.
    ///
    /// # Errors
    /// [`StartError::ErrorPage`] for the first that can't be read.
    pub(crate) fn check_error_pages(&self) -> Result<(), StartError> {
        for page in &self.error_pages {
            let opened = self.open_error_page(page);
            opened.map_err(|error| StartError::ErrorPage(page.clone(), error))?;
        }
        Ok(())
    }

    fn open_error_page(&self, page: &ErrorPage) -> io::Result<()> {
        let Content::Directory(store) = &self.content else {
            return Err(io::Error::other(
                "the bundled site has only its own; name a directory to serve",
            ));
        };
        let file = store.root().open_file_waiting(page.path.relative())?;
        match file.metadata().is_file() {
            true => Ok(()),
            false => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// The same for one of several threads.
    pub(crate) fn for_one_of(self, threads: usize) -> Self {
        self.with_limits(|limits| Limits {
            bytes: limits.bytes / threads.max(1),
            ..limits
        })
    }

    fn with_limits(mut self, change: impl Fn(Limits) -> Limits) -> Self {
        if let Content::Directory(store) = &mut self.content {
            store.set_limits(change(store.limits()));
        }
        self
    }

    /// Completes the header fields of a response to a request for `path`.
    pub(crate) fn complete(&self, path: &[u8], status: StatusCode, headers: &mut HeaderMap) {
        headers.insert(SERVER, HeaderValue::from_static("softclock"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !self.rules.is_empty() {
            let path = [b"/", path].concat();
            for rule in &self.rules {
                rule.apply(&path, status, headers);
            }
        }
    }

    /// As [`complete`](Self::complete), for responses made for one request.
    pub(crate) fn completed(&self, path: &[u8], mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        self.complete(path, status, response.headers_mut());
        response
    }
}

/// The name that stands for a directory unless another was chosen.
pub const DEFAULT_INDEX: &str = "index.html";

/// Bytes of small files kept in memory, by all threads of a server together.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// How long a change of a file may go unnoticed.
pub const DEFAULT_CACHE_REVALIDATE: Duration = Duration::from_secs(1);

const CACHE_DEFAULT: Limits = Limits {
    bytes: DEFAULT_CACHE_BYTES,
    entries: 16_384,
    revalidate: DEFAULT_CACHE_REVALIDATE,
};
