//! Writes a dataset into a bucket.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use shade_dataset::{Answer, Found, StoreFault, Upload, UploadFault, Uploads, Url, When, Written, regular};
use shade_formats::index::INDEX_FILE;
use shade_formats::limits::INDEX_BYTES_MAX;

use super::address::below;
use super::claim;
use super::object::{Got, fault, get};
use crate::error::Error;
use crate::files;
use crate::interrupt::{Stop, lock};
use crate::leftovers::remove_file;
use crate::pack::{Gate, Pass};
use crate::plan::{UPLOAD, shard_number};
use crate::times::TIMES_FILE;

/// Objects up to this length are written by one request.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Shards that are written to disk, or wait there until the bucket has them.
const SHARDS_MAX: u64 = 4;
/// Longest id of an upload that is read back, in bytes.
const ID_BYTES_MAX: u64 = 16 * 1024;

/// The prefix of a bucket that a command writes a dataset to. Only this command does.
#[derive(Debug)]
pub(crate) struct Bucket {
    uploads: Uploads,
    room: Gate,
    /// What this run has put there, by its names.
    placed: Mutex<Vec<String>>,
    is_of_the_dead: bool,
}

impl Bucket {
    /// Takes the right to write below `url`; it is given back when dropped.
    pub(super) fn take(url: &Url) -> Result<Self, Error> {
        let uploads = Uploads::open(url).map_err(fault("write to", url))?;
        let is_of_the_dead = claim::take(&uploads)?;
        Ok(Self { uploads, room: Gate::new(SHARDS_MAX), placed: Mutex::default(), is_of_the_dead })
    }

    /// Whether a command of this machine was killed while it wrote there.
    pub(super) fn is_of_the_dead(&self) -> bool {
        self.is_of_the_dead
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
        self.uploads.remove(name).map_err(fault("remove", &self.url_of(name)))
    }

    /// Removes all that this run has put there. The failure that leads here is the one to tell.
    pub(crate) fn remove_placed(&self) {
        for name in std::mem::take(&mut *lock(&self.placed)) {
            let _ = self.remove(&name);
        }
    }

    /// Whether an object is there, of this length and version.
    pub(crate) fn has(&self, name: &str, bytes: u64, etag: &str) -> Result<bool, Error> {
        let found = self.uploads.look(name).map_err(fault("look at", &self.url_of(name)))?;
        Ok(found
            .is_some_and(|found| found.bytes == bytes && found.etag.as_deref().unwrap_or_default() == etag))
    }

