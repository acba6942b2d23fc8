//! A certificate of the servers that an experiment starts.

use std::fs;
use std::io;
use std::path::PathBuf;

use rcgen::generate_simple_self_signed;
use rustls::pki_types::CertificateDer;

use super::readable_by_all;

/// A self-signed certificate for [`NAME`](Self::NAME) and its key, generated for a run: two PEM files in a temporary
/// directory.
#[derive(Debug)]
pub struct Certificate {
    der: CertificateDer<'static>,
    directory: tempfile::TempDir,
}

impl Certificate {
    /// The name of the server.
    pub const NAME: &'static str = "localhost";

    /// Generates the certificate. All users may read its files: servers that root starts give up their rights.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn new() -> io::Result<Self> {
        let made =
            generate_simple_self_signed([Self::NAME.to_owned()]).map_err(io::Error::other)?;
        let certificate = Self {
            der: made.cert.der().clone(),
            directory: tempfile::tempdir()?,
        };
        readable_by_all(certificate.directory.path())?;
        fs::write(certificate.chain(), made.cert.pem())?;
        fs::write(certificate.key(), made.signing_key.serialize_pem())?;
        Ok(certificate)
    }

    /// Returns the path of the certificate.
    pub fn chain(&self) -> PathBuf {
        self.directory.path().join("chain.pem")
    }

    /// Returns the path of the key.
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// Returns the certificate, for clients that trust it.
    pub const fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
}
