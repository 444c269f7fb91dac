//! A shard being written by many threads: stretches arrive in any order and are placed in theirs.
//!
//! A stretch's place is known once all before it have arrived; whoever completes the row writes what has become placed.
//! The last one to write also ends the shard: tar's end, fsync, its record of completion, its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use shade_formats::SampleId;
use shade_formats::ShardId;
use shade_formats::checksum::crc32c_append;
use shade_formats::shard::END_OF_ARCHIVE;

use super::gate::Pass;
use super::stretch::{Built, Placed};
use crate::catalogue::Bad;
use crate::error::Error;
use crate::files::flush_to_store;
use crate::plan::shard_name;

/// A shard under its temporary name.
#[derive(Debug)]
pub(super) struct ShardFile<'a> {
    pub(super) shard: ShardId,
    path: PathBuf,
    partial: PathBuf,
    file: File,
    /// Whether the disk confirms it.
    sync: bool,
    state: Mutex<State<'a>>,
}

#[derive(Debug, Default)]
struct State<'a> {
    /// The stretch that is placed next.
    next: u32,
    /// Where.
    offset: u64,
    crc32c: u32,
    waiting: BTreeMap<u32, (Built, Pass<'a>)>,
    /// How many stretches there are, once that is known.
    stretches: Option<u32>,
    written: u32,
    records: Vec<Placed>,
    bad: Vec<(SampleId, Bad)>,
}

/// A shard that is complete.
#[derive(Debug)]
pub(super) struct PackedShard {
    pub shard: ShardId,
    pub bytes: u64,
    pub crc32c: u32,
    pub records: Vec<Placed>,
    pub bad: Vec<(SampleId, Bad)>,
}

impl<'a> ShardFile<'a> {
    /// Begins shard number `shard` in `folder`.
    pub(super) fn create(folder: &Path, shard: ShardId, sync: bool) -> Result<Self, Error> {
        let name = shard_name(shard.0);
        let partial = folder.join(format!("{name}.part-{}", std::process::id()));
        let file = File::create_new(&partial).map_err(Error::io("create", &partial))?;
        let state = Mutex::new(State::default());
        Ok(Self { shard, path: folder.join(name), partial, file, sync, state })
    }

    /// Says how many stretches there are, at the latest when the last one is handed out.
    pub(super) fn set_stretches(&self, stretches: u32) {
        self.lock().stretches = Some(stretches);
    }

    /// Takes stretch `number`, writes what is placed now, and ends the shard with the last. Gives the memory of what was
    /// written to `recycle`.
    pub(super) fn place(
        &self,
        number: u32,
        built: Built,
        pass: Pass<'a>,
        mut recycle: impl FnMut(Vec<u8>),
    ) -> Result<Option<PackedShard>, Error> {
        let mut placed = Vec::new();
        {
            let mut state = self.lock();
            state.waiting.insert(number, (built, pass));
            loop {
                let next = state.next;
                let Some((built, pass)) = state.waiting.remove(&next) else { break };
                let base = state.offset;
                state.next += 1;
                state.offset += built.bytes.len() as u64;
                // Here the order is known, and a pass over what is still in the CPU's cache is cheaper than putting
                // checksums of pieces together (25 µs each).
                state.crc32c = crc32c_append(state.crc32c, &built.bytes);
                state.records.extend(built.records.into_iter().map(|record| record.moved(self.shard, base)));
                state.bad.extend(built.bad);
                placed.push((base, built.bytes, pass));
            }
        }
        let count = u32::try_from(placed.len()).unwrap_or(u32::MAX);
        for (base, bytes, pass) in placed {
            self.file.write_all_at(&bytes, base).map_err(Error::io("write", &self.partial))?;
            recycle(bytes);
            drop(pass);
        }
        let mut state = self.lock();
        state.written += count;
        if count == 0 || state.stretches != Some(state.written) {
            return Ok(None);
        }
        let state = std::mem::take(&mut *state);
        self.finish(state).map(Some)
    }

    /// Ends the tar and gives the file its name.
    fn finish(&self, state: State<'a>) -> Result<PackedShard, Error> {
        self.file.write_all_at(&END_OF_ARCHIVE, state.offset).map_err(Error::io("write", &self.partial))?;
        let end = END_OF_ARCHIVE.len();
        if self.sync {
            self.file.sync_all().map_err(Error::io("sync", &self.partial))?;
        }
        flush_to_store(&self.file).map_err(Error::io("write", &self.partial))?;
        fs::rename(&self.partial, &self.path).map_err(Error::io("name", &self.partial))?;
        Ok(PackedShard {
            shard: self.shard,
            bytes: state.offset + end as u64,
            crc32c: crc32c_append(state.crc32c, &END_OF_ARCHIVE),
            records: state.records,
            bad: state.bad,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ShardFile<'_> {
    /// A shard that was not finished leaves nothing behind; after the rename there is no such name.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}
