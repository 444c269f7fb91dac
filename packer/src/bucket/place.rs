//! Where a command's OUT is.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use shade_dataset::{Url, Version, cache_folder};
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::limits::INDEX_BYTES_MAX;

use super::address::url_of;
use super::left::Work;
use super::made::Bucket;
use super::object::Got;
use super::shards_to::ShardsTo;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::Content;
use crate::pack::PlacedShard;
use crate::publish::Partial;

/// What the folders of work for buckets are called in the user's cache.
const KIND: &str = "packing";

/// Where on this machine a dataset is made that goes to an address.
fn local_of(url: &Url) -> Result<PathBuf, Error> {
    let name = url.prefix().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("dataset");
    Ok(cache_folder(KIND, url)?.join(name))
}

/// Whether a command was killed after it had made the dataset at the address `out`, and before it
/// had removed what it was made from.
pub(crate) fn is_left(out: &Path) -> bool {
    let local = url_of(out).and_then(|url| local_of(&url).ok());
    local.as_deref().and_then(Path::parent).is_some_and(Path::exists)
}

/// Where a dataset is made: in its place, or in a folder of the user's cache for a bucket.
#[derive(Debug)]
pub(crate) struct Place {
    /// The path at which a command makes it.
    pub(crate) local: PathBuf,
    /// Where it goes from there.
    pub(crate) bucket: Option<Bucket>,
}

impl Place {
    /// The place of `out`, and of the folders `splits` in it. With an address, nobody else writes
    /// there while it lives.
    ///
    /// # Errors
    /// The store does not answer, another command writes there, or the cache cannot be written.
    pub(crate) fn take(out: &Path, splits: &[String]) -> Result<Self, Error> {
        let Some(url) = url_of(out) else { return Ok(Self { local: out.to_owned(), bucket: None }) };
        let local = local_of(&url)?;
        let folder = local.parent().unwrap_or(&local);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(Error::io("create", folder))?;
        let bucket = Bucket::take(&url, splits, folder)?;
        Ok(Self { local, bucket: Some(bucket) })
    }
}

/// A dataset that one run makes, and with which no other goes on.
#[derive(Debug)]
pub(crate) struct Made {
    // Dropped first: the bucket removes the folder around it.
    partial: Partial,
    bucket: Option<Bucket>,
    /// The version of the index that this one's takes the place of.
    replaces: Option<Version>,
    /// A command of this machine was killed behind its index there.
    is_there: bool,
    is_published: bool,
}

impl Made {
    /// Begins a dataset at `out`, which may be an address.
    ///
    /// # Errors
    /// Something is there, or another command makes it: usage. Or nothing can be made there.
    pub(crate) fn begin(out: &Path) -> Result<Self, Error> {
        Self::begin_at(Place::take(out, &[])?, out, false)
    }

    /// As [`begin`](Self::begin), for a command that makes all here first. Where a command of this
    /// machine was killed behind its index in a bucket, this one makes it again and compares.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_or_find(out: &Path) -> Result<Self, Error> {
        let place = Place::take(out, &[])?;
        let is_there = place.bucket.as_ref().map_or(Ok(false), Bucket::has_own_index)?;
        Self::begin_at(place, out, is_there)
    }

    fn begin_at(place: Place, out: &Path, is_there: bool) -> Result<Self, Error> {
        let Place { local, bucket } = place;
        // First of all, as it removes what dead commands have left here. What they have put there
        // is known by its mark.
        let partial = Partial::create(&local, Content::Pack(Vec::new()))?;
        if let Some(bucket) = bucket.as_ref().filter(|_| !is_there) {
            let ready = bucket.prepare(out, Work { folder: None, restart: false });
            // One that was killed behind its index: nothing of ours is without a dataset.
            if ready.is_err() && bucket.has_own_index()? {
                bucket.note_finished();
            }
            ready?;
        }
        Ok(Self { partial, bucket, replaces: None, is_there, is_published: false })
    }

    /// Begins another index of files in the place of the one at the address `out`.
    ///
    /// # Errors
    /// There is none by now, or another command is at work there: usage.
    pub(crate) fn begin_again(out: &Path) -> Result<Self, Error> {
        let Place { local, bucket } = Place::take(out, &[])?;
        let there = bucket.as_ref().map(|bucket| bucket.get(INDEX_FILE, INDEX_BYTES_MAX)).transpose()?;
        let is_of_files =
            |got: &Got| Index::open(got.bytes.clone()).is_ok_and(|index| index.places().is_some());
        let Some(there) = there.flatten().filter(is_of_files) else {
            let text = format!("{} is no index of files any more: see what it is", out.display());
            return Err(Error::Usage(text));
        };
        let partial = Partial::create(&local, Content::Pack(Vec::new()))?;
        let replaces = Some(there.version);
        Ok(Self { partial, bucket, replaces, is_there: false, is_published: false })
    }

    /// Where its files are until it is published.
    pub(crate) fn folder(&self) -> &Path {
        self.partial.path()
    }

    /// Where complete shards go; `None` if they stay.
    pub(crate) fn shards_to(&self) -> Option<ShardsTo<'_>> {
        self.bucket.as_ref().map(|bucket| ShardsTo { bucket, split: None })
    }

    /// Makes the dataset appear at once, unless the command should stop. Whether it was there
    /// already, whole.
    ///
    /// # Errors
    /// It cannot be written there; or another one is there: usage.
    pub(crate) fn publish(&mut self, stop: &Stop) -> Result<bool, Error> {
        self.publish_with(Vec::new(), stop)
    }

    /// As [`publish`](Self::publish), where a bucket has these shards already, of which no record
    /// of completion is left.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn publish_with(&mut self, unrecorded: Vec<PlacedShard>, stop: &Stop) -> Result<bool, Error> {
        stop.check()?;
        match &self.bucket {
            None => self.partial.publish()?,
            Some(bucket) => {
                let folder = self.partial.path();
                match &self.replaces {
                    None if self.is_there => bucket.compare(folder)?,
                    None => bucket.publish(folder, None, unrecorded, stop)?,
                    Some(version) => bucket.extend(folder, version, stop)?,
                }
                bucket.note_finished();
            }
        }
        self.is_published = true;
        Ok(self.is_there)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.is_published
            && self.replaces.is_none()
            && let Some(bucket) = &self.bucket
        {
            // If the store does not answer, the next command there removes them.
            let _ = bucket.remove_left(None);
        }
    }
}
