//! Writes a dataset into a bucket.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shade_dataset::{
    Answer, Found, StoreFault, Upload, UploadFault, Uploads, Url, Version, When, Written, regular,
};
use shade_formats::index::INDEX_FILE;
use shade_formats::limits::INDEX_BYTES_MAX;

use super::address::{below, with_none};
use super::claim::ObjectClaim;
use super::mark::{self, Mark};
use super::object::{Got, fault, get};
use crate::claim::CLAIM_FILE;
use crate::error::Error;
use crate::files;
use crate::interrupt::{Stop, step};
use crate::leftovers::{done_of, remove_file};
use crate::pack::{Gate, Pass};
use crate::plan::{UPLOAD, shard_number};
use crate::times::TIMES_FILE;

/// Objects up to this length are written by one request.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Shards that are written to disk, or wait there until the bucket has them.
const SHARDS_MAX: u64 = 4;
/// Longest id of an upload that is read back, in bytes.
const ID_BYTES_MAX: u64 = 16 * 1024;

/// The prefix of a bucket that a command writes datasets to. Only this command does.
#[derive(Debug)]
pub(crate) struct Bucket {
    uploads: Uploads,
    claims: Vec<ObjectClaim>,
    /// Folders below the address that have a dataset each; none for the address itself.
    splits: Vec<String>,
    /// Where this machine has its work for the address.
    folder: PathBuf,
    mark: Mark,
    room: Gate,
    /// Whether no object of ours there is without a dataset.
    is_finished: AtomicBool,
    /// Whether this run has begun to write objects.
    has_written: AtomicBool,
}

impl Bucket {
    /// Takes the right to write below `url`, into these `splits` if there are any; it is given back
    /// when dropped. `folder` is where this machine has its work for it.
    pub(super) fn take(url: &Url, splits: &[String], folder: &Path) -> Result<Self, Error> {
        let mut bucket = Self {
            uploads: Uploads::open(url).map_err(fault("write to", url))?,
            claims: Vec::new(),
            splits: splits.to_vec(),
            folder: folder.to_owned(),
            mark: Mark::default(),
            room: Gate::new(SHARDS_MAX),
            is_finished: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
        };
        // Those of the splits, too: a command may make one of them alone.
        for split in with_none(splits) {
            bucket.claims.push(ObjectClaim::take(&bucket.uploads, below(split, CLAIM_FILE))?);
        }
        bucket.mark = mark::of(folder)?;
        bucket.uploads.mark_with(bucket.mark.text.clone());
        bucket.give_up_uploads()?;
        Ok(bucket)
    }

    pub(super) fn splits(&self) -> &[String] {
        &self.splits
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark.text
    }

    /// Says that no object of ours there is without a dataset.
    pub(crate) fn note_finished(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Whether that was said.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// Waits until there is room on the disk for one more shard.
    pub(crate) fn room(&self, stop: &Stop) -> Result<Pass<'_>, Error> {
        self.room.pass(1, stop)
    }

    pub(super) fn list(&self) -> Result<Vec<Found>, Error> {
        self.uploads.objects().list().map_err(fault("list", self.uploads.objects().url()))
    }

