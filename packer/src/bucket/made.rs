//! Writes a dataset into a bucket.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shade_dataset::{
    Answer, Found, Looked, Upload, UploadFault, Uploads, Url, Version, When, Written, regular,
};
use xxhash_rust::xxh3::Xxh3;

use super::address::{below, with_none};
use super::claim::ObjectClaim;
use super::mark::{self, Mark};
use super::object::{Got, fault, get};
use crate::claim::CLAIM_FILE;
use crate::error::Error;
use crate::files;
use crate::interrupt::{Stop, step};
use crate::leftovers::{remove_file, uploaded};
use crate::pack::{Gate, Pass};
use crate::plan::UPLOAD;

/// Objects up to this length are written by one request.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Shards that are written to disk, or wait there until the bucket has them.
const SHARDS_MAX: u64 = 4;
/// Bytes of a file that are read at a time for their hash.
const PIECE_BYTES: u64 = 1 << 20;
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
    /// Whether an index of this run may appear: it was sent, and it is not known what became of it.
    may_appear: AtomicBool,
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
            may_appear: AtomicBool::new(false),
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

    pub(crate) fn url(&self) -> &Url {
        self.uploads.objects().url()
    }

    pub(super) fn splits(&self) -> &[String] {
        &self.splits
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Says that no object of ours there is without a dataset.
    pub(crate) fn note_finished(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Whether that was said.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// Whether an index of this run may be there, or come there yet.
    pub(super) fn may_appear(&self) -> bool {
        self.may_appear.load(Ordering::Relaxed)
    }

    pub(super) fn note_may_appear(&self, may: bool) {
        self.may_appear.store(may, Ordering::Relaxed);
    }

    /// Waits until there is room on the disk for one more shard.
    pub(crate) fn room(&self, stop: &Stop) -> Result<Pass<'_>, Error> {
        self.room.pass(1, stop)
    }

    pub(super) fn list(&self) -> Result<Vec<Found>, Error> {
        self.uploads.objects().list().map_err(fault("list", self.url()))
    }

    /// Removes the object `name`, if it is still `judged`.
    ///
    /// # Errors
    /// Another command writes there by now, or has written it: usage. Or the store does not answer.
    pub(super) fn remove(&self, name: &str, judged: &Version) -> Result<(), Error> {
        self.check_claim(name)?;
        match self.look(name)? {
            None => return Ok(()),
            Some(there) if there.version != *judged => return Err(self.written_by_another(name)),
            Some(_) => {}
        }
        self.uploads.remove(name).map_err(fault("remove", &self.url_of(name)))?;
        step();
        Ok(())
    }

    /// What is known of an object; `None` if there is none.
    pub(super) fn look(&self, name: &str) -> Result<Option<Looked>, Error> {
        self.uploads.look(name).map_err(fault("look at", &self.url_of(name)))
    }

    /// Whether an object is of this machine's work for the address.
    pub(super) fn is_marked(&self, there: &Looked) -> bool {
        there.mark.as_ref().is_some_and(|mark| mark.work == self.mark.text)
    }

    /// Whether an object is the one that was placed with this ETag.
    pub(super) fn is_placed(&self, there: &Looked, etag: &str) -> bool {
        match etag {
            // A store that says none.
            "" => self.is_marked(there),
            etag => there.version.etag.as_deref().is_some_and(|now| is_same(now, etag)),
        }
    }

    /// Whether an object is there, of this length and version.
    pub(crate) fn has(&self, name: &str, bytes: u64, etag: &str) -> Result<bool, Error> {
        let there = self.look(name)?;
        Ok(there.is_some_and(|there| there.bytes == bytes && self.is_placed(&there, etag)))
    }

    /// Puts the file at `path` there as `name`; gives its ETag, empty if the store says none.
    ///
    /// # Errors
    /// It cannot be read; the store does not take it; another command writes there by now, or has
    /// written it: usage. Or [`Error::Interrupted`].
    pub(crate) fn place(&self, path: &Path, name: &str, stop: &Stop) -> Result<String, Error> {
        self.check_claim(name)?;
        let there = self.look(name)?;
        if there.as_ref().is_some_and(|there| !self.is_marked(there)) {
            return Err(self.written_by_another(name));
        }
        match self.put_file(path, name, When::unchanged(there.as_ref()), stop)? {
            Written::Done(version) => Ok(version.etag.unwrap_or_default()),
            Written::Refused => Err(self.written_by_another(name)),
        }
    }

    /// Whether the object `name` has the bytes of the file at `path`, by its length and, where the
    /// store keeps one, its hash.
    pub(super) fn is_as_in(&self, path: &Path, name: &str) -> Result<bool, Error> {
        let Some(there) = self.look(name)? else { return Ok(false) };
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("look at", path))?.len();
        let content = hash_of(&file, bytes).map_err(Error::io("read", path))?;
        Ok(there.bytes == bytes && there.mark.is_none_or(|mark| mark.content == content))
    }

    pub(super) fn written_by_another(&self, name: &str) -> Error {
        Error::Usage(format!("{} was written by somebody else meanwhile: not going on", self.url_of(name)))
    }

    /// Puts the file at `path` there, in one request or in parts.
    pub(super) fn put_file(
        &self,
        path: &Path,
        name: &str,
        when: When<'_>,
        stop: &Stop,
    ) -> Result<Written, Error> {
        stop.check()?;
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("look at", path))?.len();
        self.has_written.store(true, Ordering::Relaxed);
        if bytes <= WHOLE_BYTES_MAX {
            let content = read_at(&file, 0..bytes).map_err(Error::io("read", path))?;
            return self.uploads.put(name, content, when).map_err(fault("write", &self.url_of(name)));
        }
        let content = hash_of(&file, bytes).map_err(Error::io("read", path))?;
        let id = self.uploads.begin(name, content).map_err(fault("write", &self.url_of(name)))?;
        let record = upload_record(path);
        if let Err(error) = files::put(&record, id.as_bytes(), false) {
            // No later run would know of it.
            let _ = self.uploads.give_up(name, &id);
            return Err(error);
        }
        let upload = Upload { name, id: &id, bytes, content };
        let written =
            self.uploads.write(upload, when, |range| read_at(&file, range), || stop.check().is_err());
        let written = written.map_err(|refused| match refused {
            UploadFault::Store(refused) => fault("write", &self.url_of(name))(refused),
            UploadFault::Read(source) => Error::io("read", path)(source),
            UploadFault::Stopped => Error::Interrupted,
        });
        step();
        // If the store does not answer now, the next run gives it up.
        if matches!(written, Ok(Written::Done(_))) || self.uploads.give_up(name, &id).is_ok() {
            remove_file(&record)?;
        }
        written
    }

    /// Makes sure that nobody else may write the object.
    pub(super) fn check_claim(&self, name: &str) -> Result<(), Error> {
        let in_folder = |claim: &&ObjectClaim| name.starts_with(claim.folder());
        let claim = self.claims.iter().filter(in_folder).max_by_key(|claim| claim.folder().len());
        claim.map_or(Ok(()), |claim| claim.check(&self.uploads))
    }

    /// Gives up the uploads that killed runs of this machine have begun below the address.
    fn give_up_uploads(&self) -> Result<(), Error> {
        for work in mark::work_in(&self.folder)?.iter().filter(|work| work.is_dir()) {
            for split in with_none(&folders_in(work)?) {
                let folder = split.map_or_else(|| work.clone(), |split| work.join(split));
                for file in names_in(&folder)? {
                    if let Some(uploaded) = uploaded(&file) {
                        self.give_up(&folder.join(&file), &below(split, uploaded))?;
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

    /// Reads a small object; `None` if there is none.
    pub(crate) fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Got>, Error> {
        get(&self.uploads, name, bytes_max)
    }

    pub(super) fn url_of(&self, name: &str) -> Url {
        self.url().join(name)
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

/// Whether two ETags are one: some answers do not quote them.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.trim_matches('"') == other.trim_matches('"')
}

/// The file that remembers the upload of the shard at `path`.
fn upload_record(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UPLOAD);
    name.into()
}

/// Names in a folder, sorted.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
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

/// A hash of the first bytes of a file.
fn hash_of(file: &File, bytes: u64) -> std::io::Result<u64> {
    let (mut hash, mut at) = (Xxh3::new(), 0);
    while at < bytes {
        let end = bytes.min(at + PIECE_BYTES);
        hash.update(&read_at(file, at..end)?);
        at = end;
    }
    Ok(hash.digest())
}

fn read_at(file: &File, range: Range<u64>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}
