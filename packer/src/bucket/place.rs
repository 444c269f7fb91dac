//! Where a command's OUT is.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use shade_dataset::{Url, cache_folder};

use super::address::url_of;
use super::left::Work;
use super::made::Bucket;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::{Content, work_folder};
use crate::publish::Partial;

/// What the folders of work for buckets are called in the user's cache.
const KIND: &str = "packing";

/// Where on this machine a dataset is made that goes to an address.
fn local_of(url: &Url) -> Result<PathBuf, Error> {
    let name = url.prefix().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("dataset");
    Ok(cache_folder(KIND, url)?.join(name))
}

/// Whether a command was killed after it had made the dataset at the address `out`, and before it
/// had removed what it was made from: the folder of the work `id`.
pub(crate) fn is_left(out: &Path, id: &str) -> bool {
    let local = url_of(out).and_then(|url| local_of(&url).ok());
    local.is_some_and(|local| work_folder(&local, id).exists())
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
    /// The place of `out`. With an address, nobody else writes there while it lives.
    ///
    /// # Errors
    /// The store does not answer, another command writes there, or the cache cannot be written.
    pub(crate) fn take(out: &Path) -> Result<Self, Error> {
        let Some(url) = url_of(out) else { return Ok(Self { local: out.to_owned(), bucket: None }) };
        let local = local_of(&url)?;
        let folder = local.parent().unwrap_or(&local);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(Error::io("create", folder))?;
        let bucket = Bucket::take(&url)?;
        Ok(Self { local, bucket: Some(bucket) })
    }
}

/// A dataset that one run makes, and with which no other goes on.
#[derive(Debug)]
pub(crate) struct Made {
    partial: Partial,
    bucket: Option<Bucket>,
}

impl Made {
    /// Begins a dataset at `out`, which may be an address.
    ///
    /// # Errors
    /// Something is there, or another command makes it: usage. Or nothing can be made there.
    pub(crate) fn begin(out: &Path) -> Result<Self, Error> {
        let Place { local, bucket } = Place::take(out)?;
        if let Some(bucket) = &bucket {
            bucket.prepare(out, Work { splits: &[], has_records: false, restart: false })?;
        }
        Ok(Self { partial: Partial::create(&local, Content::Pack(Vec::new()))?, bucket })
    }

    /// Where its files are until it is published.
    pub(crate) fn folder(&self) -> &Path {
        self.partial.path()
    }

    /// Makes the dataset appear at once, unless the command should stop.
    ///
    /// # Errors
    /// It cannot be written there; or another one is there by now: usage.
    pub(crate) fn publish(&mut self, stop: &Stop) -> Result<(), Error> {
        stop.check()?;
        match &self.bucket {
            None => self.partial.publish(),
            Some(bucket) => bucket.publish(self.partial.path(), None, stop),
        }
    }
}
