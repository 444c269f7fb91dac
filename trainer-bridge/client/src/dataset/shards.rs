//! Reads spans of shards, as far as a `fork` allows.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use shade_dataset::{Files, IsStopped, ReadFault, ReadMemory};
use shade_formats::ShardId;
use shade_formats::index::Index;

use crate::fork::Owner;

/// The files of a dataset's shards, opened when first read.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Arc<Files>,
    owner: Owner,
}

impl Shards {
    /// The shards in `folder`, read past the page cache where the file system allows that, if `direct`.
    ///
    /// The daemon reads past it, and on NFS buffered and direct reads of one file wait for each other: the
    /// client empties the page cache of the file whenever one kind follows the other.
    pub(crate) fn new(folder: &Path, index: &Arc<Index>, direct: bool) -> Self {
        let files = Arc::new(Files::new(folder, Arc::clone(index), direct));
        Self { files, owner: Owner::here() }
    }

    /// The bytes `range` of a shard. Waits for trouble of the store to be over unless `is_stopped`.
    pub(crate) fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
        is_stopped: IsStopped<'_>,
    ) -> Result<&'m [u8], ReadFault> {
        match self.files.read(shard, range, memory, is_stopped) {
            (bytes, None) => Ok(bytes),
            (_, Some(fault)) => Err(fault),
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        // A thread that the fork left behind may have been opening a file: a child does not look at them.
        if !self.owner.is_here() {
            Box::leak(Box::new(Arc::clone(&self.files)));
        }
    }
}
