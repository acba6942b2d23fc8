//! Custom error pages: `404=/errors/404.html`.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;

use crate::syntax::path::RequestPath;

/// A file that is sent with an error status in place of the built-in page. The status does not change. If the file is
/// missing, the built-in page is sent.
///
/// ```
/// use softclock_http::{ErrorPage, ErrorPageError};
///
/// let page: ErrorPage = "404=/errors/404.html".parse()?;
/// assert_eq!(page.to_string(), "404=/errors/404.html");
/// assert_eq!("200=/ok.html".parse::<ErrorPage>(), Err(ErrorPageError::Status));
/// # Ok::<(), ErrorPageError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub(crate) status: StatusCode,
    pub(crate) path: RequestPath,
}

/// The reason why an error page is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorPageError {
    /// The text does not have the form `STATUS=/PATH`.
    Form,
    /// The status is not that of an error (400 to 599).
    Status,
    /// The path does not name a file below the root.
    Path,
}

impl fmt::Display for ErrorPageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "write STATUS=/PATH, such as 404=/errors/404.html",
            Self::Status => "write an error status from 400 to 599",
            Self::Path => "write the path of a file below the root, starting with /",
        })
    }
}

impl std::error::Error for ErrorPageError {}

impl ErrorPage {
    /// Creates an error page: sends the file at `path`, which is written as in a request, with errors of this status.
    ///
    /// # Errors
    /// See [`ErrorPageError`].
    pub fn new(status: u16, path: &str) -> Result<Self, ErrorPageError> {
        let status = StatusCode::from_u16(status).map_err(|_| ErrorPageError::Status)?;
        if !status.is_client_error() && !status.is_server_error() {
            return Err(ErrorPageError::Status);
        }
        match RequestPath::parse(path) {
            Ok(path) if !path.is_directory() => Ok(Self { status, path }),
            _ => Err(ErrorPageError::Path),
        }
    }
}

impl fmt::Display for ErrorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}=/{}",
            self.status.as_u16(),
            self.path.relative().display()
        )
    }
}

impl FromStr for ErrorPage {
    type Err = ErrorPageError;

    fn from_str(text: &str) -> Result<Self, ErrorPageError> {
        let (status, path) = text.split_once('=').ok_or(ErrorPageError::Form)?;
        let status = status.trim().parse().map_err(|_| ErrorPageError::Status)?;
        Self::new(status, path.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn pages_and_mistakes() {
        let page: ErrorPage = "404=/errors/404.html".parse().unwrap();
        assert_eq!(page.status, 404);
        assert_eq!(page.path.relative(), Path::new("errors/404.html"));
        assert_eq!(page.to_string(), "404=/errors/404.html");
        for (text, error) in [
            ("404", ErrorPageError::Form),
            ("x=/a", ErrorPageError::Status),
            ("200=/a", ErrorPageError::Status),
            ("600=/a", ErrorPageError::Status),
            ("404=a", ErrorPageError::Path),
            ("404=/", ErrorPageError::Path),
            ("404=/../a", ErrorPageError::Path),
        ] {
            assert_eq!(text.parse::<ErrorPage>().unwrap_err(), error, "{text}");
            assert!(!error.to_string().contains('\n'));
        }
    }
}
