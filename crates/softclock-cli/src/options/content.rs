//! The options that select the content of a site and shape its responses.

use std::time::Duration;

use clap::Args;
use softclock_http::{ErrorPage, HeaderRule, Site};

use crate::values::seconds;

/// Options that shape the responses of a [`Site`].
#[derive(Args, Clone, PartialEq, Debug)]
#[command(next_help_heading = "Content")]
pub(crate) struct ContentOptions {
    /// Send the file's precompressed sibling .br, .zst or .gz to clients that accept it, unless it is older
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = on_or_off)]
    pub(crate) precompressed: bool,

    /// Memory that caches small, frequently requested files, such as 64M, of which each thread has an equal part; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub(crate) cache: usize,

    /// Longest time until a change of a cached file is noticed
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "1", value_parser = seconds)]
    pub(crate) cache_revalidate: Duration,

    /// List directories that have no index file
    #[arg(long, requires = "directory")]
    pub(crate) listing: bool,

    /// File below DIR to send with errors of a status, such as 404=/errors/404.html; repeatable. Malformed requests get
    /// a plain line
    #[arg(long, value_name = "STATUS=PATH")]
    pub(crate) error_page: Vec<ErrorPage>,

    /// Header field for matching paths, such as '/assets/*=Cache-Control: max-age=86400'; * matches any text, an empty
    /// value removes the field; repeatable
    #[arg(long, value_name = "PATTERN=NAME: VALUE")]
    pub(crate) header: Vec<HeaderRule>,
}

impl ContentOptions {
    /// Applies these options to `site`.
    pub(crate) fn apply(&self, site: Site) -> Site {
        let mut site = site
            .with_precompressed(self.precompressed)
            .with_cache(self.cache)
            .with_cache_revalidate(self.cache_revalidate)
            .with_listing(self.listing);
        for page in &self.error_page {
            site = site.with_error_page(page.clone());
        }
        for rule in &self.header {
            site = site.with_header(rule.clone());
        }
        site
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

/// Parses a number of bytes, with an optional K, M or G (powers of 1024).
pub(super) fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "not a size; write 64M, 512K, 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        content: ContentOptions,

        /// Some options need it.
        #[arg(id = "directory")]
        _directory: Option<String>,
    }

    fn parse(arguments: &[&str]) -> Result<ContentOptions, String> {
        let arguments = ["test"].iter().chain(arguments);
        match Only::try_parse_from(arguments) {
            Ok(only) => Ok(only.content),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn defaults_are_the_library_s() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.cache, softclock_http::DEFAULT_CACHE_BYTES);
        assert_eq!(
            options.cache_revalidate,
            softclock_http::DEFAULT_CACHE_REVALIDATE
        );
        assert!(options.precompressed && !options.listing);
    }

    #[test]
    fn values() {
        let options = parse(&[
            "--precompressed=off",
            "--cache=512k",
            "--listing",
            "--error-page=404=/e.html",
            "--header=*=X: a=b: c",
            "/srv",
        ]);
        let options = options.unwrap();
        assert_eq!((options.precompressed, options.cache), (false, 512 << 10));
        assert_eq!(options.error_page, ["404=/e.html".parse().unwrap()]);
        assert_eq!(
            options.header,
            [HeaderRule::new("*", "X", "a=b: c").unwrap()]
        );
    }

    #[test]
    fn mistakes() {
        for (argument, part) in [
            ("--precompressed=yes", "on or off"),
            ("--cache=64 MB", "64M"),
            ("--cache=99999999999G", "64M"),
            ("--cache=", "64M"),
            ("--error-page=404", "404=/errors/404.html"),
            ("--header=X: y", "PATTERN=Name: value"),
            ("--header=*=Content-Length: 1", "only the server can set"),
        ] {
            let error = parse(&[argument]).err().unwrap();
            assert!(error.lines().next().unwrap().contains(part), "{error}");
        }
    }
}
