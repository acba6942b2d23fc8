//! TLS by rustls, with certificates from PEM files that can be replaced while the server runs.

mod validity;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use futures_rustls::TlsAcceptor;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::input::{InputKind, read_input};
pub use validity::Validity;

/// The certificate and settings with which a server speaks TLS 1.2 and 1.3. Clones share the certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    certificate: Arc<Certificate>,
}

/// A certificate with its key, as last read from its files.
#[derive(Debug)]
struct Certificate {
    files: Files,
    current: RwLock<Arc<CertifiedKey>>,
    /// The files' stamp when they were last read, with or without success.
    seen: Mutex<Option<Stamp>>,
}

#[derive(Debug)]
struct Files {
    chain: PathBuf,
    key: PathBuf,
}

type Stamp = [(SystemTime, u64); 2];

impl Tls {
    /// Reads a certificate chain, the server's own certificate first, and its private key from PEM files of at most 1
    /// MiB.
    ///
    /// # Errors
    /// If a file cannot be read or is not of the given `kind`, if it holds no certificate or key, or if the key does
    /// not belong to the certificate.
    pub fn load(
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        kind: InputKind,
    ) -> Result<Self, TlsError> {
        let files = Files {
            chain: chain.into(),
            key: key.into(),
        };
        let provider = Arc::new(ring::default_provider());
        // Taken before the files are read, so that the next refresh finds a change in between.
        let seen = Mutex::new(files.stamp());
        let current = RwLock::new(Arc::new(files.read(&provider, kind)?));
        let certificate = Arc::new(Certificate {
            files,
            current,
            seen,
        });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificate) as _);
        // The server's order of preference.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            certificate,
        })
    }

    /// Reads the files again if they have changed; returns whether there is a new certificate. Blocks on the disk, but
    /// never on a pipe.
    ///
    /// # Errors
    /// As [`load`](Self::load), once for each change of the files; the old certificate stays in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let certificate = &self.certificate;
        let stamp = certificate.files.stamp();
        let mut seen = certificate
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp {
            return Ok(false);
        }
        // Recorded before the files are read, so that a bad file is reported once and not at each call.
        *seen = stamp;
        let new = certificate
            .files
            .read(self.config.crypto_provider(), InputKind::Regular)?;
        let mut current = certificate
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(new);
        Ok(true)
    }

    /// Returns whether the current certificates are valid at `now`.
    pub fn validity(&self, now: SystemTime) -> Validity {
        let certificate = &self.certificate;
        let current = certificate.current();
        validity::of_chain(&current.cert, &certificate.files.chain, now)
    }

    /// Returns whether both currently present the same certificates, even if their files differ.
    pub fn has_same_certificates(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|tls| tls.certificate.current());
        own.cert == others.cert
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.config).into()
    }
}

impl Certificate {
    fn current(&self) -> Arc<CertifiedKey> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl Files {
    fn read(&self, provider: &CryptoProvider, kind: InputKind) -> Result<CertifiedKey, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(&self.chain, kind)?)
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::of(&self.chain, &error))?;
        if chain.is_empty() {
            return Err(TlsError::of(&self.chain, &"it holds no PEM certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key, kind)?)
            .map_err(|_| TlsError::of(&self.key, &"it holds no PEM private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::of(&self.key, &"it is not the key of the certificate")
            }
            error => TlsError::of(&self.chain, &error),
        })
    }

    fn stamp(&self) -> Option<Stamp> {
        let of = |path: &Path| {
            let file = fs::metadata(path).ok()?;
            Some((file.modified().ok()?, file.len()))
        };
        Some([of(&self.chain)?, of(&self.key)?])
    }
}

fn read(path: &Path, kind: InputKind) -> Result<Vec<u8>, TlsError> {
    read_input(path, kind).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "no such file".into(),
            io::ErrorKind::PermissionDenied => "permission denied; let this user read it".into(),
            _ => error.to_string(),
        };
        TlsError::of(path, &advice)
    })
}

/// The reason why a certificate cannot be used. Displayed as one line that names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl TlsError {
    fn of(path: &Path, reason: &dyn fmt::Display) -> Self {
        Self(format!("cannot use {} for TLS: {reason}", path.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed(vec![name.into()]).unwrap();
        fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn mistakes_name_the_file_and_the_old_certificate_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (
            directory.path().join("cert.pem"),
            directory.path().join("key.pem"),
        );
        let missing = Tls::load(&cert, &key, InputKind::Any)
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("cert.pem") && missing.contains("no such file"),
            "{missing}"
        );
        write(directory.path(), "one.test");
        let tls = Tls::load(&cert, &key, InputKind::Any).unwrap();
        let of = |tls: &Tls| tls.certificate.current.read().unwrap().cert.clone();
        let first = of(&tls);
        assert_eq!(tls.refresh(), Ok(false));

        fs::write(&key, "no key").unwrap();
        assert!(tls.refresh().unwrap_err().to_string().contains("key.pem"));
        assert_eq!(tls.refresh(), Ok(false), "told once");
        assert_eq!(of(&tls), first);

        let other = rcgen::generate_simple_self_signed(vec!["x".into()]).unwrap();
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        let mismatch = Tls::load(&cert, &key, InputKind::Any)
            .unwrap_err()
            .to_string();
        assert!(
            mismatch.contains("not the key of the certificate"),
            "{mismatch}"
        );

        write(directory.path(), "a-longer-name.test");
        let again = Tls::load(&cert, &key, InputKind::Any).unwrap();
        assert!(!again.has_same_certificates(&tls));
        assert_eq!(tls.refresh(), Ok(true));
        assert_ne!(of(&tls), first);
        assert!(again.has_same_certificates(&tls));
    }
}
