//! Why no secure connection was made, and what to do.

use std::error::Error;
use std::io;

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error as TlsError};

/// The reason, in words that follow "no secure connection to the store".
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Insecure(String);

impl Insecure {
    /// The reason, if TLS is what made a request fail, or that there is none, if it `is_plain`.
    pub(crate) fn of(error: &(dyn Error + 'static), is_plain: bool) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(tls) = error.downcast_ref() {
                return Some(Self(words_of(tls)));
            }
            // A server of TLS answers a plain request by an alert.
            if is_plain && error.downcast_ref().is_some_and(hyper::Error::is_parse) {
                return Some(Self(
                    "what answers there speaks no HTTP: try https:// in its address".to_owned(),
                ));
            }
            // Its source is that of the error in it, which would be left out.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = match inner {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }
}

fn words_of(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(why) => words_of_certificate(why),
        TlsError::InvalidMessage(_) => {
            "what answers there speaks no TLS: try http:// in its address".to_owned()
        }
        TlsError::AlertReceived(_) | TlsError::PeerIncompatible(_) => {
            format!("the server and shade, which speaks TLS 1.2 and 1.3, have nothing in common: {error}")
        }
        other => other.to_string(),
    }
}

fn words_of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its certificate is of an authority that is not trusted here: let \
                                            AWS_CA_BUNDLE name a file with that authority's certificate"
            .to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            format!(
                "its certificate is not for {}, but for {names}: use a name that it has in the address, or give the \
                 server a certificate for this one",
                expected.to_str()
            )
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "its certificate has expired {} days ago by this machine's clock: give the server a new one, or set the clock",
            days(*not_after, *time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "its certificate becomes valid in {} days by this machine's clock: set the clock, or give the server another \
             certificate",
            days(*time, *not_before)
        ),
        // As `openssl req -x509` makes them, which is what many give to a server.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority (CA:TRUE), which no server may use: let the authority sign one for \
             the server"
                .to_owned()
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// A name in a certificate without its kind: `DnsName("a")` is a.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// Whole days between two times, rounded up.
fn days(from: UnixTime, to: UnixTime) -> u64 {
    to.as_secs().saturating_sub(from.as_secs()).div_ceil(24 * 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_found_below_errors_of_the_system() {
        let tls = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::other(io::Error::other(tls));
        let told = Insecure::of(&error, false).unwrap().to_string();
        assert!(told.contains("AWS_CA_BUNDLE"), "{told}");
        assert!(Insecure::of(&io::Error::other("refused"), true).is_none());
        assert!(Insecure::of(&io::Error::from_raw_os_error(5), true).is_none());
    }

    #[test]
    fn names_are_told_without_their_kind() {
        for (name, plain) in [("DnsName(\"a.b\")", "a.b"), ("IpAddress(127.0.0.1)", "127.0.0.1"), ("c", "c")]
        {
            assert_eq!(bare(name), plain);
        }
    }

    #[test]
    fn each_reason_says_what_to_do() {
        let at = |day: u64| UnixTime::since_unix_epoch(std::time::Duration::from_secs(day * 86_400));
        for (why, expected) in [
            (CertificateError::ExpiredContext { time: at(9), not_after: at(6) }, "expired 3 days ago"),
            (CertificateError::NotValidYetContext { time: at(6), not_before: at(8) }, "valid in 2 days"),
            (CertificateError::BadSignature, "is not accepted"),
        ] {
            let told = words_of(&TlsError::InvalidCertificate(why));
            assert!(told.contains(expected), "{told}");
        }
    }
}
