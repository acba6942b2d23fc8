//! The header fields of a response, adapted to HTTP/2 (RFC 9113, section 8.2.2).

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};

/// Removes the fields that only concern HTTP/1 connections, and adds Date and, if `length` is known, Content-Length.
pub(super) fn complete(fields: &mut HeaderMap, length: Option<u64>) {
    remove_connection_fields(fields);
    if !fields.contains_key(DATE) {
        fields.insert(DATE, date());
    }
    if let Some(length) = length
        && !fields.contains_key(CONTENT_LENGTH)
    {
        fields.insert(CONTENT_LENGTH, length.into());
    }
}

fn remove_connection_fields(fields: &mut HeaderMap) {
    if let Some(named) = fields.remove(CONNECTION)
        && let Ok(named) = named.to_str()
    {
        for name in named.split(',') {
            fields.remove(name.trim());
        }
    }
    for name in &CONNECTION_FIELDS {
        fields.remove(name);
    }
}

/// Returns the value of Date, which each thread formats once a second.
fn date() -> HeaderValue {
    thread_local! {
        static LAST: RefCell<(u64, HeaderValue)> =
            const { RefCell::new((0, HeaderValue::from_static(""))) };
    }
    let now = SystemTime::now();
    let second = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(last, value)| {
        if *last != second || value.is_empty() {
            *value = HeaderValue::try_from(httpdate::fmt_http_date(now)).expect("ASCII");
            *last = second;
        }
        value.clone()
    })
}

const CONNECTION_FIELDS: [HeaderName; 5] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_of_http_2_stay() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("connection", "x-a, x-b"),
            ("x-a", "1"),
            ("x-b", "2"),
            ("x-c", "3"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-connection", "close"),
        ] {
            fields.insert(name, HeaderValue::from_static(value));
        }
        complete(&mut fields, Some(7));
        assert_eq!(fields.len(), 3);
        assert_eq!(
            (&fields["x-c"], &fields[CONTENT_LENGTH]),
            (&"3".parse().unwrap(), &7.into())
        );
        let date = fields[DATE].to_str().unwrap();
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    }

    #[test]
    fn what_is_given_stays() {
        let mut fields = HeaderMap::new();
        fields.insert(DATE, HeaderValue::from_static("then"));
        fields.insert(CONTENT_LENGTH, 3.into());
        complete(&mut fields, Some(7));
        assert_eq!(
            (&fields[DATE], &fields[CONTENT_LENGTH]),
            (&"then".parse().unwrap(), &3.into())
        );
    }
}