    /// Removes an object.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        self.uploads.remove(name).map_err(fault("remove", &self.url_of(name)))?;
        step();
        Ok(())
    }

    /// The mark that an object was written with, if any.
    pub(super) fn mark_of(&self, name: &str) -> Result<Option<String>, Error> {
        let looked = self.uploads.look(name).map_err(fault("look at", &self.url_of(name)))?;
        Ok(looked.and_then(|looked| looked.mark))
    }

    /// Whether an object is there, of this length and version.
    pub(crate) fn has(&self, name: &str, bytes: u64, etag: &str) -> Result<bool, Error> {
        let looked = self.uploads.look(name).map_err(fault("look at", &self.url_of(name)))?;
        Ok(looked.is_some_and(|looked| {
            looked.bytes == bytes && looked.version.etag.as_deref().unwrap_or_default() == etag
        }))
    }

    /// Puts the file at `path` there as `name`; gives its ETag, empty if the store says none.
    ///
    /// # Errors
    /// It cannot be read; the store does not take it; another command writes there by now, or has
    /// written it: usage. Or [`Error::Interrupted`].
    pub(crate) fn place(&self, path: &Path, name: &str, stop: &Stop) -> Result<String, Error> {
        let before = self.free(name)?;
        self.put_file(path, name, before.as_ref(), stop)
    }

    /// As [`place`](Self::place), in place of an object that belongs to the dataset.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub(crate) fn replace(&self, path: &Path, name: &str, stop: &Stop) -> Result<String, Error> {
        self.check_claim(name)?;
        self.put_file(path, name, None, stop)
    }

    fn put_file(
        &self,
        path: &Path,
        name: &str,
        before: Option<&Version>,
        stop: &Stop,
    ) -> Result<String, Error> {
        stop.check()?;
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("look at", path))?.len();
        self.has_written.store(true, Ordering::Relaxed);
        if bytes > WHOLE_BYTES_MAX {
            let upload = Upload { name, id: "", bytes };
            return self.put_in_parts(path, &file, upload, before, stop);
        }
        let content = read_at(&file, 0..bytes).map_err(Error::io("read", path))?;
        match self.uploads.put(name, content, When::Always) {
            Ok(Written::Done(version)) => Ok(version.etag.unwrap_or_default()),
            Ok(Written::Refused) => unreachable!("nothing was asked of what is there"),
            Err(refused) => self.looked_up(name, bytes, before, refused),
        }
    }

    /// Makes sure that writing an object loses nothing, as far as can be known now. Gives
    /// the version of one of ours that is there.
    fn free(&self, name: &str) -> Result<Option<Version>, Error> {
        self.check_claim(name)?;
        let url = self.url_of(name);
        match self.uploads.look(name).map_err(fault("look at", &url))? {
            Some(there) if there.mark.as_deref() != Some(self.mark()) => {
                Err(Error::Usage(format!("{url} was written by somebody else meanwhile: not going on")))
            }
            there => Ok(there.map(|there| there.version)),
        }
    }

    /// Makes sure that nobody else may write the object.
    fn check_claim(&self, name: &str) -> Result<(), Error> {
        let in_folder = |claim: &&ObjectClaim| name.starts_with(claim.folder());
        let claim = self.claims.iter().filter(in_folder).max_by_key(|claim| claim.folder().len());
        claim.map_or(Ok(()), |claim| claim.check(&self.uploads))
    }

    /// Puts the file at `path`, which is open, there in parts.
    fn put_in_parts(
        &self,
        path: &Path,
        file: &File,
        upload: Upload<'_>,
        before: Option<&Version>,
        stop: &Stop,
    ) -> Result<String, Error> {
        let Upload { name, bytes, .. } = upload;
        let id = self.uploads.begin(name).map_err(fault("write", &self.url_of(name)))?;
        let record = upload_record(path);
        files::put(&record, id.as_bytes(), false)?;
        let upload = Upload { id: &id, ..upload };
        let written = self.uploads.write(upload, |range| read_at(file, range), || stop.check().is_err());
        let done = match written {
            Ok(version) => Ok(version.etag.unwrap_or_default()),
            Err(UploadFault::Store(refused)) => self.looked_up(name, bytes, before, refused),
            Err(UploadFault::Read(source)) => Err(Error::io("read", path)(source)),
            Err(UploadFault::Stopped) => Err(Error::Interrupted),
        };
        step();
        // If the store does not answer now, the next run gives it up.
        if done.is_ok() || self.uploads.give_up(name, &id).is_ok() {
            remove_file(&record)?;
        }
        done
    }

    /// What became of a write whose answer was lost: the store has it, or says `refused`. `before`
    /// is what was there.
    fn looked_up(
        &self,
        name: &str,
        bytes: u64,
        before: Option<&Version>,
        refused: StoreFault,
    ) -> Result<String, Error> {
        // A second request to end an upload finds none, which some stores call forbidden.
        const MAY_BE_THERE: [Answer; 4] =
            [Answer::Cut, Answer::TimedOut, Answer::NotFound, Answer::Forbidden];
        let looked = MAY_BE_THERE.contains(&refused.answer).then(|| self.uploads.look(name));
        match looked {
            Some(Ok(Some(there)))
                if there.bytes == bytes
                    && there.mark.as_deref() == Some(self.mark())
                    && Some(&there.version) != before =>
            {
                Ok(there.version.etag.unwrap_or_default())
            }
            _ => Err(fault("write", &self.url_of(name))(refused)),
        }
    }

    /// Gives up the uploads that killed runs of this machine have begun below the address.
    fn give_up_uploads(&self) -> Result<(), Error> {
        for work in mark::work_in(&self.folder)?.iter().filter(|work| work.is_dir()) {
            for split in with_none(&folders_in(work)?) {
                let folder = split.map_or_else(|| work.clone(), |split| work.join(split));
                for file in names_in(&folder)? {
                    let shard = file.strip_suffix(UPLOAD).filter(|shard| shard_number(shard).is_some());
                    if let Some(shard) = shard {
                        self.give_up(&folder.join(&file), &below(split, shard))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn give_up(&self, record: &Path, name: &str) -> Result<(), Error> {
        let length = fs::metadata(record).map_or(0, |found| found.len());
        let id = regular::read(record).map(String::from_utf8);
        if let (Ok(Ok(id)), 1..=ID_BYTES_MAX) = (id, length) {
            match self.uploads.give_up(name, &id) {
                // What some stores say of an upload that is over.
                Err(refused) if refused.answer == Answer::Forbidden => {}
                given_up => given_up.map_err(fault("give up", &self.url_of(name)))?,
            }
        }
        remove_file(record)
    }

    /// Makes a dataset of what is in `folder`: puts what lies there into the bucket's folder
    /// `split`, the index last.
    ///
    /// # Errors
    /// The store does not take it; or a dataset with another index is there by now: usage.
    pub(crate) fn publish(&self, folder: &Path, split: Option<&str>, stop: &Stop) -> Result<(), Error> {
        for shard in names_in(folder)?.into_iter().filter(|name| shard_number(name).is_some()) {
            // A run that was killed behind the record of completion left the file.
            if !done_of(folder, &shard).exists() {
                self.place(&folder.join(&shard), &below(split, &shard), stop)?;
            }
        }
        let times = folder.join(TIMES_FILE);
        if times.is_file() {
            self.place(&times, &below(split, TIMES_FILE), stop)?;
        }
        stop.check()?;
        let (path, name) = (folder.join(INDEX_FILE), below(split, INDEX_FILE));
        let index = regular::read(&path).map_err(Error::io("read", &path))?;
        self.put_index(&name, index, When::Absent)
    }

    /// Puts an index in the place of the one of this version.
    ///
    /// # Errors
    /// The store does not take it; or another one is there by now: usage.
    pub(crate) fn replace_index(&self, index: Vec<u8>, version: &Version) -> Result<(), Error> {
        let is_known = *version != Version::default();
        self.put_index(INDEX_FILE, index, if is_known { When::Still(version) } else { When::Always })
    }

    fn put_index(&self, name: &str, index: Vec<u8>, when: When<'_>) -> Result<(), Error> {
        let url = self.url_of(name);
        let refused = match self.uploads.put(name, index.clone(), when) {
            Ok(Written::Done(_)) => return Ok(()),
            Ok(Written::Refused) => {
                Error::Usage(format!("{url} was written by another command meanwhile: see what it is"))
            }
            Err(refused) => fault("write", &url)(refused),
        };
        // Written by a run that was killed, or by a request whose answer was lost.
        match get(&self.uploads, name, INDEX_BYTES_MAX) {
            Ok(Some(there)) if there.bytes == index => Ok(()),
            _ => Err(refused),
        }
    }

    /// Reads a small object; `None` if there is none.
    pub(crate) fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Got>, Error> {
        get(&self.uploads, name, bytes_max)
    }

    fn url_of(&self, name: &str) -> Url {
        self.uploads.objects().url().join(name)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.claims.iter().for_each(|claim| claim.give_back(&self.uploads));
        let wrote_nothing = self.mark.is_new && !self.has_written.load(Ordering::Relaxed);
        if self.is_finished() || wrote_nothing {
            // What stays is 32 letters.
            let _ = mark::remove(&self.folder);
        }
    }
}

/// The file that remembers the upload of the shard at `path`.
fn upload_record(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UPLOAD);
    name.into()
}

/// Names in a folder, sorted.
fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// Names of folders in a folder: splits.
fn folders_in(folder: &Path) -> Result<Vec<String>, Error> {
    Ok(names_in(folder)?.into_iter().filter(|name| folder.join(name).is_dir()).collect())
}

fn read_at(file: &File, range: Range<u64>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}
