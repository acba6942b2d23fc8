//! The options of `softclock serve`.

use std::path::PathBuf;

use clap::Args;

use super::content::ContentOptions;
use super::server::ServerOptions;

/// The options of `softclock serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_NOTES)]
pub(crate) struct ServeOptions {
    /// Directory to serve [default: the bundled site]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// File to send for a request of its directory
    #[arg(long, value_name = "NAME", default_value = softclock_http::DEFAULT_INDEX, value_parser = file_name, requires = "directory")]
    pub(crate) index: String,

    #[command(flatten)]
    pub(crate) content: ContentOptions,

    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

const SERVE_NOTES: &str = "\
Names that start with a dot are not served, except /.well-known/ (RFC 8615). Symbolic links are followed if they are \
relative and stay inside DIR. Needs Linux 5.12.

SECONDS are a number, or a time with its unit: 500ms, 10s, 2m.

Examples:
  softclock serve                              the bundled site on http://127.0.0.1:8080/
  softclock serve --listen :8000 ~/public      a directory, for the whole network
  softclock serve --threads 2 --listen 127.0.0.1:8080 --listen '[::1]:8080' /srv/www
  softclock serve --listen tls::443 --tls-cert chain.pem --tls-key key.pem /srv/www
  softclock serve --config softclock.toml      listen = [\":80\", \"tls::443\"]
                                               directory = \"/srv/www\"
";

fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '\0']) || matches!(text, "." | "..") {
        return Err("not a file name".into());
    }
    Ok(text.into())
}
