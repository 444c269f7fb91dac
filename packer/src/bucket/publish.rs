//! Makes a dataset of the shards that are in a bucket: its index comes last, and names what is
//! there.

use std::path::Path;

use shade_dataset::{Version, When, Written, regular};
use shade_formats::index::INDEX_FILE;
use shade_formats::limits::INDEX_BYTES_MAX;

use super::address::below;
use super::left::exists;
use super::made::{Bucket, is_same, names_in};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::done_of;
use crate::pack::{PlacedShard, placed_in};
use crate::plan::shard_number;
use crate::times::TIMES_FILE;

impl Bucket {
    /// Makes a dataset of what is in `folder`: puts what lies there into the bucket's folder
    /// `split`, the index last. `unrecorded` are shards that the bucket has already, and of which
    /// no record of completion is in `folder`.
    ///
    /// # Errors
    /// The store does not take it; what was written is not there any more, or a dataset with
    /// another index is there by now: usage.
    pub(crate) fn publish(
        &self,
        folder: &Path,
        split: Option<&str>,
        unrecorded: Vec<PlacedShard>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let mut placed = placed_in(folder)?;
        placed.extend(unrecorded);
        for name in names_in(folder)?.into_iter().filter(|name| shard_number(name).is_some()) {
            // A run that was killed behind the record of completion left the file.
            if !done_of(folder, &name).exists() {
                let etag = self.place(&folder.join(&name), &below(split, &name), stop)?;
                placed.push(PlacedShard { name, etag });
            }
        }
        let times = folder.join(TIMES_FILE);
        if times.is_file() {
            self.place(&times, &below(split, TIMES_FILE), stop)?;
        }
        self.check_placed(&placed, split)?;
        self.put_index(&folder.join(INDEX_FILE), &below(split, INDEX_FILE), None, stop)
    }

    /// Puts the index in `folder`, and times if there are some, in the place of the index of this
    /// version.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn extend(&self, folder: &Path, version: &Version, stop: &Stop) -> Result<(), Error> {
        self.check_placed(&placed_in(folder)?, None)?;
        let times = folder.join(TIMES_FILE);
        if times.is_file() {
            self.check_claim(TIMES_FILE)?;
            let there = self.look(TIMES_FILE)?;
            let when = When::unchanged(there.as_ref());
            if self.put_file(&times, TIMES_FILE, when, stop)? == Written::Refused {
                return Err(self.written_by_another(TIMES_FILE));
            }
        }
        self.put_index(&folder.join(INDEX_FILE), INDEX_FILE, Some(version), stop)
    }

    /// Whether an index is there that a command of this machine has written, which did not come to
    /// its end.
    pub(super) fn has_own_index(&self) -> Result<bool, Error> {
        Ok(self.look(INDEX_FILE)?.is_some_and(|there| self.is_marked(&there)))
    }

    /// Makes sure that the dataset there is the one in `folder`, by its index, and is whole.
    ///
    /// # Errors
    /// It is another one, or something is missing: usage. Or the store does not answer.
    pub(super) fn compare(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(INDEX_FILE);
        let own = regular::read(&path).map_err(Error::io("read", &path))?;
        if self.get(INDEX_FILE, INDEX_BYTES_MAX)?.is_none_or(|there| there.bytes != own) {
            return Err(exists(Path::new(self.url().as_str())));
        }
        let is_other = |name: &str| name == TIMES_FILE || shard_number(name).is_some();
        for name in names_in(folder)?.into_iter().filter(|name| is_other(name)) {
            if !self.is_as_in(&folder.join(&name), &name)? {
                return Err(Error::Usage(format!(
                    "{} was written and is not there any more, or is another one: remove {} and begin again",
                    self.url_of(&name),
                    self.url()
                )));
            }
        }
        Ok(())
    }

    /// Makes sure that an index will name what is there: a machine that was thought to be dead may
    /// have removed or replaced some.
    fn check_placed(&self, placed: &[PlacedShard], split: Option<&str>) -> Result<(), Error> {
        let listed = if placed.is_empty() { Vec::new() } else { self.list()? };
        for PlacedShard { name, etag } in placed {
            let name = below(split, name);
            let at = listed.binary_search_by(|found| found.name.cmp(&name)).ok();
            let found = at.and_then(|at| listed.get(at)).and_then(|found| found.etag.as_deref());
            if !etag.is_empty() && found.is_some_and(|found| is_same(found, etag)) {
                continue;
            }
            // Lists of some stores have other versions than the objects themselves.
            let there = self.look(&name)?;
            if !there.as_ref().is_some_and(|there| self.is_placed(there, etag)) {
                let now = there.map_or_else(
                    || "it is gone".to_owned(),
                    |there| format!("its ETag is {}, was {etag}", there.version.etag.unwrap_or_default()),
                );
                return Err(Error::Usage(format!(
                    "{} is not what was written there any more, somebody has removed or replaced it ({now}): not going on",
                    self.url_of(&name)
                )));
            }
        }
        Ok(())
    }

    /// Puts an index there. `before` is the version that it takes the place of.
    fn put_index(&self, path: &Path, name: &str, before: Option<&Version>, stop: &Stop) -> Result<(), Error> {
        self.check_claim(name)?;
        let when = before.map_or(When::Absent, When::still);
        // A store may know no conditions, so what can be known is looked at first.
        let written = if when.holds(self.look(name)?.as_ref()) {
            self.note_may_appear(true);
            self.put_file(path, name, when, stop)
        } else {
            Ok(Written::Refused)
        };
        let url = self.url_of(name);
        let refused = match written {
            Ok(Written::Done(_)) => return Ok(()),
            Ok(Written::Refused) => {
                self.note_may_appear(false);
                Error::Usage(format!("{url} was written by another command meanwhile: see what it is"))
            }
            Err(refused) => refused,
        };
        // Written by a run that was killed, or by a request whose answer was lost.
        let own = regular::read(path).map_err(Error::io("read", path))?;
        match self.get(name, INDEX_BYTES_MAX) {
            Ok(Some(there)) if there.bytes == own => Ok(()),
            _ => Err(refused),
        }
    }

    /// Removes the object of a shard that was placed there. One that is another by now stays.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub(crate) fn remove_placed(&self, placed: &PlacedShard) -> Result<(), Error> {
        let there = self.look(&placed.name)?;
        match there.filter(|there| self.is_placed(there, &placed.etag) || self.is_marked(there)) {
            None => Ok(()),
            Some(there) => self.remove(&placed.name, &there.version),
        }
    }
}
