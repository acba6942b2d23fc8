//! Custom error pages: `404=/errors/404.html`.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;

use crate::syntax::path::RequestPath;

/// A file to be shown with an error, in place of the built-in page. The status stays; if the file is missing, the
/// built-in page is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub(crate) status: StatusCode,
    pub(crate) path: RequestPath,
}

/// Why an error page was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPageError {
    /// It has not the form `STATUS=/PATH`.
    Form,
    /// The status is none of an error.
    Status,
    /// The path is none of a file below the root.
    Path,
}

impl fmt::Display for ErrorPageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "write STATUS=/PATH, such as 404=/errors/404.html",
            Self::Status => "an error's status is 400 to 599",
            Self::Path => "the path of a file below the root begins with / and names no directory",
        })
    }
}

impl std::error::Error for ErrorPageError {}

impl ErrorPage {
    /// Shows the file at `path`, as a request would name it, with errors of this status.
    ///
    /// # Errors
    /// [`ErrorPageError`].
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