    /// Puts the file at `path` there as `name`; gives its version, empty if the store says none.
    ///
    /// # Errors
    /// It cannot be read, the store does not take it, or [`Error::Interrupted`].
    pub(crate) fn place(&self, path: &Path, name: &str, stop: &Stop) -> Result<String, Error> {
        stop.check()?;
        let read = Error::io("read", path);
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("look at", path))?.len();
        lock(&self.placed).push(name.to_owned());
        if bytes > WHOLE_BYTES_MAX {
            return self.place_in_parts(path, &file, Upload { name, id: "", bytes }, stop);
        }
        let content = read_at(&file, 0..bytes).map_err(read)?;
        match self.uploads.put(name, content, When::Always) {
            Ok(Written::Done(etag)) => Ok(etag.unwrap_or_default()),
            Ok(Written::Refused) => unreachable!("nothing was asked of what is there"),
            Err(refused) => self.looked_up(name, bytes, refused),
        }
    }

    /// Puts the file at `path`, which is open, there in parts.
    fn place_in_parts(
        &self,
        path: &Path,
        file: &File,
        upload: Upload<'_>,
        stop: &Stop,
    ) -> Result<String, Error> {
        let Upload { name, bytes, .. } = upload;
        let id = self.uploads.begin(name).map_err(fault("write", &self.url_of(name)))?;
        let record = upload_record(path);
        files::put(&record, id.as_bytes(), false)?;
        let upload = Upload { id: &id, ..upload };
        let written = self.uploads.write(upload, |range| read_at(file, range), || stop.check().is_err());
        let done = match written {
            Ok(etag) => Ok(etag.unwrap_or_default()),
            Err(UploadFault::Store(refused)) => self.looked_up(name, bytes, refused),
            Err(UploadFault::Read(source)) => Err(Error::io("read", path)(source)),
            Err(UploadFault::Stopped) => Err(Error::Interrupted),
        };
        // If the store does not answer now, the next run gives it up.
        if done.is_ok() || self.uploads.give_up(name, &id).is_ok() {
            remove_file(&record)?;
        }
        done
    }

    /// What became of a write whose answer was lost: the store has it, or says `refused`. What this
    /// work writes under one name is always the same.
    fn looked_up(&self, name: &str, bytes: u64, refused: StoreFault) -> Result<String, Error> {
        // A second request to end an upload finds none.
        let may_be_there = matches!(refused.answer, Answer::Cut | Answer::TimedOut | Answer::NotFound);
        match may_be_there.then(|| self.uploads.look(name)) {
            Some(Ok(Some(found))) if found.bytes == bytes => Ok(found.etag.unwrap_or_default()),
            _ => Err(fault("write", &self.url_of(name))(refused)),
        }
    }

    /// Gives up the uploads that killed runs have begun for `folder`, whose files are named as in
    /// the bucket's folder `split`.
    pub(crate) fn give_up_uploads(&self, folder: &Path, split: Option<&str>) -> Result<(), Error> {
        let entries = match fs::read_dir(folder) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(Error::io("list", folder))?,
        };
        for entry in entries {
            let file = entry.map_err(Error::io("list", folder))?.file_name();
            let shard = file.to_str().and_then(|file| file.strip_suffix(UPLOAD));
            let Some(shard) = shard.filter(|shard| shard_number(shard).is_some()) else { continue };
            let record = folder.join(&file);
            let name = below(split, shard);
            let length = fs::metadata(&record).map_or(0, |found| found.len());
            if let Ok(id) = regular::read(&record).map(String::from_utf8)
                && let (Ok(id), 1..=ID_BYTES_MAX) = (id, length)
            {
                match self.uploads.give_up(&name, &id) {
                    // What some stores say of an upload that is over.
                    Err(refused) if refused.answer == Answer::Forbidden => {}
                    given_up => given_up.map_err(fault("give up", &self.url_of(&name)))?,
                }
            }
            remove_file(&record)?;
        }
        Ok(())
    }

    /// Makes a dataset of what is in `folder`: puts what lies there into the bucket's folder
    /// `split`, the index last.
    ///
    /// # Errors
    /// The store does not take it; or a dataset with another index is there by now: usage.
    pub(crate) fn publish(&self, folder: &Path, split: Option<&str>, stop: &Stop) -> Result<(), Error> {
        for shard in shards_in(folder)? {
            self.place(&folder.join(&shard), &below(split, &shard), stop)?;
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
    pub(crate) fn replace_index(&self, index: Vec<u8>, etag: Option<&str>) -> Result<(), Error> {
        self.put_index(INDEX_FILE, index, etag.map_or(When::Always, When::Still))
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
        match get(self.uploads.objects(), name, INDEX_BYTES_MAX) {
            Ok(Some(there)) if there.bytes == index => Ok(()),
            _ => Err(refused),
        }
    }

    /// Reads a small object; `None` if there is none.
    pub(crate) fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Got>, Error> {
        get(self.uploads.objects(), name, bytes_max)
    }

    fn url_of(&self, name: &str) -> Url {
        self.uploads.objects().url().join(name)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        claim::give_back(&self.uploads);
    }
}

/// The file that remembers the upload of the shard at `path`.
fn upload_record(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UPLOAD);
    name.into()
}

fn shards_in(folder: &Path) -> Result<Vec<String>, Error> {
    let mut shards = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let name = entry.map_err(Error::io("list", folder))?.file_name();
        shards.extend(name.to_str().filter(|name| shard_number(name).is_some()).map(str::to_owned));
    }
    shards.sort_unstable();
    Ok(shards)
}

fn read_at(file: &File, range: std::ops::Range<u64>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}
