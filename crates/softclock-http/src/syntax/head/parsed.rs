//! Checks requests that are already parsed, as those of HTTP/2 are, by the rules of the HTTP/1 scanner.
//!
//! An HTTP/2 request has no lines that could be split, but its parser (the types of the crate `http`) accepts requests
//! that HTTP/1 forbids: a target without a slash, a host with a user name or spaces, bytes beyond ASCII, names with
//! quotes. A proxy that wrote such a request as HTTP/1 would send a request that no HTTP/1 client could have sent
//! through it. So the same rules apply to both versions.

use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::Uri;
use http::{HeaderMap, Method, Request};

use super::HeadLimits;
use super::authority::Authority;
use super::class::{self, TOKEN};
use super::fault::Fault;
use super::length::parse_length;
use super::line::RequestLine;

/// Checks an HTTP/2 request by RFC 9113, section 8.3.1, and by the rules that the HTTP/1 scanner applies to a head.
pub(crate) fn check_parsed<B>(request: &Request<B>, limits: HeadLimits) -> Result<(), Fault> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    if field_count(headers) > limits.fields {
        return Err(Fault::TooManyFields);
    }
    check_target(method, uri, limits)?;
    check_hosts(uri, headers)?;
    check_fields(headers)
}

/// Returns whether `text` is a token (RFC 9110, section 5.6.2), as the names of methods and fields are.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && class::run(text.as_bytes(), TOKEN) == text.len()
}

/// Returns the number of field lines that `headers` would have in HTTP/1. Cookies count as one line (RFC 9113, section
/// 8.2.3), as browsers send each in a separate field in HTTP/2.
pub(crate) fn field_count(headers: &HeaderMap) -> usize {
    // Several cookies need a repeated name, which few heads have.
    let cookies = match headers.len() > headers.keys_len() {
        true => headers.get_all(COOKIE).iter().count(),
        false => 0,
    };
    headers.len() - cookies.saturating_sub(1)
}

fn check_target(method: &Method, uri: &Uri, limits: HeadLimits) -> Result<(), Fault> {
    if !is_token(method.as_str()) {
        return Err(Fault::Method);
    }
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(Fault::Target);
    }
    // The target as HTTP/1 would write it.
    let target = match (method, uri.path_and_query()) {
        (&Method::CONNECT, None) => uri.authority().map_or("", |authority| authority.as_str()),
        (_, Some(path)) if path.as_str().starts_with(['/', '*']) => path.as_str(),
        _ => return Err(Fault::Target),
    };
    if target.len() > limits.line_bytes {
        return Err(Fault::LineTooLong);
    }
    RequestLine::check_target(method.as_str().as_bytes(), target.as_bytes())
}

/// Checks that the host is in the target, or in one Host field, or the same in both.
fn check_hosts(uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (host, None) => host.map(|host| host.as_bytes()),
        _ => return Err(Fault::Host),
    };
    let authority = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let is_valid = |name: Option<&[u8]>| name.is_none_or(Authority::is_valid);
    // A client may write the default port in one place and omit it in the other.
    let default_port: &[u8] = match uri.scheme_str() {
        Some("http") => b":80",
        _ => b":443",
    };
    let is_one = match (authority, host) {
        (None, None) => false,
        (Some(authority), Some(host)) => {
            let bare = |name: &[u8]| {
                name.strip_suffix(default_port)
                    .unwrap_or(name)
                    .to_ascii_lowercase()
            };
            authority == host || bare(authority) == bare(host)
        }
        _ => true,
    };
    match is_one && is_valid(authority) && is_valid(host) {
        true => Ok(()),
        false => Err(Fault::Host),
    }
}

fn check_fields(headers: &HeaderMap) -> Result<(), Fault> {
    let mut has_length = false;
    for (name, value) in headers {
        if !is_token(name.as_str()) {
            return Err(Fault::Name);
        }
        let value = value.as_bytes();
        // Control characters and surrounding white space are forbidden (RFC 9113, section 8.2.1).
        if class::value_run(value) < value.len() || value.trim_ascii().len() < value.len() {
            return Err(Fault::Value);
        }
        if *name == CONTENT_LENGTH {
            if has_length || parse_length(value).is_none() {
                return Err(Fault::Length);
            }
            has_length = true;
        }
    }
    Ok(())
}
