//! The options of a server's operation: sockets, certificates, access log, metrics.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock_http::{ListenAddress, LogFormat};

use crate::values::seconds;

/// Options of one server.
#[derive(Args, Clone, PartialEq, Debug)]
#[command(next_help_heading = "Operation")]
pub(crate) struct OperationOptions {
    /// Permissions of unix:PATH sockets, in octal
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = octal)]
    pub(crate) socket_mode: u32,

    /// Certificate chain in PEM, for the addresses with tls:
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The certificate's private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// How often to check the certificate's files for changes; 0 to read them on SIGHUP only
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) tls_check: Duration,

    /// Write a line for each response to this file, or to stdout with -; SIGUSR1 reopens the file
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// Format of these lines: common, combined (with Referer and User-Agent) or json
    #[arg(long, value_name = "FORMAT", default_value = "common")]
    pub(crate) log_format: LogFormat,

    /// Address that serves metrics in Prometheus' format, at /metrics; repeatable
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Vec<ListenAddress>,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err("not permissions in octal, such as 660".into()),
    }
}
