//! A shard that many threads write: stretches arrive in any order and are placed in theirs.
//!
//! A stretch's place is known once all before it have arrived; the thread that completes the row
//! writes what has become placed. The last one to write also ends the shard.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use shade_formats::checksum::crc32c_append;
use shade_formats::shard::END_OF_ARCHIVE;
use shade_formats::{SampleId, ShardId};

use super::gate::Pass;
use super::not_decodable::NotDecodable;
use super::stretch::{Built, PlacedRecord};
use crate::catalogue::Bad;
use crate::error::Error;
use crate::files::PartialFile;
use crate::interrupt::lock;
use crate::plan::shard_name;

/// A shard under its temporary name.
#[derive(Debug)]
pub(super) struct ShardFile<'a> {
    pub(super) shard: ShardId,
    partial: PartialFile,
    file: File,
    sync: bool,
    /// Its share of the disk, if shards do not stay there.
    _room: Option<Pass<'a>>,
    state: Mutex<ShardState<'a>>,
}

#[derive(Debug, Default)]
struct ShardState<'a> {
    /// The stretch that is placed next.
    next: u32,
    offset: u64,
    crc32c: u32,
    waiting: BTreeMap<u32, (Built, Pass<'a>)>,
    /// Number of stretches, once it is known.
    stretches: Option<u32>,
    written: u32,
    records: Vec<PlacedRecord>,
    bad: Vec<(SampleId, Bad)>,
    not_decodable: NotDecodable,
}

#[derive(Debug)]
pub(super) struct PackedShard {
    pub shard: ShardId,
    pub bytes: u64,
    pub crc32c: u32,
    pub records: Vec<PlacedRecord>,
    pub bad: Vec<(SampleId, Bad)>,
    pub not_decodable: NotDecodable,
}

impl<'a> ShardFile<'a> {
    pub(super) fn create(
        folder: &Path,
        shard: ShardId,
        sync: bool,
        room: Option<Pass<'a>>,
    ) -> Result<Self, Error> {
        let (partial, file) = PartialFile::create(folder.join(shard_name(shard.0)))?;
        Ok(Self { shard, partial, file, sync, _room: room, state: Mutex::default() })
    }

    /// Sets the number of stretches, at the latest with the last one.
    pub(super) fn set_stretches(&self, stretches: u32) {
        lock(&self.state).stretches = Some(stretches);
    }

    /// Takes stretch `number`, writes what is placed now, and ends the shard with the last. Gives
    /// the memory of what was written to `recycle`.
    pub(super) fn place(
        &self,
        number: u32,
        built: Built,
        pass: Pass<'a>,
        mut recycle: impl FnMut(Vec<u8>),
    ) -> Result<Option<PackedShard>, Error> {
        let mut placed = Vec::new();
        {
            let mut state = lock(&self.state);
            state.waiting.insert(number, (built, pass));
            loop {
                let next = state.next;
                let Some((built, pass)) = state.waiting.remove(&next) else { break };
                let base = state.offset;
                state.next += 1;
                state.offset += built.bytes.len() as u64;
                // The order is known here, and a pass over bytes in the CPU's cache is cheaper than
                // joining checksums of pieces (25 µs each).
                state.crc32c = crc32c_append(state.crc32c, &built.bytes);
                state.records.extend(built.records.into_iter().map(|record| record.moved(self.shard, base)));
                state.bad.extend(built.bad);
                state.not_decodable.extend(&built.not_decodable);
                placed.push((base, built.bytes, pass));
            }
        }
        let count = u32::try_from(placed.len()).unwrap_or(u32::MAX);
        for (base, bytes, pass) in placed {
            self.file.write_all_at(&bytes, base).map_err(self.partial.fault("write"))?;
            recycle(bytes);
            drop(pass);
        }
        let mut state = lock(&self.state);
        state.written += count;
        if count == 0 || state.stretches != Some(state.written) {
            return Ok(None);
        }
        let state = std::mem::take(&mut *state);
        self.finish(state).map(Some)
    }

    /// Gives the file its name, once it is whole.
    pub(super) fn publish(&self) -> Result<(), Error> {
        self.partial.publish(&self.file, self.sync)
    }

    /// Ends the tar.
    fn finish(&self, state: ShardState<'a>) -> Result<PackedShard, Error> {
        self.file.write_all_at(&END_OF_ARCHIVE, state.offset).map_err(self.partial.fault("write"))?;
        Ok(PackedShard {
            shard: self.shard,
            bytes: state.offset + END_OF_ARCHIVE.len() as u64,
            crc32c: crc32c_append(state.crc32c, &END_OF_ARCHIVE),
            records: state.records,
            bad: state.bad,
            not_decodable: state.not_decodable,
        })
    }
}
