//! Where a dataset lies: a folder on a file system, or a prefix in a bucket.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a dataset lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A folder, or a file, on a file system.
    Path(PathBuf),
    /// A prefix in a bucket, or a folder on a web server.
    Url(Url),
}

/// `s3://bucket/prefix` and its kind, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    text: String,
    /// Where the scheme ends, behind `://`.
    host_at: usize,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Its scheme is none that can be read.
    #[error("'{text}': cannot read from '{scheme}', expected a path, {SCHEMES}")]
    Scheme {
        /// The text.
        text: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// It names no bucket or no host.
    #[error("'{text}': it names no bucket, expected for example s3://bucket/prefix")]
    NoBucket {
        /// The text.
        text: String,
    },
    /// It has what an address of objects cannot have.
    #[error("'{text}': {what} at byte {at}, expected an address as in s3://bucket/prefix")]
    Odd {
        /// The text.
        text: String,
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

/// The schemes, as errors say them.
const SCHEMES: &str = "s3://, gs://, az://, https:// or http://";

impl Address {
    /// An address from what a user wrote. A text without `://` is a path.
    ///
    /// # Errors
    /// [`AddressError`]: it has a scheme that cannot be read, or names no bucket.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Path(text.into()));
        };
        // A folder may have such a name; nobody means it.
        let scheme_of = || AddressError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() };
        if !["s3", "gs", "az", "https", "http"].contains(&scheme) {
            return Err(scheme_of());
        }
        let odd = |at: usize, what| AddressError::Odd { text: text.to_owned(), what, at };
        if let Some(at) = text.find(['?', '#']) {
            return Err(odd(at, "a query"));
        }
        if let Some(at) = text.find(|c: char| c.is_control() || c == '\\') {
            return Err(odd(at, "a character that no object has"));
        }
        let rest = rest.trim_end_matches('/');
        let bucket = rest.split('/').next().unwrap_or_default();
        if bucket.is_empty() {
            return Err(AddressError::NoBucket { text: text.to_owned() });
        }
        if bucket.contains('@') {
            return Err(odd(scheme.len(), "a user's name or password"));
        }
        let mut at = scheme.len() + 3 + bucket.len() + 1;
        for part in rest.split('/').skip(1) {
            if matches!(part, "" | "." | "..") {
                return Err(odd(at, "an empty name, '.' or '..'"));
            }
            at += part.len() + 1;
        }
        let host_at = scheme.len() + 3;
        Ok(Self::Url(Url { text: format!("{scheme}://{rest}"), host_at }))
    }

    /// An address that is a path as the system has it, or what a user wrote as text.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of_path(path: &Path) -> Result<Self, AddressError> {
        match path.to_str() {
            Some(text) => Self::parse(text),
            None => Ok(Self::Path(path.to_owned())),
        }
    }
}

impl Url {
    /// The whole address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `s3`, `gs`, `az`, `https` or `http`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }

    /// The bucket, the container, or the host and its port.
    #[must_use]
    pub fn bucket(&self) -> &str {
        self.rest().split('/').next().unwrap_or_default()
    }

    /// What follows the bucket, without slashes at its ends.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.rest().split_once('/').map_or("", |(_, prefix)| prefix)
    }

    /// The address of `name` below this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self { text: format!("{}/{name}", self.text), host_at: self.host_at }
    }

    fn rest(&self) -> &str {
        self.text.get(self.host_at..).unwrap_or_default()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        match Address::parse(text) {
            Ok(Address::Url(url)) => url,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_users_write() {
        for path in ["data", "/data/a.shade", "./s3:/b", "s3", "C:/x", ""] {
            assert_eq!(Address::parse(path), Ok(Address::Path(path.into())));
        }
        for (text, whole, parts) in [
            ("s3://b/p/q/", "s3://b/p/q", ("s3", "b", "p/q")),
            ("s3://b", "s3://b", ("s3", "b", "")),
            ("gs://b/p", "gs://b/p", ("gs", "b", "p")),
            ("az://container/p", "az://container/p", ("az", "container", "p")),
            ("https://host:8080/a b/c", "https://host:8080/a b/c", ("https", "host:8080", "a b/c")),
        ] {
            let url = url(text);
            assert_eq!(url.as_str(), whole);
            assert_eq!((url.scheme(), url.bucket(), url.prefix()), parts);
            assert_eq!(url.join("x.tar").to_string(), format!("{whole}/x.tar"));
            assert_eq!(Address::parse(whole).unwrap().to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_place() {
        for (text, part) in [
            ("ftp://h/p", "cannot read from 'ftp'"),
            ("s3://", "names no bucket"),
            ("s3:///p", "names no bucket"),
            ("s3://b/../c", "at byte 7"),
            ("s3://b//c", "at byte 7"),
            ("s3://b/a/./c", "at byte 9"),
            ("https://h/p?x=1", "a query at byte 11"),
            ("https://me:word@h/p", "password"),
            ("s3://b/a\nb", "a character"),
        ] {
            let told = Address::parse(text).unwrap_err().to_string();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
