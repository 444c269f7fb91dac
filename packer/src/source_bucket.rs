//! A source in a bucket: what lies below its address, and the bytes of that.
//!
//! All of it is listed once. An object's identity is its length and its version, 64 bits of its
//! ETag, which every answer is compared with: one that was replaced since is named, never mixed.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use shade_dataset::{Answer, Found, IsStopped, Objects, PATIENCE, Patience, StoreFault, Url, version_of};
use xxhash_rust::xxh3::Xxh3;

/// Most connections that stay open between requests: one for each thread that may read.
const CONNECTIONS_MAX: usize = 1024;

/// The objects below the address of a source. Clones share one client and one listing.
#[derive(Clone)]
pub(crate) struct SourceBucket(Arc<BucketState>);

struct BucketState {
    url: Url,
    /// The client, made when it is first needed.
    objects: OnceLock<Result<Objects, StoreFault>>,
    /// What lies there, by name, once it was listed.
    listed: OnceLock<Vec<ListedObject>>,
    has_answered: AtomicBool,
}

/// An object as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedObject {
    /// Below the address.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// `None` if the store says none.
    pub(crate) version: Option<i64>,
}

/// A tar in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketTar {
    pub(crate) bucket: SourceBucket,
    /// Below the bucket's address.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) version: i64,
}

/// What must be true of an object that is read: it is the one that was listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) bytes: u64,
    pub(crate) version: i64,
}

/// Why bytes of an object could not be had, in words that go behind its address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectFault {
    #[error("changed meanwhile: it had {listed} bytes when listed, {now} when read")]
    Resized { listed: u64, now: u64 },
    #[error("changed meanwhile: another object has taken its place since it was listed")]
    Replaced,
    #[error("changed meanwhile: {0}")]
    Gone(StoreFault),
    #[error("{0}")]
    Store(StoreFault),
}

impl ObjectFault {
    /// What the store says, if it and not the object is the trouble: leaving out the object would
    /// not help.
    pub(crate) fn of_the_store(&self) -> Option<&StoreFault> {
        match self {
            Self::Store(fault) => Some(fault),
            Self::Resized { .. } | Self::Replaced | Self::Gone(_) => None,
        }
    }
}

impl SourceBucket {
    /// Nothing is asked yet.
    pub(crate) fn new(url: Url) -> Self {
        let (objects, listed) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(BucketState { url, objects, listed, has_answered: AtomicBool::new(false) }))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0.url
    }

    /// What lies below the address, in the order of names. It is listed when this is first called,
    /// and `seen` is told of each as it comes; later calls give the same.
    ///
    /// # Errors
    /// What the store answers instead.
    pub(crate) fn listed(
        &self,
        is_stopped: IsStopped<'_>,
        seen: &dyn Fn(u64),
    ) -> Result<&[ListedObject], StoreFault> {
        if let Some(listed) = self.0.listed.get() {
            return Ok(listed);
        }
        let listed = self.list(is_stopped, seen)?;
        Ok(self.0.listed.get_or_init(|| listed))
    }

    /// Whether it was listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.0.listed.get().is_some()
    }

    fn list(&self, is_stopped: IsStopped<'_>, seen: &dyn Fn(u64)) -> Result<Vec<ListedObject>, StoreFault> {
        let mut all: Vec<ListedObject> = Vec::new();
        loop {
            let before = all.len();
            let is_whole = self.patience(is_stopped).ask(|| {
                // A list that is cut goes on behind the last name, where names come in order.
                if !all.is_sorted_by(|a, b| a.name <= b.name) {
                    all.clear();
                }
                let after = all.last().map(|last| last.name.clone());
                let take = |found: Found| {
                    all.push(found.into());
                    seen(1);
                };
                match self.objects()?.list_behind(after.as_deref(), take) {
                    // It got on: that is no trouble yet.
                    Err(_) if all.len() > before => Ok(false),
                    Err(fault) => Err(fault),
                    Ok(()) => Ok(true),
                }
            })?;
            self.0.has_answered.store(true, Ordering::Relaxed);
            if is_whole {
                break;
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // A name that stands for a folder may come as the folder's own and once more.
        all.dedup_by(|a, b| a.name == b.name);
        Ok(all)
    }

    /// Identifies what was listed: each name, length and version.
    pub(crate) fn state_of(listed: &[ListedObject]) -> i64 {
        let mut hash = Xxh3::new();
        for ListedObject { name, bytes, version } in listed {
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            hash.update(&bytes.to_le_bytes());
            hash.update(&version.unwrap_or_default().to_le_bytes());
        }
        hash.digest().cast_signed()
    }

    /// Appends the bytes `range` of an object to `bytes`. Trouble of the store that may pass is
    /// waited for.
    ///
    /// # Errors
    /// The object is not the one that was listed, or the store does not give it.
    pub(crate) fn read(
        &self,
        name: &str,
        range: Range<u64>,
        listed: Identity,
        bytes: &mut Vec<u8>,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), ObjectFault> {
        if range.is_empty() {
            return Ok(());
        }
        let start = bytes.len();
        let read = self.patience(is_stopped).ask(|| {
            bytes.truncate(start);
            self.objects()?.read_now(name, range.clone(), None, |piece| bytes.extend_from_slice(piece))
        });
        let outcome = match read {
            Ok(found) => {
                self.0.has_answered.store(true, Ordering::Relaxed);
                is_listed(&found, listed)
            }
            Err(fault) => Err(match fault.answer {
                Answer::NotFound | Answer::OutOfRange | Answer::Changed => ObjectFault::Gone(fault),
                _ => ObjectFault::Store(fault),
            }),
        };
        if outcome.is_err() {
            bytes.truncate(start);
        }
        outcome
    }

    fn patience<'s>(&self, is_stopped: IsStopped<'s>) -> Patience<'s> {
        let has_answered = self.0.has_answered.load(Ordering::Relaxed);
        Patience { lasts: PATIENCE, has_answered, is_stopped }
    }

    fn objects(&self) -> Result<&Objects, StoreFault> {
        let opened = self.0.objects.get_or_init(|| Objects::open(&self.0.url, CONNECTIONS_MAX));
        opened.as_ref().map_err(StoreFault::clone)
    }
}

