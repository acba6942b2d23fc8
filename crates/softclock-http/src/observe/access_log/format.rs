//! Formats a line of the access log.
//!
//! All bytes from clients are escaped: a request cannot end a line, close a quote or control a terminal.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, StatusCode, Uri, Version};

use super::date::Date;
use crate::net::carrier::Peer;

/// The format of an access log.
///
/// ```
/// use softclock_http::LogFormat;
///
/// assert_eq!("json".parse(), Ok(LogFormat::Json));
/// assert!("xml".parse::<LogFormat>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The common log format of the NCSA server.
    #[default]
    Common,
    /// The common log format, followed by Referer and User-Agent.
    Combined,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat),
        }
    }
}

/// The error for text that names no [`LogFormat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFormat;

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write common, combined or json")
    }
}

impl std::error::Error for UnknownFormat {}

/// The logged properties of a request and its response.
pub(crate) struct Entry<'a> {
    /// When the request arrived.
    pub(crate) time: SystemTime,
    pub(crate) peer: Peer,
    /// `None` if the request was refused before it could be parsed.
    pub(crate) request: Option<RequestLine<'a>>,
    pub(crate) status: StatusCode,
    /// Bytes of the response body handed to the connection.
    pub(crate) bytes: u64,
    /// The time from the request's head to the end of the response's body.
    pub(crate) duration: Duration,
    pub(crate) referer: Option<&'a HeaderValue>,
    pub(crate) user_agent: Option<&'a HeaderValue>,
    /// The upstream that answered, and the time from its request to the head of its response.
    pub(crate) upstream: Option<(String, Duration)>,
}

/// The request line.
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a Uri,
    pub(crate) version: Version,
}

pub(super) fn write(format: LogFormat, entry: &Entry<'_>, line: &mut Vec<u8>) {
    match format {
        LogFormat::Common => common(entry, line),
        LogFormat::Combined => {
            common(entry, line);
            for field in [entry.referer, entry.user_agent] {
                line.extend_from_slice(b" \"");
                escape(field.map_or(b"-", HeaderValue::as_bytes), line);
                line.push(b'"');
            }
        }
        LogFormat::Json => json(entry, line),
    }
    line.push(b'\n');
}

fn common(entry: &Entry<'_>, line: &mut Vec<u8>) {
    let date = Date::of(entry.time).common();
    append(line, format_args!("{} - - [{date}] \"", entry.peer));
    match &entry.request {
        Some(request) => {
            escape(request.method.as_str().as_bytes(), line);
            line.push(b' ');
            escape(request.target().as_bytes(), line);
            append(line, format_args!(" {:?}", request.version));
        }
        None => line.push(b'-'),
    }
    append(line, format_args!("\" {} ", entry.status.as_u16()));
    // The format requires `-` for an empty body.
    match entry.bytes {
        0 => line.push(b'-'),
        bytes => append(line, format_args!("{bytes}")),
    }
}

fn json(entry: &Entry<'_>, line: &mut Vec<u8>) {
    let date = Date::of(entry.time).rfc3339();
    append(
        line,
        format_args!("{{\"time\":\"{date}\",\"peer\":\"{}\"", entry.peer),
    );
    if let Some(request) = &entry.request {
        member(line, "method", request.method.as_str().as_bytes());
        member(line, "target", request.target().as_bytes());
        append(line, format_args!(",\"version\":\"{:?}\"", request.version));
    }
    append(
        line,
        format_args!(
            ",\"status\":{},\"bytes\":{},\"duration_us\":{}",
            entry.status.as_u16(),
            entry.bytes,
            entry.duration.as_micros()
        ),
    );
    for (name, field) in [("referer", entry.referer), ("user_agent", entry.user_agent)] {
        if let Some(field) = field {
            member(line, name, field.as_bytes());
        }
    }
    if let Some((name, time)) = &entry.upstream {
        member(line, "upstream", name.as_bytes());
        append(line, format_args!(",\"upstream_us\":{}", time.as_micros()));
    }
    line.push(b'}');
}

impl RequestLine<'_> {
    /// Returns the target in HTTP/1 form; HTTP/2 sends scheme and host separately, so only the path.
    fn target(&self) -> String {
        let path = self.target.path_and_query();
        match self.version {
            Version::HTTP_2 => path.map_or("*", |path| path.as_str()).to_owned(),
            _ => self.target.to_string(),
        }
    }
}

fn append(line: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = line.write_fmt(text);
}

/// Appends `text`, escaped as nginx and Apache do: `\xHH` for quotes, backslashes, and bytes other than printable
/// ASCII.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => append(line, format_args!("\\x{byte:02X}")),
            _ => line.push(byte),
        }
    }
}

/// Appends `,"name":"value"`. Invalid UTF-8 becomes U+FFFD.
fn member(line: &mut Vec<u8>, name: &str, value: &[u8]) {
    append(line, format_args!(",\"{name}\":\""));
    for char in String::from_utf8_lossy(value).chars() {
        match char {
            '"' | '\\' => append(line, format_args!("\\{char}")),
            // JSON allows DEL, C1 controls and U+2028 to U+202E, but terminals and scripts may interpret them.
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}'..='\u{202e}' => {
                append(line, format_args!("\\u{:04x}", u32::from(char)));
            }
            _ => append(line, format_args!("{char}")),
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn line(format: LogFormat, target: &str, agent: &[u8]) -> String {
        let mut line = Vec::new();
        let agent = HeaderValue::from_bytes(agent).unwrap();
        let entry = Entry {
            time: UNIX_EPOCH + Duration::from_secs(971_186_136),
            peer: Peer::Internet("::ffff:192.0.2.1".parse().unwrap()),
            request: Some(RequestLine {
                method: &Method::GET,
                target: &target.parse().unwrap(),
                version: Version::HTTP_11,
            }),
            status: StatusCode::OK,
            bytes: 2326,
            duration: Duration::from_micros(70),
            referer: None,
            user_agent: Some(&agent),
            upstream: None,
        };
        write(format, &entry, &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_three_formats() {
        let common = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 2326"#;
        assert_eq!(
            line(LogFormat::Common, "/a?b=c", b"x"),
            format!("{common}\n")
        );
        assert_eq!(
            line(LogFormat::Combined, "/a?b=c", b"curl/8"),
            format!("{common} \"-\" \"curl/8\"\n")
        );
        assert_eq!(
            line(LogFormat::Json, "/a?b=c", b"curl/8"),
            concat!(
                r#"{"time":"2000-10-10T13:55:36.000000Z","peer":"192.0.2.1","method":"GET","#,
                r#""target":"/a?b=c","version":"HTTP/1.1","status":200,"bytes":2326,"#,
                r#""duration_us":70,"user_agent":"curl/8"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn nothing_escapes() {
        let nasty = b"\"}\\ \t\xff\xc2\x9b[2J";
        let combined = line(LogFormat::Combined, "/", nasty);
        assert!(
            combined.contains(r#" "\x22}\x5C \x09\xFF\xC2\x9B[2J""#),
            "{combined}"
        );
        let json = line(LogFormat::Json, "/", nasty);
        assert!(json.contains(r#""user_agent":"\"}\\ \u0009"#), "{json}");
        assert!(json.contains(r"\u009b[2J"), "{json}");
        for text in [combined, json] {
            assert!(text.trim_end().chars().all(|c| !c.is_control()));
        }
    }
}
