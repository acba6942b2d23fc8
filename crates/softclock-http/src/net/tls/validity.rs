//! The time in which the certificates of a chain are valid.
//!
//! rustls checks a certificate's dates before it looks for the issuer, and its errors contain them. So verifying each
//! certificate at the earliest and at the latest possible time reveals its dates, without another X.509 parser.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use super::TlsError;

/// Whether the dates of a chain's certificates let clients accept it at a certain time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// All certificates are valid now and for the next two weeks, or a third of their lives if that is shorter.
    Valid,
    /// All certificates are valid, but one of them expires within that time.
    ExpiresSoon(TlsError),
    /// A certificate has expired or is not valid yet, so clients refuse the chain.
    Invalid(TlsError),
}

/// Returns the validity at `now` of a `chain` that was read from `file`. The worst certificate decides.
pub(super) fn of_chain(chain: &[CertificateDer<'_>], file: &Path, now: SystemTime) -> Validity {
    let of_certificate = |(index, certificate)| {
        let name = match index {
            0 => format!("the certificate in {}", file.display()),
            _ => format!("certificate {} in {}", index + 1, file.display()),
        };
        of_certificate(certificate, &name, now)
    };
    let all: Vec<_> = chain.iter().enumerate().map(of_certificate).collect();
    let first = |kind: fn(&Validity) -> bool| all.iter().find(|validity| kind(validity)).cloned();
    first(|validity| matches!(validity, Validity::Invalid(_)))
        .or_else(|| first(|validity| matches!(validity, Validity::ExpiresSoon(_))))
        .unwrap_or(Validity::Valid)
}

fn of_certificate(certificate: &CertificateDer<'_>, name: &str, now: SystemTime) -> Validity {
    let Some((begin, end)) = dates(certificate) else {
        return Validity::Valid;
    };
    let date = httpdate::fmt_http_date;
    if now < begin {
        let text = format!("{name} is not valid before {}", date(begin));
        return Validity::Invalid(TlsError(format!("{text}: clients refuse it")));
    }
    if now > end {
        let text = format!("{name} expired on {}", date(end));
        return Validity::Invalid(TlsError(format!("{text}: clients refuse it")));
    }
    let life = end.duration_since(begin).unwrap_or_default();
    if end < now + SOON.min(life / 3) {
        let text = format!("{name} expires on {}: renew it", date(end));
        return Validity::ExpiresSoon(TlsError(text));
    }
    Validity::Valid
}

/// Returns the first and the last moment at which a certificate is valid, if rustls can parse them.
fn dates(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let roots = RootCertStore::empty();
    let error_at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        match verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], time, &[]) {
            Err(Error::InvalidCertificate(error)) => Some(error),
            _ => None,
        }
    };
    // At time 0 a certificate is not valid yet, unless it is valid from 1970 on.
    let begin = match error_at(0)? {
        CertificateError::NotValidYetContext { not_before, .. } => not_before.as_secs(),
        _ => 0,
    };
    // At the latest possible time every certificate has expired.
    let CertificateError::ExpiredContext { not_after, .. } = error_at(u64::MAX)? else {
        return None;
    };
    let system = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    Some((system(begin)?, system(not_after.as_secs())?))
}

/// Automatic renewal happens weeks before the end, so a certificate this close to it was not renewed. Those that live
/// for days are renewed before the last third of their lives.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(begin: i32, end: i32) -> CertificateDer<'static> {
        certificate_between((begin, 2, 3), (end, 2, 3))
    }

    /// Dates are years, months and days.
    fn certificate_between(begin: (i32, u8, u8), end: (i32, u8, u8)) -> CertificateDer<'static> {
        let date = |(year, month, day)| rcgen::date_time_ymd(year, month, day);
        let mut parameters = rcgen::CertificateParams::new(vec!["one.test".into()]).unwrap();
        parameters.not_before = date(begin);
        parameters.not_after = date(end);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().into()
    }

    #[test]
    fn dates_are_read_and_judged() {
        let chain = [certificate(2020, 9999), certificate(2010, 2060)];
        let (begin, end) = dates(&chain[1]).unwrap();
        assert_eq!(
            httpdate::fmt_http_date(begin),
            "Wed, 03 Feb 2010 00:00:00 GMT"
        );
        let day = Duration::from_secs(24 * 60 * 60);
        let at = |now| of_chain(&chain, Path::new("c.pem"), now);
        assert_eq!(at(end - 15 * day), Validity::Valid);
        for (now, expected) in [
            (begin + day, "the certificate in c.pem is not valid before"),
            (end - day, "certificate 2 in c.pem expires on"),
            (end + day, "certificate 2 in c.pem expired on"),
        ] {
            let (Validity::ExpiresSoon(line) | Validity::Invalid(line)) = at(now) else {
                panic!("valid: {expected}")
            };
            assert!(line.to_string().starts_with(expected), "{line}");
        }
        assert!(matches!(at(end - day), Validity::ExpiresSoon(_)));
        assert!(matches!(at(begin), Validity::Invalid(_)));
    }

    #[test]
    fn short_lives_end_soon_in_their_last_third() {
        let chain = [certificate_between((2030, 1, 1), (2030, 1, 7))];
        let (begin, _) = dates(&chain[0]).unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        let at = |days| of_chain(&chain, Path::new("c.pem"), begin + days * day);
        assert_eq!(at(1), Validity::Valid);
        assert_eq!(at(4), Validity::Valid);
        assert!(matches!(at(5), Validity::ExpiresSoon(_)));
        assert!(matches!(at(7), Validity::Invalid(_)));
    }

    #[test]
    fn what_is_no_certificate_is_not_judged() {
        let chain = [CertificateDer::from(vec![1, 2, 3])];
        assert_eq!(
            of_chain(&chain, Path::new("c.pem"), SystemTime::now()),
            Validity::Valid
        );
    }
}
