//! The content of a site and the options of its responses.

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

/// A site: a directory or the site that is part of the program, and the options of its responses.
///
/// Clones are cheap and may be sent to other threads; each clone has its own cache.
///
/// ```
/// use softclock_http::{ErrorPage, Site};
///
/// let not_found: ErrorPage = "404=/errors/404.html".parse().unwrap();
/// let site = Site::directory("/")?
///     .with_listing(true)
///     .with_cache(16 << 20)
///     .with_error_page(not_found);
/// # drop(site);
/// # Ok::<(), softclock_http::StartError>(())
/// ```
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
    /// Creates a site of the files below `directory`.
    ///
    /// # Errors
    /// [`StartError::Directory`] if the directory cannot be opened.
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

    /// Creates the site that introduces softclock; it needs no files.
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

    /// Sets the name of the file that is served for a directory; [`DEFAULT_INDEX`] by default.
    #[must_use]
    pub fn with_index(self, name: impl Into<String>) -> Self {
        Self {
            index: name.into(),
            ..self
        }
    }

    /// Sets whether a file's siblings `.br`, `.zst` and `.gz` are sent to clients that accept their coding; yes by
    /// default. A sibling older than the original is ignored. If a file has siblings, all its responses vary by
    /// Accept-Encoding.
    #[must_use]
    pub fn with_precompressed(self, on: bool) -> Self {
        Self {
            precompressed: on,
            ..self
        }
    }

    /// Sets the size in bytes of the cache for small files and their metadata; 0 disables it. In a
    /// [`Server`](crate::Server) the size is for all threads together.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        let entries = CACHE_DEFAULT.entries;
        self.with_limits(|limits| Limits {
            bytes,
            entries,
            ..limits
        })
    }

    /// Sets how long a change of a cached file may go unnoticed.
    #[must_use]
    pub fn with_cache_revalidate(self, revalidate: Duration) -> Self {
        self.with_limits(|limits| Limits {
            revalidate,
            ..limits
        })
    }

    /// Sets whether a directory without an index file is answered with a list of its entries; no by default.
    #[must_use]
    pub fn with_listing(self, on: bool) -> Self {
        Self {
            listing: on,
            ..self
        }
    }

    /// Adds an error page, in place of an earlier one for the same status.
    #[must_use]
    pub fn with_error_page(mut self, page: ErrorPage) -> Self {
        self.error_pages.retain(|other| other.status != page.status);
        self.error_pages.push(page);
        self
    }

    /// Adds a rule for header fields of responses. Rules apply in the order in which they were added.
    #[must_use]
    pub fn with_header(mut self, rule: HeaderRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Checks that the files of all error pages can be opened. Blocks on the disk.
    ///
    /// # Errors
    /// [`StartError::ErrorPage`] for the first file that cannot be read.
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
                "the bundled site has fixed error pages; name a directory to serve",
            ));
        };
        let file = store.root().open_file_waiting(page.path.relative())?;
        match file.metadata().is_file() {
            true => Ok(()),
            false => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// Returns the site for one of `threads` threads, with its share of the cache.
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

    /// Adds the header fields that all responses have, and those of the rules for `path`.
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

    /// Like [`complete`](Self::complete), for a response that is not cached.
    pub(crate) fn completed(&self, path: &[u8], mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        self.complete(path, status, response.headers_mut());
        response
    }
}

/// The default name of a directory's index file.
pub const DEFAULT_INDEX: &str = "index.html";

/// The default size of the cache for small files, over all threads of a server.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// The default time for which a change of a cached file may go unnoticed.
pub const DEFAULT_CACHE_REVALIDATE: Duration = Duration::from_secs(1);

const CACHE_DEFAULT: Limits = Limits {
    bytes: DEFAULT_CACHE_BYTES,
    entries: 16_384,
    revalidate: DEFAULT_CACHE_REVALIDATE,
};
