//! A dataset in a bucket, as this machine knows it: a folder with a copy of its index, and beside
//! it the address that its shards lie at.
//!
//! The folder is the user's, below `$XDG_CACHE_HOME/shade` or `~/.cache/shade`. Each open asks the
//! store whether the index is another one by now; the answer is a few bytes if it is not.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use shade_formats::index::INDEX_FILE;
use shade_formats::limits::INDEX_BYTES_MAX;
use shade_store::{Address, Answer, Objects, StoreFault, Url};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::DatasetError;
use crate::patience::patiently;
use crate::regular;

/// The file that says where a folder's index came from.
const FILE: &str = "origin";
/// First line of that file.
const MAGIC: &str = "shade-origin 1";
/// Longest such file, in bytes.
const BYTES_MAX: u64 = 16 * 1024;
/// The file that is locked while a folder is looked at and written.
const LOCK: &str = "lock";
/// Longest wait for another process that has it.
const LOCK_MAX: Duration = Duration::from_secs(60);
/// Interval at which it is tried.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// Where the index of a folder came from, and where its shards are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The address.
    pub url: Url,
    /// The version of the index.
    etag: Option<String>,
}

impl Origin {
    /// The origin of the dataset in `folder`; `None` if its shards lie there, too.
    ///
    /// # Errors
    /// What says so cannot be read, or is damaged.
    pub fn of_folder(folder: &Path) -> Result<Option<Self>, DatasetError> {
        let path = folder.join(FILE);
        let mut text = String::new();
        let read = regular::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DatasetError::Io { path, source }),
        }
        let mut lines = text.lines();
        let url = match (lines.next(), lines.next().map(Address::parse)) {
            (Some(MAGIC), Some(Ok(Address::Url(url)))) => url,
            _ => {
                let source = io::Error::other("it does not say where a dataset is: remove this folder");
                return Err(DatasetError::Io { path, source });
            }
        };
        Ok(Some(Self { url, etag: lines.next().map(str::to_owned) }))
    }

    /// The folder of the dataset at `url`, with the index as it is there now.
    ///
    /// # Errors
    /// The store does not give the index, or the folder cannot be written.
    pub(crate) fn fetch(url: &Url) -> Result<PathBuf, DatasetError> {
        let folder = cache_folder("objects", url)?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| DatasetError::Io { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io(&folder))?;
        // One at a time: an older answer must not replace a newer one.
        let _lock = locked(&folder);
        // What is damaged is fetched anew.
        let known = Self::of_folder(&folder).ok().flatten();
        let known = known.filter(|known| known.url == *url && folder.join(INDEX_FILE).is_file());
        let etag = known.and_then(|known| known.etag);
        let not_given = |fault: StoreFault| match fault.answer {
            Answer::NotFound => DatasetError::NotPackedAt { url: url.to_string() },
            _ => DatasetError::Store { url: url.join(INDEX_FILE).to_string(), fault },
        };
        let objects = Objects::open(url, 1).map_err(not_given)?;
        let got = patiently(|| objects.get_if_new(INDEX_FILE, etag.as_deref(), INDEX_BYTES_MAX));
        if let Some((bytes, found)) = got.map_err(not_given)? {
            let origin = format!("{MAGIC}\n{url}\n{}\n", found.etag.as_deref().unwrap_or_default());
            // In this order: if only the first happens, the index is fetched again.
            for (name, content) in [(INDEX_FILE, bytes.as_slice()), (FILE, origin.as_bytes())] {
                put(&folder, name, content).map_err(io(&folder.join(name)))?;
            }
        }
        folder.canonicalize().map_err(io(&folder))
    }
}

/// Keeps other openings of the address away until the file is closed. Not for ever: the process
/// that has it may be stopped. `None` where there can be no lock, as in a folder that is only read.
fn locked(folder: &Path) -> Option<File> {
    // Locks of NFS are for who may write.
    let file = regular::open_or_create(&folder.join(LOCK), Mode::RUSR | Mode::WUSR).ok()?;
    let until = Instant::now() + LOCK_MAX;
    while let Err(TryLockError::WouldBlock) = file.try_lock()
        && Instant::now() < until
    {
        std::thread::sleep(LOCK_LOOK);
    }
    Some(file)
}

/// Puts a file in its place by a rename, so that a reader sees the old one or the new one.
fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.{}", std::process::id()));
    // A process of this number may have been killed here.
    let _ = fs::remove_file(&temporary);
    let mut file = File::create_new(&temporary)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&temporary, folder.join(name))).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The folder of the user's cache for what lies at an address. `kind` is what is kept in it.
///
/// # Errors
/// The environment names no folder.
pub fn cache_folder(kind: &str, url: &Url) -> Result<PathBuf, DatasetError> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    let Some(cache) = cache.filter(|cache| cache.is_absolute()) else {
        let source = io::Error::other("no folder for what is known of it: set HOME or XDG_CACHE_HOME");
        return Err(DatasetError::Io { path: url.as_str().into(), source });
    };
    Ok(cache.join("shade").join(kind).join(format!("{:032x}", xxh3_128(url.as_str().as_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_where_its_index_came_from() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Origin::of_folder(folder.path()).unwrap(), None);
        put(folder.path(), FILE, b"shade-origin 1\ns3://b/p\n\"abc\"\n").unwrap();
        let origin = Origin::of_folder(folder.path()).unwrap().unwrap();
        assert_eq!((origin.url.as_str(), origin.etag.as_deref()), ("s3://b/p", Some("\"abc\"")));
        for damaged in
            ["", "shade-origin 2\ns3://b/p\n", "shade-origin 1\n/data\n", "shade-origin 1\ns3://b/../p\n"]
        {
            put(folder.path(), FILE, damaged.as_bytes()).unwrap();
            let told = Origin::of_folder(folder.path()).unwrap_err().to_string();
            assert!(told.contains("remove this folder"), "{told}");
        }
    }
}
