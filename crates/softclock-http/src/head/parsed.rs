//! Requests that have been parsed, as those of HTTP/2 are, checked by the rules of the scanner.
//!
//! HTTP/2 has no lines that could be split, and its parser ([`http`]'s types) takes what a target or a host must not hold: a
//! target without a slash, a host with a user name or spaces, bytes beyond ASCII, names with quotes. A proxy that writes
//! such a request as one of HTTP/1 sends what an HTTP/1 client could not have sent. So the same rules hold for both.

use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::Uri;
use http::{HeaderMap, Method, Request};

use super::HeadLimits;
use super::authority::Authority;
use super::class::{self, TOKEN};
use super::fault::Fault;
use super::length::parse_length;
use super::line::RequestLine;

/// Checks a request of HTTP/2: RFC 9113, section 8.3.1, and whatever HTTP/1's scanner asks of a head.
pub(crate) fn check_parsed<B>(request: &Request<B>, limits: HeadLimits) -> Result<(), Fault> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    if field_count(headers) > limits.fields {
        return Err(Fault::TooManyFields);
    }
    check_target(method, uri, limits)?;
    check_hosts(uri, headers)?;
    check_fields(headers)
}

/// Whether `name` may name a field.
pub(crate) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && class::run(name.as_bytes(), TOKEN) == name.len()
}

/// How many field lines they would be in HTTP/1, where cookies share one (RFC 9113, section 8.2.3): browsers send each in
/// a field of its own.
pub(crate) fn field_count(headers: &HeaderMap) -> usize {
    let cookies = match headers.len() > headers.keys_len() {
        true => headers.get_all(COOKIE).iter().count(),
        false => 0,
    };
    headers.len() - cookies.saturating_sub(1)
}

fn check_target(method: &Method, uri: &Uri, limits: HeadLimits) -> Result<(), Fault> {
    if !is_field_name(method.as_str()) {
        return Err(Fault::Method);
    }
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(Fault::Target);
    }
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

/// The host is in the target or in one field, or in both, and then it is the same.
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
        if !is_field_name(name.as_str()) {
            return Err(Fault::Name);
        }
        let value = value.as_bytes();
        // RFC 9113, section 8.2.1.
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