/// Checks that an answer is of the object that was listed.
fn is_listed(found: &Found, listed: Identity) -> Result<(), ObjectFault> {
    if found.bytes != listed.bytes {
        return Err(ObjectFault::Resized { listed: listed.bytes, now: found.bytes });
    }
    match &found.etag {
        Some(etag) if version_of(etag) == listed.version => Ok(()),
        _ => Err(ObjectFault::Replaced),
    }
}

impl From<Found> for ListedObject {
    fn from(found: Found) -> Self {
        let Found { name, bytes, etag } = found;
        Self { name, bytes, version: etag.as_deref().map(version_of) }
    }
}

impl ListedObject {
    /// What it is known by, if the store has versions.
    pub(crate) fn identity(&self) -> Option<Identity> {
        Some(Identity { bytes: self.bytes, version: self.version? })
    }
}

impl BucketTar {
    /// Appends the bytes `range` to `bytes`.
    ///
    /// # Errors
    /// As [`SourceBucket::read`].
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        bytes: &mut Vec<u8>,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), ObjectFault> {
        let listed = Identity { bytes: self.bytes, version: self.version };
        self.bucket.read(&self.name, range, listed, bytes, is_stopped)
    }

    /// Its address.
    pub(crate) fn url(&self) -> Url {
        self.bucket.url().join(&self.name)
    }
}

impl PartialEq for SourceBucket {
    fn eq(&self, other: &Self) -> bool {
        self.url() == other.url()
    }
}

impl Eq for SourceBucket {}

impl fmt::Debug for SourceBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceBucket").field(&self.url().as_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: u64, etag: Option<&str>) -> Found {
        Found { name: "a".to_owned(), bytes, etag: etag.map(str::to_owned) }
    }

    #[test]
    fn an_answer_must_be_of_the_object_that_was_listed() {
        let listed = ListedObject::from(found(7, Some("\"x\""))).identity().unwrap();
        assert_eq!(is_listed(&found(7, Some("\"x\"")), listed), Ok(()));
        assert_eq!(is_listed(&found(7, Some("x")), listed), Ok(()), "some answers do not quote it");
        assert_eq!(is_listed(&found(7, Some("\"y\"")), listed), Err(ObjectFault::Replaced));
        assert_eq!(is_listed(&found(7, None), listed), Err(ObjectFault::Replaced));
        let resized = ObjectFault::Resized { listed: 7, now: 8 };
        assert_eq!(is_listed(&found(8, Some("\"x\"")), listed), Err(resized));
    }

    #[test]
    fn a_state_is_of_names_lengths_and_versions() {
        let of = |objects: &[(&str, u64, &str)]| {
            let object = |(name, bytes, etag): &(&str, u64, &str)| ListedObject {
                name: (*name).to_owned(),
                bytes: *bytes,
                version: Some(version_of(etag)),
            };
            SourceBucket::state_of(&objects.iter().map(object).collect::<Vec<_>>())
        };
        let all = of(&[("a", 1, "x"), ("b", 2, "y")]);
        assert_eq!(all, of(&[("a", 1, "x"), ("b", 2, "y")]));
        for other in [
            &[("a", 1, "x")][..],
            &[("a", 1, "x"), ("c", 2, "y")],
            &[("a", 1, "x"), ("b", 3, "y")],
            &[("a", 1, "x"), ("b", 2, "z")],
            &[("b", 2, "y"), ("a", 1, "x")],
        ] {
            assert_ne!(all, of(other), "{other:?}");
        }
    }
}
