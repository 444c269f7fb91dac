//! Where a dataset grows: its folder, or a folder of the user's cache for one in a bucket.

use std::fs::{self, DirBuilder};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use shade_dataset::Version;
use shade_formats::index::INDEX_FILE;
use shade_formats::limits::INDEX_BYTES_MAX;

use super::names::first_shard;
use crate::assemble::Assembled;
use crate::bucket::{Bucket, Got, Place, ShardsTo};
use crate::claim::Claim;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::leftovers::{Content, has_records, open_folder, remove_file};
use crate::publish::sync_dir;
use crate::times::{TIMES_FILE, Times, write_times};

/// A dataset that only this command changes.
#[derive(Debug)]
pub(super) struct Ground {
    /// Where new shards are written. For a bucket, a copy of its index lies there, too.
    pub(super) dir: PathBuf,
    bucket: Option<InBucket>,
    _claim: Option<Claim>,
}

#[derive(Debug)]
struct InBucket {
    bucket: Bucket,
    /// That of the index that new samples are added to.
    version: Version,
    /// The first number that no shard of the dataset has.
    first: u32,
}

impl Ground {
    /// Takes the right to change the dataset at `out`, and its copy if it is in a bucket.
    ///
    /// # Errors
    /// There is no dataset; another command has it: usage; or a file or an object cannot be read.
    pub(super) fn take(out: &Path) -> Result<(Self, Dataset), Error> {
        let Place { local, bucket } = Place::take(out, &[])?;
        let Some(bucket) = bucket else {
            // OUT may be a link. The marker has the name of the folder itself, so that a killed
            // append is gone on with by any path to it.
            let dir = fs::canonicalize(&local).unwrap_or_else(|_| local.clone());
            // A folder that is no dataset is the first thing to tell.
            let claim = Claim::take(&dir);
            let dataset = Dataset { dir: dir.clone(), ..Dataset::open(&local)? };
            return Ok((Self { dir, bucket: None, _claim: Some(claim?) }, dataset));
        };
        let mut name = local.file_name().unwrap_or_default().to_owned();
        name.push(".append");
        let dir = local.with_file_name(name);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&dir).map_err(Error::io("create", &dir))?;
        let Got { bytes: index, version } = bucket
            .get(INDEX_FILE, INDEX_BYTES_MAX)?
            .ok_or_else(|| Error::Usage(format!("{} has no dataset: `create` makes one", out.display())))?;
        let there = InBucket { bucket, version, first: u32::MAX };
        let mut ground = Self { dir, bucket: Some(there), _claim: None };
        files::put(&ground.dir.join(INDEX_FILE), &index, false)?;
        match Times::bytes_in(out)? {
            Some(times) => write_times(&ground.dir, Some(&times), false)?,
            None => remove_file(&ground.dir.join(TIMES_FILE))?,
        }
        let dataset = Dataset { name: out.to_owned(), ..Dataset::open(&ground.dir)? };
        ground.bucket.iter_mut().for_each(|there| there.first = first_shard(&dataset));
        Ok((ground, dataset))
    }

    pub(super) fn bucket(&self) -> Option<&Bucket> {
        self.bucket.as_ref().map(|there| &there.bucket)
    }

    /// Where new shards go; `None` if they stay.
    pub(super) fn shards_to(&self) -> Option<ShardsTo<'_>> {
        self.bucket().map(|bucket| ShardsTo { bucket, split: None })
    }

    /// Puts the new index in the old one's place, once the shards it names are safe.
    pub(super) fn commit(&self, assembled: &Assembled, sync: bool, stop: &Stop) -> Result<(), Error> {
        let dir = &self.dir;
        if let Some(InBucket { bucket, version, .. }) = &self.bucket {
            assembled.write(dir, false)?;
            bucket.extend(dir, version, stop)?;
            bucket.note_finished();
            return Ok(());
        }
        if sync {
            sync_dir(dir)?;
        }
        assembled.write(dir, sync)?;
        if sync {
            sync_dir(dir)?;
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Nobody needs the copy of an index. Records of completion do count.
        if let Some(InBucket { bucket, first, .. }) = &self.bucket
            && !has_records(&self.dir)
            && let Ok(folder) = open_folder(&self.dir)
        {
            if !bucket.is_finished() {
                // If the store does not answer, the next run does it.
                let _ = bucket.remove_left(Some(*first));
            }
            let _ = Content::Pack(Vec::new()).remove(&self.dir, folder.as_fd());
        }
    }
}
